package api

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/anteroom/anteroom/internal/ophttp"
)

const (
	// maxExpansion is how many times longer than its compressed form a body may be, after the first freeExpansion bytes. Jobs in
	// NDJSON expand 5 to 50 times.
	maxExpansion  = 200
	freeExpansion = 1 << 20
	// zstdWindow bounds the memory of one zstd body; RFC 9659 allows no larger window in HTTP.
	zstdWindow = 8 << 20
	// zstdHeld is the most memory that a zstd body holds until its upload ends: the decoder's window, which the sender chooses, its
	// blocks and its tables.
	zstdHeld = zstdWindow + 512<<10
	// codings are the accepted ones, as in Accept-Encoding.
	codings = "gzip, zstd"
)

// encodedBody is the decompressed body of a request. It holds one window in memory.
type encodedBody struct {
	io.Reader
	sent   sentBytes
	coding string
	most   int64 // bytes after decompression
	read   int64
	err    error // of the last Read
}

// sentBytes counts the bytes of a compressed body and keeps the error with which it ended.
type sentBytes struct {
	io.ReadCloser
	n   int64
	err error
}

func (s *sentBytes) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.n += int64(n)
	if err != nil {
		s.err = err
	}
	return n, err
}

// decompress replaces a compressed body as the function does, and counts the memory of the decoder, which a slow sender holds for
// long, towards that of uploads. release gives it back.
func (s uploadRoutes) decompress(w http.ResponseWriter, r *http.Request, who identity) (release func(), err error) {
	done, err := decompress(w, r, s.o.Limits.Decompressed)
	if b, compressed := r.Body.(*encodedBody); err != nil || !compressed || b.coding != "zstd" {
		return done, err
	}
	if !s.uploads.take(who, zstdHeld) {
		done()
		p := ophttp.NewProblem(http.StatusServiceUnavailable, "busy", "too many uploads with zstd are in progress: send fewer at a time, or use gzip")
		p.RetryAfter = time.Second
		return nil, p
	}
	return func() {
		done()
		s.uploads.free(who, zstdHeld)
	}, nil
}

// decompress replaces a compressed body of a request by its content. release frees its memory.
func decompress(w http.ResponseWriter, r *http.Request, most int64) (release func(), err error) {
	sent := r.Header.Values("Content-Encoding")
	if len(sent) == 0 || len(sent) == 1 && (sent[0] == "" || sent[0] == "identity") {
		return func() {}, nil
	}
	b := &encodedBody{sent: sentBytes{ReadCloser: r.Body}, coding: sent[0], most: most}
	switch {
	case len(sent) > 1:
		release = nil
	case sent[0] == "gzip":
		z := &gzipReader{source: &b.sent}
		b.Reader, release = z, z.release
	case sent[0] == "zstd":
		z := zstdReaders.Get().(*zstd.Decoder)
		_ = z.Reset(&b.sent) // of a reader, it does not fail
		b.Reader, release = z, func() {
			_ = z.Reset(nil) // lets go of the body
			zstdReaders.Put(z)
		}
	}
	if release == nil {
		w.Header().Set("Accept-Encoding", codings)
		return nil, ophttp.NewProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Encoding is %q: send the body with one of %s, or uncompressed", ophttp.Shorten(sent[0]), codings)
	}
	r.Body = b
	r.Header.Del("Content-Encoding")
	return release, nil
}

var zstdReaders = sync.Pool{New: func() any {
	// With a concurrency of 1 it starts no goroutine.
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
	if err != nil {
		panic(err) // the options are valid
	}
	return z
}}

var gzipReaders sync.Pool

// gzipReader reads the header with the first Read, since it may arrive late or be wrong.
type gzipReader struct {
	source io.Reader
	z      *gzip.Reader
}

func (g *gzipReader) Read(p []byte) (n int, err error) {
	if g.z == nil {
		if g.z, _ = gzipReaders.Get().(*gzip.Reader); g.z == nil {
			g.z = new(gzip.Reader)
		}
		if err := g.z.Reset(g.source); err != nil {
			return 0, err
		}
	}
	return g.z.Read(p)
}

func (g *gzipReader) release() {
	if g.z != nil {
		gzipReaders.Put(g.z)
	}
}

func (b *encodedBody) Close() error { return b.sent.Close() }

// Read implements io.Reader. Its errors are those of the connection, or problems.
func (b *encodedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.Reader.Read(p)
	b.read += int64(n)
	switch {
	case b.read > b.most:
		b.err = ophttp.NewProblem(http.StatusRequestEntityTooLarge, "too_large",
			"the body has more than %d bytes (limits.decompressed) after decompression: send it uncompressed, or in chunks with an Idempotency-Key each", b.most)
	case b.read > freeExpansion && b.read > maxExpansion*b.sent.n:
		b.err = ophttp.NewProblem(http.StatusRequestEntityTooLarge, "too_large",
			"the body is more than %d times longer after decompression, as jobs hardly are: send it uncompressed", maxExpansion)
	case err == nil || errors.Is(err, io.EOF):
		b.err = err
	case b.sent.err != nil && !errors.Is(b.sent.err, io.EOF):
		b.err = b.sent.err // the connection broke
	default:
		b.err = ophttp.NewProblem(http.StatusUnprocessableEntity, "bad_encoding", "the body is not valid %s, or not whole: %v", b.coding, err)
	}
	if b.err != nil && !errors.Is(b.err, io.EOF) {
		return 0, b.err
	}
	return n, b.err
}

package api

import (
	"bytes"
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
	// zstdBeside is the memory that a zstd body holds besides the window until its upload ends: the decoder's blocks and tables.
	zstdBeside = 512 << 10
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
	var held int64
	done, err := decompress(w, r, s.o.Limits.Decompressed, func(n int64) error {
		if !s.uploads.take(who, n) {
			p := ophttp.NewProblem(http.StatusServiceUnavailable, "busy", "too many uploads with zstd are in progress: send fewer at a time, or use gzip")
			p.RetryAfter = time.Second
			return p
		}
		held = n
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func() {
		done()
		s.uploads.free(who, held)
	}, nil
}

// decompress replaces a compressed body of a request by its content. It calls hold before the body takes memory that its sender
// chooses, with how much. release frees its memory.
func decompress(w http.ResponseWriter, r *http.Request, most int64, hold func(n int64) error) (release func(), err error) {
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
		z := &zstdReader{source: &b.sent, hold: hold}
		b.Reader, release = z, z.release
	}
	if release == nil {
		w.Header().Set("Accept-Encoding", codings)
		return nil, ophttp.NewProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Encoding is %q: send the body with one of %s, or uncompressed", ophttp.Shorten(sent[0]), codings)
	}
	r.Body = b
	r.Header.Del("Content-Encoding")
	return release, nil
}

// zstdClasses are the windows for which decoders are kept. A decoder keeps the memory of its largest window. The least is that of zstd's
// default level, so that files that were compressed so one by one may follow each other in a body.
var (
	zstdClasses = [...]int64{2 << 20, 4 << 20, zstdWindow}
	zstdReaders [len(zstdClasses)]sync.Pool
)

// zstdReader reads the header of the first frame with the first Read, since it may arrive late or be wrong. Its window bounds those of
// the frames after it.
type zstdReader struct {
	source io.Reader
	hold   func(n int64) error
	class  int
	z      *zstd.Decoder
}

func (z *zstdReader) Read(p []byte) (n int, err error) {
	if z.z == nil {
		if err := z.begin(); err != nil {
			return 0, err
		}
	}
	n, err = z.z.Read(p)
	if z.class < len(zstdClasses)-1 && (errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded)) {
		err = ophttp.NewProblem(http.StatusUnprocessableEntity, "bad_encoding",
			"a frame of the zstd body has a larger window than its first one, above %d bytes: compress the body as one frame", zstdClasses[z.class])
	}
	return n, err
}

func (z *zstdReader) begin() error {
	head := make([]byte, 0, zstd.HeaderMaxSize)
	var h zstd.Header
	var broken error
	err := h.Decode(head)
	for errors.Is(err, io.ErrUnexpectedEOF) && len(head) < cap(head) && broken == nil {
		var n int
		n, broken = z.source.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		err = h.Decode(head)
	}
	window := max(h.WindowSize, h.FrameContentSize) // of a single segment, all of its content
	if !h.SingleSegment {
		window = h.WindowSize
	}
	for z.class < len(zstdClasses)-1 && (err != nil || h.Skippable || window > uint64(zstdClasses[z.class])) {
		z.class++
	}
	if err := z.hold(zstdClasses[z.class] + zstdBeside); err != nil {
		return err
	}
	d, _ := zstdReaders[z.class].Get().(*zstd.Decoder)
	if d == nil {
		// With a concurrency of 1 it starts no goroutine.
		d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(uint64(zstdClasses[z.class])))
		if err != nil {
			panic(err) // the options are valid
		}
	}
	z.z = d
	return d.Reset(io.MultiReader(bytes.NewReader(head), z.source))
}

func (z *zstdReader) release() {
	if z.z != nil {
		_ = z.z.Reset(nil) // lets go of the body
		zstdReaders[z.class].Put(z.z)
	}
}

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
	problem, refused := errors.AsType[*ophttp.Problem](err)
	switch {
	case refused:
		b.err = problem
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

package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1/http1test"
)

// FuzzScan compares an accepted header with what net/http and fasthttp read in the same bytes: method, target, host, framing,
// fields and the end of the header. A header that they read differently must be refused.
func FuzzScan(f *testing.F) {
	for _, tc := range http1test.Refused {
		f.Add([]byte(tc.Raw))
	}
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://a/x?y HTTP/1.1\r\nHost: a\r\nCookie: a=1; b=2\r\n\r\n",
		"POST /x HTTP/1.1\r\nHost: a:80\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\n\r\n",
		"PUT /x HTTP/1.0\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc",
		"\r\nOPTIONS * HTTP/1.1\r\nHost: [::1]:8080\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX: \t\xff\t \r\nExpect: 100-continue\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	lim := Limits{16 << 10, 8 << 10, 100}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h RequestHeader
		n, r := h.Scan(b, &lim)
		if n == 0 {
			if r == nil && len(b) > lim.Header {
				t.Fatalf("%d bytes and still waiting", len(b))
			}
			return
		}
		raw := b[:n]
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(bytes.TrimPrefix(raw, []byte("\r\n")))))
		if err != nil {
			if strings.Contains(err.Error(), "parse") { // its URL parser refuses escapes that we pass on
				t.Skip()
			}
			t.Fatalf("accepted, but net/http says %v: %q", err, raw)
		}
		if req.Method != string(h.Method()) || req.Host != string(h.Host()) {
			t.Fatalf("net/http reads %s for %s: %q", req.Method, req.Host, raw)
		}
		if want := h.Length; req.ContentLength != want {
			t.Fatalf("net/http reads length %d, we %d: %q", req.ContentLength, want, raw)
		}
		if !strings.HasSuffix(req.RequestURI, string(h.Target())) {
			t.Fatalf("net/http reads target %q, we %q", req.RequestURI, h.Target())
		}
		for i := range h.Lines {
			l := &h.Lines[i]
			switch l.Kind {
			case KindHost, KindLength, kindCoding, KindTrailer:
				continue
			}
			found := false
			for _, v := range req.Header[http.CanonicalHeaderKey(string(h.Name(l)))] {
				found = found || v == string(h.Value(l))
			}
			if !found {
				t.Fatalf("net/http misses %q: %q in %v", h.Name(l), h.Value(l), req.Header)
			}
		}

		var fh fasthttp.RequestHeader
		br := bufio.NewReaderSize(bytes.NewReader(append(bytes.Clone(raw), "NEXT"...)), 32<<10)
		if err := fh.Read(br); err != nil {
			if h.Trailer.Announced.Any() { // it refuses names that we would merely drop
				return
			}
			t.Fatalf("accepted, but fasthttp says %v: %q", err, raw)
		}
		if rest, _ := io.ReadAll(br); string(rest) != "NEXT" {
			t.Fatalf("fasthttp ends the header elsewhere: %q left of %q", rest, raw)
		}
		if string(fh.Method()) != string(h.Method()) || string(fh.Host()) != string(h.Host()) && len(h.Host()) > 0 {
			t.Fatalf("fasthttp reads %s for %s: %q", fh.Method(), fh.Host(), raw)
		}
		if want := h.Length; want != 0 && int64(fh.ContentLength()) != want {
			t.Fatalf("fasthttp reads length %d, we %d: %q", fh.ContentLength(), want, raw)
		}
	})
}

// FuzzChunked compares the decoder with that of net/http, however the bytes are cut into packets.
func FuzzChunked(f *testing.F) {
	for _, s := range []string{"0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "5;a=b\r\nhello\r\n3\r\nabc\r\n0\r\nX: 1\r\n\r\n", "5 \r\nhello\r\n", "0\r\nX : 1\r\n\r\n", "A\r\n0123456789\r\n00\r\n\r\n"} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, packet uint8) {
		got, rest, err := decodeChunks(b, int(packet)+1)
		whole, rest2, err2 := decodeChunks(b, len(b)+1)
		if (err == nil) != (err2 == nil) || err == nil && (!bytes.Equal(got, whole) || !bytes.Equal(rest, rest2)) {
			t.Fatalf("cut at %d: %q, %v; whole: %q, %v", packet, got, err, whole, err2)
		}
		if err != nil {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), bytes.NewReader(b[:len(b)-len(rest)]))), nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(resp.Body)
		if err != nil && !strings.Contains(err.Error(), "trailer") {
			t.Fatalf("accepted, but net/http says %v: %q", err, b)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("net/http reads %q, we %q", want, got)
		}
	})
}

func decodeChunks(b []byte, packet int) (body, rest []byte, err error) {
	src := &http1test.Packets{Bytes: b, Size: packet}
	in := Buffer{Source: src}
	defer in.Release()
	var c ChunkReader
	c.Reset(false, 100)
	buf := make([]byte, 64)
	for {
		n, err := c.Read(&in, buf)
		body = append(body, buf[:n]...)
		if err == io.EOF {
			return body, append(bytes.Clone(in.Pending()), src.Bytes...), nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// FuzzAnswer compares a scanned response header with what net/http reads.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.0 200\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nConnection: close, X-A\r\nX-A: 1\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n", "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var a ResponseHeader
		n, err := a.Scan(b)
		if n == 0 || err != nil {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b[:n])), nil)
		if err != nil {
			t.Fatalf("accepted, but net/http says %v: %q", err, b[:n])
		}
		if resp.StatusCode != a.Status {
			t.Fatalf("net/http reads status %d, we %d", resp.StatusCode, a.Status)
		}
		if !a.Bodiless(false) && max(resp.ContentLength, -1) != max(a.Length, -1) {
			t.Fatalf("net/http reads length %d, we %d: %q", resp.ContentLength, a.Length, b[:n])
		}
		for i := range a.Lines {
			l := &a.Lines[i]
			if l.Kind != KindKeep {
				continue
			}
			found := false
			for _, v := range resp.Header[http.CanonicalHeaderKey(string(a.Name(l)))] {
				found = found || v == string(a.Value(l))
			}
			if !found {
				t.Fatalf("net/http misses %q: %q", a.Name(l), a.Value(l))
			}
		}
	})
}

// FuzzValidValue compares the check of eight bytes at a time with the plain check.
func FuzzValidValue(f *testing.F) {
	f.Add([]byte("text/html; charset=utf-8"))
	f.Add([]byte("\t\x7f\x80\xff\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if ValidValue(b) != validValueSlow(b) {
			t.Fatalf("%q", b)
		}
	})
}

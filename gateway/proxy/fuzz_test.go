package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// FuzzScan holds what we accept to what net/http and fasthttp read in the same bytes: same method,
// target, host, framing and headers, and the same end of the header. What they read in another way
// has to be refused.
func FuzzScan(f *testing.F) {
	for _, tc := range refusals {
		f.Add([]byte(tc.raw))
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
	lim := headLimits{16 << 10, 8 << 10, 100}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h head
		n, r := h.scan(b, &lim)
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
		if req.Method != string(h.methodBytes()) || req.Host != string(h.hostBytes()) {
			t.Fatalf("net/http reads %s for %s: %q", req.Method, req.Host, raw)
		}
		if want := h.length; req.ContentLength != want {
			t.Fatalf("net/http reads length %d, we %d: %q", req.ContentLength, want, raw)
		}
		if !strings.HasSuffix(req.RequestURI, string(h.targetBytes())) {
			t.Fatalf("net/http reads target %q, we %q", req.RequestURI, h.targetBytes())
		}
		for i := range h.lines {
			l := &h.lines[i]
			switch l.kind {
			case kindHost, kindLength, kindCoding, kindTrailer:
				continue
			}
			found := false
			for _, v := range req.Header[http.CanonicalHeaderKey(string(h.name(l)))] {
				found = found || v == string(h.val(l))
			}
			if !found {
				t.Fatalf("net/http misses %q: %q in %v", h.name(l), h.val(l), req.Header)
			}
		}

		var fh fasthttp.RequestHeader
		br := bufio.NewReaderSize(bytes.NewReader(append(bytes.Clone(raw), "NEXT"...)), 32<<10)
		if err := fh.Read(br); err != nil {
			if h.announced.any() { // it refuses names that we would merely drop
				return
			}
			t.Fatalf("accepted, but fasthttp says %v: %q", err, raw)
		}
		if rest, _ := io.ReadAll(br); string(rest) != "NEXT" {
			t.Fatalf("fasthttp ends the header elsewhere: %q left of %q", rest, raw)
		}
		if string(fh.Method()) != string(h.methodBytes()) || string(fh.Host()) != string(h.hostBytes()) && h.host != h.hostEnd {
			t.Fatalf("fasthttp reads %s for %s: %q", fh.Method(), fh.Host(), raw)
		}
		if want := h.length; want != 0 && int64(fh.ContentLength()) != want {
			t.Fatalf("fasthttp reads length %d, we %d: %q", fh.ContentLength(), want, raw)
		}
	})
}

// FuzzChunked holds the decoder to net/http's: what we accept it reads alike, however the bytes are
// cut into packets.
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

type packets struct {
	b []byte
	n int
}

func (p *packets) Read(q []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(q, p.b[:min(p.n, len(p.b))])
	p.b = p.b[n:]
	return n, nil
}

func decodeChunks(b []byte, packet int) (body, rest []byte, err error) {
	src := &packets{b, packet}
	in := inbuf{src: src}
	defer in.release()
	var c chunkReader
	c.reset(false, 100)
	buf := make([]byte, 64)
	for {
		n, err := c.read(&in, buf)
		body = append(body, buf[:n]...)
		if err == io.EOF {
			return body, append(bytes.Clone(in.pending()), src.b...), nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// FuzzAnswer holds our reading of an origin's header to net/http's.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{okAnswer, "HTTP/1.0 200\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nConnection: close, X-A\r\nX-A: 1\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n", "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var a answer
		n, err := a.scan(b)
		if n == 0 || err != nil {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b[:n])), nil)
		if err != nil {
			t.Fatalf("accepted, but net/http says %v: %q", err, b[:n])
		}
		if resp.StatusCode != a.status {
			t.Fatalf("net/http reads status %d, we %d", resp.StatusCode, a.status)
		}
		if !a.bodiless(false) && max(resp.ContentLength, -1) != max(a.length, -1) {
			t.Fatalf("net/http reads length %d, we %d: %q", resp.ContentLength, a.length, b[:n])
		}
		for i := range a.lines {
			l := &a.lines[i]
			if l.kind != kindKeep {
				continue
			}
			found := false
			for _, v := range resp.Header[http.CanonicalHeaderKey(string(a.name(l)))] {
				found = found || v == string(a.val(l))
			}
			if !found {
				t.Fatalf("net/http misses %q: %q", a.name(l), a.val(l))
			}
		}
	})
}

// FuzzValidValue compares the eight-at-a-time check with the plain one.
func FuzzValidValue(f *testing.F) {
	f.Add([]byte("text/html; charset=utf-8"))
	f.Add([]byte("\t\x7f\x80\xff\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if validValue(b) != validValueSlow(b) {
			t.Fatalf("%q", b)
		}
	})
}

package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/http1/http1test"
	"github.com/anteroom/anteroom/gateway/rawsocket"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

// tape is a connection that returns recorded bytes, in packets, and keeps the bytes written to it.
type tape struct {
	net.Conn // none: a call that is not one of these is a fault of the test
	in       http1test.Packets
	out      bytes.Buffer
	closed   bool
}

func (t *tape) Read(p []byte) (int, error)       { return t.in.Read(p) }
func (t *tape) Write(p []byte) (int, error)      { return t.out.Write(p) }
func (t *tape) Close() error                     { t.closed = true; return nil }
func (t *tape) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (t *tape) SetDeadline(time.Time) error      { return nil }
func (t *tape) SetReadDeadline(time.Time) error  { return nil }
func (t *tape) SetWriteDeadline(time.Time) error { return nil }

// once is a listener of one connection.
type once struct{ c net.Conn }

func (o once) Accept() (net.Conn, error) { return o.c, nil }
func (o once) Close() error              { return nil }
func (o once) Addr() net.Addr            { return &net.TCPAddr{} }

// play returns a client's connection that sends b.
func play(t *testing.T, b []byte, packet uint8) (net.Conn, *tape) {
	in := &tape{in: http1test.Packets{Bytes: b, Size: int(packet)*8 + 1}}
	c, err := wire.Listener(once{in}, wire.Limits{}, nil).Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c, in
}

// next reads the next request of a connection. nil: the connection ended, or the request was refused.
func next(c net.Conn, buf []byte) *wire.Request {
	if n, _ := c.Read(buf); n == 0 {
		return nil
	}
	var ctx fasthttp.RequestCtx
	ctx.Init2(c, wiretest.Quiet{}, false)
	if wire.CheckRequest(&ctx) != nil {
		return nil
	}
	return wire.RequestOf(&ctx)
}

// ours are the fields that only the gateway adds.
var ours = map[string]bool{"X-Forwarded-For": true, "X-Real-Ip": true, "X-Forwarded-Proto": true, "X-Forwarded-Host": true, "X-Waiting-Room-Session": true}

// FuzzStream reads a client's bytes as a connection does, request after request. net/http must read the accepted bytes as the
// same requests. net/http and fasthttp must read the bytes for the origin as that one request, without further bytes behind it
// and with only the client's and the gateway's fields. A request that breaks off must break off for the origin too.
func FuzzStream(f *testing.F) {
	for _, tc := range http1test.Refused {
		f.Add([]byte(tc.Raw), uint8(200))
	}
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /2 HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X, Y\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: 1\r\nZ: 2\r\n\r\n\r\nGET http://a?q HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: X-A, Upgrade, Cookie\r\nX-A: 1\r\nCookie: a=1;b\r\ncookie: c\r\nUpgrade: websocket\r\nTE: trailers\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost: [::1]:80\r\nExpect: 100-continue\r\nContent-Length: 2\r\nX-Forwarded-For: 1\r\nX_A: 2\r\nX-B:\t\xff \r\n\r\nhi",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: 0\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n4\r\nyou\r\n0\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhello",
	} {
		f.Add([]byte(s), uint8(0))
		f.Add([]byte(s), uint8(200))
	}
	o, err := New(Config{ID: "o", Servers: []string{"http://origin"}, PreserveHost: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte, packet uint8) {
		c, _ := play(t, bytes.Clone(b), packet)
		theirs := bufio.NewReaderSize(bytes.NewReader(b), 64<<10)
		buf := make([]byte, 16<<10)
		for {
			r := next(c, buf)
			if r == nil {
				return
			}
			h := r.Header()
			if bytes.HasPrefix(h.Raw, []byte("\r\n")) {
				theirs.Discard(2) // the empty line before the request
			}
			req, err := http.ReadRequest(theirs)
			if err != nil {
				if strings.Contains(err.Error(), "parse") {
					return // its URL parser refuses escapes that we pass on
				}
				t.Fatalf("let in, but net/http says %v: %q", err, h.Raw)
			}
			method, target, host := string(h.Method()), string(h.AppendTarget(nil)), string(h.Host())
			if req.Method != method || req.Host != host || req.ContentLength != h.Length || !strings.HasSuffix(req.RequestURI, string(h.Target())) {
				t.Fatalf("net/http reads %s %s for %s, %d: %q", req.Method, req.RequestURI, req.Host, req.ContentLength, h.Raw)
			}
			if host == "" {
				host = "origin"
			}
			x := &exchange{}
			x.begin(o, r, &Forward{Session: "s"})
			x.upgrade = string(h.AskedUpgrade())
			to := &tape{}
			to.out.Write(x.appendRequest(nil, "origin"))
			whole := true
			if !r.Body().Ended() {
				whole, err = x.copyBody(r.Body(), &originConn{link: rawsocket.Conn{Conn: to}})
				whole = whole && err == nil
			}
			sent := to.out.Bytes()
			if !whole {
				if again, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(sent))); err == nil {
					if body, err := io.ReadAll(again.Body); err == nil {
						t.Fatalf("broken off, but the origin has it whole: %q of %q, %q", body, b, sent)
					}
				}
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				t.Fatalf("whole, but net/http says %v: %q", err, b)
			}
			sameRequest(t, sent, method, target, host, body, req)
			if h.Length == 0 || method != "GET" && method != "HEAD" { // it expects no body there
				sameToFasthttp(t, sent, method, target, host, body)
			}
			r.Response().Begin()
		}
	})
}

// sameRequest asserts that net/http reads exactly one request in sent, equal to the received one.
func sameRequest(t *testing.T, sent []byte, method, target, host string, body []byte, came *http.Request) {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(sent))
	req, err := http.ReadRequest(r)
	if err != nil {
		if strings.Contains(err.Error(), "parse") {
			return
		}
		t.Fatalf("the origin's net/http says %v: %q", err, sent)
	}
	got, err := io.ReadAll(req.Body)
	if err != nil || !bytes.Equal(got, body) || r.Buffered() > 0 {
		t.Fatalf("the origin reads the body %q, %v, %d bytes behind it; want %q: %q", got, err, r.Buffered(), body, sent)
	}
	if req.Method != method || req.RequestURI != target || req.Host != host || req.Proto != "HTTP/1.1" {
		t.Fatalf("the origin reads %s %s for %s, want %s %s for %s: %q", req.Method, req.RequestURI, req.Host, method, target, host, sent)
	}
	for name, values := range req.Header {
		switch {
		case ours[name]:
			if len(values) != 1 {
				t.Fatalf("%s %d times: %q", name, len(values), sent)
			}
		case name == "Te" && len(values) == 1 && values[0] == "trailers", name == "Content-Length":
		case name == "Connection" || name == "Upgrade": // the options are ours, and stand for a line that is there
			var options []string
			if req.Header.Get("Te") != "" {
				options = append(options, "TE")
			}
			if req.Header.Get("Upgrade") != "" {
				options = append(options, "Upgrade")
			}
			if len(values) != 1 || req.Header.Get("Connection") != strings.Join(options, ", ") || req.Header.Get("Upgrade") != "" && method != "GET" {
				t.Fatalf("%s: %q in %q", name, values, sent)
			}
		case name == "Cookie" && len(values) == 1:
			for _, pair := range strings.Split(values[0], "; ") {
				if !strings.Contains(strings.Join(came.Header[name], ";"), pair) {
					t.Fatalf("cookie %q is new: %q", pair, sent)
				}
			}
		case http1.RequestKind([]byte(name)) != http1.KindKeep || http1.Imitates([]byte(name)):
			t.Fatalf("%s reached the origin: %q", name, sent)
		default:
			if strings.Join(values, "\n") != strings.Join(came.Header[name], "\n") {
				t.Fatalf("%s: %q became %q", name, came.Header[name], values)
			}
		}
	}
	for name := range req.Trailer {
		if http1.ForbiddenTrailer([]byte(name)) || ours[name] {
			t.Fatalf("trailer %s reached the origin: %q", name, sent)
		}
	}
}

// sameToFasthttp asserts the same for fasthttp.
func sameToFasthttp(t *testing.T, sent []byte, method, target, host string, body []byte) {
	t.Helper()
	if bytes.Contains(bytes.ToLower(sent), []byte("multipart/")) {
		return // it reads forms as what they hold
	}
	r := bufio.NewReaderSize(bytes.NewReader(sent), 64<<10)
	var req fasthttp.Request
	if err := req.Read(r); err != nil {
		t.Fatalf("fasthttp says %v: %q", err, sent)
	}
	if string(req.Header.Method()) != method || string(req.Header.RequestURI()) != target || string(req.Header.Host()) != host || !bytes.Equal(req.Body(), body) || r.Buffered() > 0 {
		t.Fatalf("fasthttp reads %s %s for %s, %q, %d bytes behind it: %q", req.Header.Method(), req.Header.RequestURI(), req.Header.Host(), req.Body(), r.Buffered(), sent)
	}
}

// FuzzAnswerStream reads an origin's bytes as an exchange does. net/http must read the same response in the origin's bytes and
// in the client's. A response that breaks off must break off for the client too. A connection that is kept for the next request
// must be at the last byte of the response.
func FuzzAnswerStream(f *testing.F) {
	for _, s := range []string{
		okAnswer, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + okAnswer, "HTTP/1.0 200\r\n\r\nok", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nConnection: close, X-A\r\nX-A: 1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X, Set-Cookie\r\n\r\n5;a \r\nhello\r\n0\r\nX: 1\r\nSet-Cookie: a\r\n\r\n", "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nSet-Cookie: a\r\nDate: x\r\nSet-Cookie: b\r\n\r\nhello", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n4 \r\nyou\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n",
	} {
		for asked := range uint8(4) {
			f.Add([]byte(s), uint8(200), asked)
		}
		f.Add([]byte(s), uint8(0), uint8(0))
	}
	o, err := New(Config{ID: "o", Servers: []string{"http://origin"}, PreserveHost: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte, packet, asked uint8) {
		method, version := "GET", "1.1"
		if asked&1 > 0 {
			method = "HEAD"
		}
		if asked&2 > 0 {
			version = "1.0"
		}
		c, client := play(t, []byte(method+" / HTTP/"+version+"\r\nHost: a\r\n\r\n"), 200)
		r := next(c, make([]byte, 16<<10))
		if r == nil {
			t.Fatal("the request is refused")
		}
		from := &tape{in: http1test.Packets{Bytes: bytes.Clone(b), Size: int(packet)*8 + 1}}
		oc := &originConn{link: rawsocket.Conn{Conn: from}, wait: originWait{slice: time.Minute}}
		oc.in.Source = oc
		defer oc.in.Release()
		x := exchangePool.New().(*exchange)
		x.begin(o, r, &Forward{OnlyWith: none})
		x.oc = oc
		if asked&4 > 0 {
			x.f.OnlyWith = nil // the header goes by way of fasthttp's
		}
		if x.readHeader() != nil || x.a.Status == 101 {
			return
		}
		x.relay()

		theirs := bytes.NewReader(b)
		br := bufio.NewReaderSize(theirs, 64<<10)
		want, err := finalAnswer(br, method)
		if err != nil {
			t.Fatalf("passed on, but net/http says %v: %q", err, b)
		}
		wantBody, wantErr := io.ReadAll(want.Body)
		cr := bufio.NewReader(&client.out)
		sent := client.out.String()
		got, err := finalAnswer(cr, method)
		if err != nil {
			t.Fatalf("the client's net/http says %v: %q", err, sent)
		}
		gotBody, gotErr := io.ReadAll(got.Body)
		switch {
		case x.outcome.Err != nil:
			if gotErr == nil && !client.closed {
				t.Fatalf("broken off (%v), but the client has it whole: %q of %q", x.outcome.Err, sent, b)
			}
			return
		case wantErr != nil && !strings.Contains(wantErr.Error(), "trailer"):
			t.Fatalf("passed on whole, but net/http says %v: %q", wantErr, b)
		case gotErr != nil || cr.Buffered() > 0:
			t.Fatalf("the client reads %q, %v, %d bytes behind it: %q", gotBody, gotErr, cr.Buffered(), sent)
		case got.StatusCode != want.StatusCode || !bytes.Equal(gotBody, wantBody):
			t.Fatalf("the client reads %d %q, net/http %d %q in %q", got.StatusCode, gotBody, want.StatusCode, wantBody, b)
		}
		if x.reuse && wantErr == nil {
			if at, end := len(b)-len(from.in.Bytes), len(b)-theirs.Len()-br.Buffered(); at != end {
				t.Fatalf("the connection is kept at byte %d of %q, the answer ends at %d", at, b, end)
			}
		}
		for name, values := range got.Header {
			switch {
			case name == "Connection" || name == "Content-Length" || name == "Date" && len(want.Header["Date"]) == 0:
			case http1.ResponseKind([]byte(name)) != http1.KindKeep && name != "Date":
				t.Fatalf("%s reached the client: %q", name, sent)
			case asked&4 == 0 && strings.Join(values, "\n") != strings.Join(want.Header[name], "\n"):
				t.Fatalf("%s: %q became %q", name, want.Header[name], values)
			}
		}
	})
}

// finalAnswer reads the first response that is not informational.
func finalAnswer(r *bufio.Reader, method string) (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil || resp.StatusCode >= 200 {
			return resp, err
		}
	}
}

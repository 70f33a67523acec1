package e2e

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Requests and responses arrive byte for byte, apart from the gateway's own headers.
func TestProxy_ForwardsUnchanged(t *testing.T) {
	t.Parallel()
	const date = "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
	grpcFrames := "\x00\x00\x00\x00\x05hello\x80\x00\x00\x00\x0fgrpc-status:0\r\n"
	multipart := "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"\xff.bin\"\r\nContent-Type: application/octet-stream\r\n\r\n\x00\r\n--x-\r\n\x1f\x8b\r\n--x--\r\nepilogue"
	ranges := "--y\r\nContent-Range: bytes 0-0/9\r\n\r\na\r\n--y\r\nContent-Range: bytes 8-8/9\r\n\r\ni\r\n--y--\r\n"
	rows := []struct {
		name                string
		method, lines, body string // the request's
		answer              string // the site's response
		head, said          string // the visitor's response, if it differs
	}{
		{"order, case, blanks, bytes that are no text", "GET", "user-agent: x\r\nX-B:2\r\nx-a: \xe9\xff\r\nX-Empty:\r\nX-B: 1\r\nAccept-Encoding: br\r\n", "",
			"HTTP/1.1 200 Fine\r\nset-cookie: a=1\r\nX-b:2\r\n" + date + "Set-Cookie: a=2; Path=/x\r\nX-Empty:\r\nx-B: \xe9\x80\r\nSet-cookie: a=1\r\nServer: shop\r\nContent-Length: 2\r\n\r\nok", "", ""},
		{"an encoded body", "GET", "Accept-Encoding: gzip\r\n", "", "HTTP/1.1 200 OK\r\n" + date + "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\nEtag: W/\"1\"\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00", "", ""},
		{"ranges", "GET", "Range: bytes=0-0,8-8\r\nIf-Range: \"e\"\r\n", "", "HTTP/1.1 206 Partial Content\r\n" + date + "Accept-Ranges: bytes\r\nContent-Type: multipart/byteranges; boundary=y\r\nContent-Length: " + itoa(len(ranges)) + "\r\n\r\n" + ranges, "", ""},
		{"a range that is none", "GET", "Range: bytes=99-\r\n", "", "HTTP/1.1 416 Range Not Satisfiable\r\n" + date + "Content-Range: bytes */9\r\nContent-Length: 0\r\n\r\n", "", ""},
		{"an upload in parts", "POST", "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: " + itoa(len(multipart)) + "\r\n", multipart, "HTTP/1.1 303 See Other\r\n" + date + "Location: /done?a=%2F\r\nContent-Length: 0\r\n\r\n", "", ""},
		{"gRPC-web", "POST", "Content-Type: application/grpc-web+proto\r\nX-Grpc-Web: 1\r\nContent-Length: 10\r\n", "\x00\x00\x00\x00\x05world", "HTTP/1.1 200 OK\r\n" + date + "Content-Type: application/grpc-web+proto\r\nContent-Length: " + itoa(len(grpcFrames)) + "\r\n\r\n" + grpcFrames, "", ""},
		{"gRPC-web as text", "POST", "Content-Type: application/grpc-web-text\r\nContent-Length: 16\r\n", "AAAAAAV3b3JsZA==", "HTTP/1.1 200 OK\r\n" + date + "Content-Type: application/grpc-web-text\r\nContent-Length: 8\r\n\r\nAAAAAAU=", "", ""},
		{"a body on GET", "GET", "Content-Length: 2\r\n", "hi", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 0\r\n\r\n", "", ""},
		{"a method of its own", "PURGE", "", "", "HTTP/1.1 299 \r\n" + date + "Content-Length: 0\r\n\r\n", "", ""},
		{"HEAD", "HEAD", "", "", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 12345\r\n\r\n", "", ""},
		{"HEAD of a chunked body", "HEAD", "", "", "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\n" + date + "\r\n", ""},
		{"204", "DELETE", "", "", "HTTP/1.1 204 No Content\r\n" + date + "\r\n", "", ""},
		{"204 with a length", "DELETE", "", "", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n" + date + "\r\n", "HTTP/1.1 204 No Content\r\n" + date + "\r\n", ""},
		{"204, chunked", "DELETE", "", "", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n" + date + "\r\n", "HTTP/1.1 204 No Content\r\n" + date + "\r\n", ""},
		{"304", "GET", "If-None-Match: \"e\"\r\n", "", "HTTP/1.1 304 Not Modified\r\n" + date + "Etag: \"e\"\r\n\r\n", "", ""},
		{"304 with a length", "GET", "If-None-Match: \"e\"\r\n", "", "HTTP/1.1 304 Not Modified\r\n" + date + "Etag: \"e\"\r\nContent-Length: 77\r\n\r\n", "", ""},
		{"hints and trailers", "GET", "TE: trailers\r\n", "", "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n" + date + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nX-Else: 2\r\nSet-Cookie: a=1\r\n\r\n",
			"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n", "2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"},
		{"a body up to the end", "GET", "", "", "HTTP/1.1 200 OK\r\n" + date + "\r\nok", "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\n\r\n", "2\r\nok\r\n0\r\n\r\n"},
	}
	got := make(chan string, 1)
	site := newRawSite(t, func(c *rawConn, head string) {
		n, err := strconv.Atoi(field(head, "X-Row"))
		if err != nil {
			t.Error(err)
			return
		}
		row := rows[n]
		body := make([]byte, len(row.body))
		if _, err := io.ReadFull(c.r, body); err != nil {
			t.Error(err)
		}
		got <- head + string(body)
		c.write(row.answer)
		if strings.HasPrefix(row.name, "a body up to") {
			_ = c.CloseWrite()
		}
	})
	g := start(t, setup{origin: site.url(), rooms: []string{room(admission(50, 50))}})
	pass := passOf(t, g)
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			row.lines += "X-Row: " + itoa(i) + "\r\n"
			c := dialRaw(t, g)
			c.write(row.method + " /%2F/a?b;c HTTP/1.1\r\nHost: shop.example\r\n" + pass + row.lines + "\r\n" + row.body)
			want := row.answer
			if row.head != "" {
				want = row.head + row.said
			}
			c.expect(want)

			// The origin has the same lines in the same order, then the gateway's own.
			request := <-got
			lines := strings.Replace(row.lines, "TE: trailers\r\n", "", 1)
			rest, ok := strings.CutPrefix(request, row.method+" /%2F/a?b;c HTTP/1.1\r\nHost: shop.example\r\n"+lines+"X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: shop.example\r\nX-Waiting-Room-Session: ")
			_, rest, _ = strings.Cut(rest, "\r\n")
			if lines != row.lines {
				rest = strings.TrimPrefix(rest, "TE: trailers\r\nConnection: TE\r\n")
			}
			if !ok || rest != "\r\n"+row.body {
				t.Errorf("the origin got %q", request)
			}
			// Only the next response follows on the connection.
			c.write("GET /enter HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
			if rest, err := io.ReadAll(c.r); err != nil || !strings.HasPrefix(string(rest), "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(string(rest), "\r\n\r\nin") {
				t.Errorf("the next answer is %q, %v", rest, err)
			}
		})
	}
}

// A response that sets a pass becomes private and is otherwise unchanged; a publicly cacheable response sets no pass.
func TestProxy_ResponseThatSetsPass(t *testing.T) {
	t.Parallel()
	const lines = "x-a: 1\r\nServer: shop\r\nset-cookie: a=1\r\nSet-Cookie: a=2\r\nContent-Type: text/plain\r\nX-Empty:\r\n"
	site := newRawSite(t, func(c *rawConn, head string) {
		switch {
		case strings.Contains(head, " /public "):
			c.write("HTTP/1.1 200 OK\r\n" + lines + "Cache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok")
		case strings.Contains(head, " /private "):
			c.write("HTTP/1.1 200 OK\r\n" + lines + "Content-Length: 2\r\n\r\nok")
		default:
			c.write("HTTP/1.1 200 OK\r\n" + lines + "Cache-Control: no-cache\r\nCache-Control: public\r\nExpires: Thu, 01 Jan 2037 00:00:00 GMT\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	g := start(t, setup{origin: site.url(), rooms: []string{room(admission(50, 50), "session: {ttl: 4s}")}})
	c := dialRaw(t, g)
	ask := func(target, pass string) (head string) {
		c.write("GET " + target + " HTTP/1.1\r\nHost: shop.example\r\n" + pass + "\r\n")
		head = c.answer(200)
		c.expect("ok")
		if rest, ok := strings.CutPrefix(head, "HTTP/1.1 200 OK\r\n"+lines); !ok || strings.Count(rest, "\r\nDate: ")+strings.Count(head, "\nDate: ") == 0 {
			t.Errorf("%s: %q", target, head)
		}
		return head
	}
	first := ask("/", "")
	if strings.Contains(first, "no-cache") || strings.Contains(first, "public") || strings.Contains(first, "Expires") || !strings.Contains(first, "Cache-Control: private, no-store\r\n") || !strings.Contains(first, "Set-Cookie: wr_sale_pass=") {
		t.Errorf("the first answer: %q", first)
	}
	pass := "X-Waiting-Room-Pass: " + field(first, "X-Waiting-Room-Pass") + "\r\n"
	if second := ask("/", pass); strings.Contains(second, "wr_sale") || !strings.Contains(second, "Cache-Control: no-cache\r\nCache-Control: public\r\nExpires: ") {
		t.Errorf("the second answer: %q", second)
	}
	// Past half its life the pass is renewed, but not beside what caches may keep.
	until(t, "the pass is renewed", func() bool {
		if public := ask("/public", pass); strings.Contains(public, "wr_sale") || strings.Contains(public, "X-Waiting-Room-Pass") || !strings.Contains(public, "Cache-Control: max-age=60\r\n") {
			t.Errorf("an answer for everybody: %q", public)
		}
		renewed := ask("/private", pass)
		return strings.Contains(renewed, "wr_sale_pass") && strings.Contains(renewed, "Cache-Control: private, no-store\r\n")
	})
}

// Events arrive as they are sent, also in the response that sets the pass and after every other timeout, until the gateway ends. A late
// response arrives too.
func TestProxy_StreamsResponses(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	site := newRawSite(t, func(c *rawConn, head string) {
		if strings.Contains(head, " /late ") {
			select {
			case <-time.After(4 * time.Second): // a long poll: the site is silent, then answers
			case <-t.Context().Done():
			}
			c.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
			return
		}
		c.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n")
		for {
			select {
			case e := <-next:
				c.write(strconv.FormatInt(int64(len(e)), 16) + "\r\n" + e + "\r\n")
			case <-t.Context().Done():
				return
			}
		}
	})
	g := start(t, setup{origin: site.url(), rooms: []string{room(admission(50, 50))},
		more: "limits: {header_timeout: 2s, body_idle: 2s, write_idle: 2s, idle: 2s}\n"})
	poll := dialRaw(t, g)
	poll.write("GET /late HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	c := dialRaw(t, g)
	c.write("GET /events HTTP/1.1\r\nHost: shop.example\r\nAccept: text/event-stream, */*\r\n\r\n")
	if head := c.answer(200); !strings.Contains(head, "Set-Cookie: wr_sale_pass=") || !strings.Contains(head, "\r\nContent-Type: text/event-stream\r\n") {
		t.Errorf("%q", head) // the header came before any event
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < 5*time.Second; {
		<-tick.C
		for _, e := range []string{"id: 1\ndata: x\n\n", ": a comment\n\n", "\n"} {
			next <- e
			c.expect(strconv.FormatInt(int64(len(e)), 16) + "\r\n" + e + "\r\n")
		}
	}
	poll.answer(200)
	poll.expect("late")
	g.signal(sigterm)
	if rest, err := io.ReadAll(c.r); len(rest) > 0 {
		t.Errorf("the stream ended with %q, %v; it has to be cut", rest, err)
	}
	if code := g.wait(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A tunnel counts as a connection, outlives the session that opened it, and ends with the gateway.
func TestTunnels(t *testing.T) {
	t.Parallel()
	site := newRawSite(t, func(c *rawConn, head string) {
		switch {
		case strings.Contains(head, " /refused "):
			c.write("HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nno")
		case strings.Contains(head, "\r\nUpgrade: websocket\r\n"):
			c.write("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nsec-websocket-protocol: b\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\nfirst")
			_, _ = io.Copy(c.TCPConn, c.r)
			c.write("last")
			_ = c.CloseWrite()
		default:
			c.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	g := start(t, setup{rooms: []string{room(admission(50, 50))},
		more: "origins: [{id: shop, servers: [\"" + site.url() + "\"], max_conns: 1, queue_timeout: 2s}]\n"})
	pass := passOf(t, g)
	const ask = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: a, b\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nSec-WebSocket-Version: 13\r\n"
	const up = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
	open := func() *rawConn {
		c := dialRaw(t, g)
		c.write("GET /socket HTTP/1.1\r\nHost: shop.example\r\n" + pass + up + ask + "\r\nbehind")
		if head := c.answer(101); head != "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nsec-websocket-protocol: b\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" {
			t.Errorf("%q", head)
		}
		c.expect("firstbehind")
		return c
	}

	refused := dialRaw(t, g)
	for range 2 { // the connection stays open
		refused.write("GET /refused HTTP/1.1\r\nHost: shop.example\r\n" + pass + up + "\r\n")
		if head := refused.answer(401); field(head, "WWW-Authenticate") != "Basic" {
			t.Errorf("%q", head)
		}
		refused.expect("no")
	}

	c := open()
	if head := site.requests()[2]; !strings.Contains(head, ask) || !strings.Contains(head, "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n") {
		t.Errorf("the origin got %q", head)
	}
	refused.write("GET / HTTP/1.1\r\nHost: shop.example\r\n" + pass + "\r\n")
	if head := refused.answer(503); field(head, "Retry-After") == "" {
		t.Errorf("beside a tunnel of max_conns 1: %q", head)
	}
	// The session may end; the open tunnel stays.
	_, claims := decode(t, strings.TrimSpace(strings.TrimPrefix(pass, "X-Waiting-Room-Pass: ")))
	adminOf(t, g).post("rooms/sale/sessions/"+claims.Sid+"/revoke", "").want(http.StatusNoContent)
	until(t, "the session is over", func() bool {
		again := dialRaw(t, g)
		again.write("GET /socket HTTP/1.1\r\nHost: shop.example\r\n" + pass + up + "Connection: close\r\n\r\n")
		head, err := again.readHead()
		return err == nil && strings.HasPrefix(head, "HTTP/1.1 503 ") && field(head, "X-Waiting-Room") != ""
	})
	c.write("ping")
	c.expect("ping")
	_ = c.CloseWrite()
	if rest, err := io.ReadAll(c.r); string(rest) != "last" || err != nil {
		t.Errorf("after the half-close: %q, %v", rest, err)
	}
	pass = passOf(t, g)
	c = open()
	g.signal(sigterm)
	if rest, _ := io.ReadAll(c.r); len(rest) > 0 {
		t.Errorf("%q", rest)
	}
	if code := g.wait(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

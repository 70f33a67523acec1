package e2e

import (
	"io"
	"regexp"
	"strings"
	"testing"
)

// badAnswers are malformed responses of an origin: the visitor gets 502, and the next request uses another connection.
var badAnswers = []class{
	{"F51 framing of an answer that reads in two ways", 502, "HTTP/1.1 200 OK\r\n$\r\n\r\n0\r\n\r\n", []string{
		"Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5\r\nContent-Length: 5", "Content-Length: 5, 5", "Content-Length: +5", "Content-Length: -5", "Content-Length: 0x5", "Content-Length: 05", "Content-Length:", "Content-Length: 21000000000000000000",
		"Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding: gzip", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity", "Transfer-Encoding: ",
		"Transfer-Encoding: \vchunked", "Transfer-Encoding:\r\n chunked", "Content-Length : 5", "Transfer-Encoding : chunked", "X-A: 1\r\n 2", "X-A: \x00", "X-A: 1\rX-B: 2", "X A: 1", "nonsense", ": 1", "X-A: 1\nX-B: 2"}},
	{"F51 an answer of another version, or none", 502, "$", []string{
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.2 200 OK\r\n\r\n", "HTTP/0.9 200 OK\r\n\r\n", "hello, I am no HTTP", "HTTP/1.1 099 No\r\n\r\n", "HTTP/1.1 2x0 No\r\n\r\n", "HTTP/1.1 20 No\r\n\r\n", "HTTP/1.1 2000 No\r\n\r\n", "HTTP/1.1  200 OK\r\n\r\n",
		"HTTP/1.1 200 O\x00K\r\n\r\n", "HTTP/1.1 200 OK\nContent-Length: 0\n\n", "\r\nHTTP/1.1 200 OK\r\n\r\n", "http/1.1 200 OK\r\n\r\n"}},
	{"F58 interim answers without end", 502, "$" + smallAnswer, []string{strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 200)}},
	{"F58 an interim answer with a body", 502, "HTTP/1.1 103 Early Hints\r\n$\r\n\r\n" + smallAnswer, []string{"Content-Length: 100", "Transfer-Encoding: chunked"}},
	{"F62 a header that is too large", 502, "HTTP/1.1 200 OK\r\n$\r\nContent-Length: 0\r\n\r\n", []string{"X-A: " + strings.Repeat("a", 64<<10), strings.TrimSuffix(strings.Repeat("X-A: 1\r\n", 1000), "\r\n")}},
	{"F78 a change of protocol that was not asked for", 502, "HTTP/1.1 101 Switching Protocols\r\n$\r\n\r\nhello", []string{"Connection: Upgrade\r\nUpgrade: websocket", "Upgrade: h2c", "X: 1"}},
}

func tryBadAnswers(t *testing.T, e *edge) {
	inputs := 0
	for _, c := range badAnswers {
		t.Run(c.name, func(t *testing.T) {
			for _, in := range c.in {
				inputs++
				e.origin.script(strings.Replace(c.form, "$", in, 1), c.form == "$") // a body without a length ends with the connection
				before := e.origin.mark()
				conn := e.dial(t)
				conn.send(e.through().of(lineGet + "\r\n"))
				if head, body := conn.whole("GET"); code(head) != "502" || field(head, "Cache-Control") != "no-store" || strings.Contains(head, "X-A") {
					t.Errorf("%.200q is passed on as\n%s%s", in, head, body)
				}
				if _, begun := e.origin.since(before); begun != 1 {
					t.Errorf("%.200q: the site was asked %d times", in, begun)
				}
				conn.goesOn(e)
			}
		})
	}
	t.Logf("%d answers refused", inputs)
}

// reply is a response of the site, and the bytes that the client receives.
type reply struct {
	name, ask, answer string
	head, body        string
	ends              bool // the client's connection
}

const askGet, askHead, ask10 = lineGet + "\r\n", "HEAD PATH HTTP/1.1\r\nHost: a\r\n\r\n", "GET PATH HTTP/1.0\r\nHost: a\r\n\r\n"

var replies = []reply{
	{"F52 bytes beyond the length", askGet, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok", false},
	{"F52 bytes beyond the last chunk", askGet, "HTTP/1.1 200 OK\r\n" + coded + "\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "HTTP/1.1 200 OK\r\n" + coded + "\r\n", "ok", false},
	{"F55 HEAD", askHead, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "", false},
	{"F55 a body after HEAD", askHead, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", "", false},
	{"F55 chunks after HEAD", askHead, "HTTP/1.1 200 OK\r\n" + coded + "\r\n4\r\nevil\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "", false},
	{"F55 204", askGet, "HTTP/1.1 204 No Content\r\nX: 1\r\n\r\n", "HTTP/1.1 204 No Content\r\nX: 1\r\n\r\n", "", false},
	{"F55 204 with a length", askGet, "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nevil", "HTTP/1.1 204 No Content\r\n\r\n", "", false},
	{"F55 204 in chunks", askGet, "HTTP/1.1 204 No Content\r\n" + coded + "\r\n4\r\nevil\r\n0\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n", "", false},
	{"F55 304", askGet, "HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\nETag: \"x\"\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 1000\r\n\r\n", "", false},
	{"F55 a body after 304", askGet, "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nevil", "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n", "", false},
	{"F56 a body that ends with the connection", askGet, "HTTP/1.1 200 OK\r\n\r\nok", "HTTP/1.1 200 OK\r\n" + coded + "\r\n", "ok", false},
	{"F56 an origin of HTTP/1.0", askGet, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nok", "HTTP/1.1 200 OK\r\n" + coded + "\r\n", "ok", false},
	{"F57 chunks", askGet, "HTTP/1.1 200 OK\r\n" + coded + "\r\n1;a\r\no\r\n01\r\nk\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\n" + coded + "\r\n", "ok", false},
	{"F58 an interim answer that the client did not ask for", askGet, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n" + smallAnswer, "HTTP/1.1 200 OK\r\nX-Origin: yes\r\nContent-Length: 2\r\n\r\n", "ok", false},
	{"F58 early hints for HTTP/1.0", ask10, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + smallAnswer, "HTTP/1.1 200 OK\r\nX-Origin: yes\r\nContent-Length: 2\r\nConnection: close\r\n\r\n", "ok", true},
	{"F59 trailers that were not announced", askGet, "HTTP/1.1 200 OK\r\n" + coded + "\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nSet-Cookie: a=1\r\n\r\n", "HTTP/1.1 200 OK\r\n" + coded + "\r\n", "ok", false},
	{"F61 cookies of one name", askGet, "HTTP/1.1 200 OK\r\nset-cookie: a=1; Path=/\r\nX: 1\r\nSet-Cookie: a=2; Path=/x\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nset-cookie: a=1; Path=/\r\nX: 1\r\nSet-Cookie: a=2; Path=/x\r\nContent-Length: 0\r\n\r\n", "", false},
	{"F63 chunks for HTTP/1.0", ask10, "HTTP/1.1 200 OK\r\n" + coded + "\r\n2\r\nok\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "ok", true},
	{"F63 HTTP/1.0 that is kept", strings.Replace(ask10, "\r\n\r\n", "\r\nConnection: keep-alive\r\n\r\n", 1), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n", "ok", false},
	{"F64 what is encoded, or a part", askGet, "HTTP/1.1 206 Partial Content\r\nContent-Encoding: br\r\nETag: W/\"x\"\r\nContent-Range: bytes 1-2/9\r\nAccept-Ranges: bytes\r\nVary: Accept-Encoding\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 206 Partial Content\r\nContent-Encoding: br\r\nETag: W/\"x\"\r\nContent-Range: bytes 1-2/9\r\nAccept-Ranges: bytes\r\nVary: Accept-Encoding\r\nContent-Length: 2\r\n\r\n", "ok", false},
	{"F65 what the site says of itself", askGet, "HTTP/1.1 418 I'm a teapot\r\nserver: shop\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\ncontent-type: x/y\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 418 I'm a teapot\r\nserver: shop\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\ncontent-type: x/y\r\nContent-Length: 0\r\n\r\n", "", false},
	{"F65 what it does not say", askGet, "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "", false},
	{"F39 what the site's Connection names", askGet, "HTTP/1.1 200 OK\r\nConnection: X-Hop, Content-Length, keep-alive\r\nconnection: x-other\r\nX-Hop: 1\r\nx-OTHER: 2\r\nX-End: 3\r\nKeep-Alive: timeout=5\r\nProxy-Connection: x\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nX-End: 3\r\nContent-Length: 2\r\n\r\n", "ok", false},
	{"F42 the site's Connection: close", askGet, "HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok", false},
	{"F77 a change of protocol that the site declines", lineGet + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno", "HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\n", "no", false},
}

var ourDate = regexp.MustCompile(`\r\nDate: [^\r]+`)

// tryReplies sends unusual and valid responses. The next request receives its own response, never the rest of another.
func tryReplies(t *testing.T, e *edge) {
	for _, r := range replies {
		t.Run(r.name, func(t *testing.T) {
			e.origin.script(r.answer, strings.HasPrefix(r.name, "F56"))
			conn := e.dial(t)
			raw := e.through().of(r.ask)
			conn.send(raw)
			head, body := conn.whole(methodOf(raw))
			if !strings.Contains(r.answer, "\r\ndate:") { // RFC 9110 §6.6.1: then the gateway adds it
				date := ourDate.FindString(head)
				if date == "" {
					t.Errorf("no Date in %q", head)
				}
				head = strings.Replace(head, date, "", 1)
			}
			if head != r.head || body != r.body {
				t.Errorf("the client has\n%q %q\nwant\n%q %q", head, body, r.head, r.body)
			}
			after(t, e, conn, r.ends)
		})
	}
}

// tryCutAnswers tests F54: a truncated response of the site is truncated for the client.
func tryCutAnswers(t *testing.T, e *edge) {
	for _, row := range []struct{ name, ask, answer, most string }{
		{"by length", askGet, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", "hello"},
		{"in a chunk", askGet, "HTTP/1.1 200 OK\r\n" + coded + "\r\na\r\nhello", "5\r\nhello\r\n"},
		{"between chunks", askGet, "HTTP/1.1 200 OK\r\n" + coded + "\r\n5\r\nhello\r\n", "5\r\nhello\r\n"},
		{"before the last line", askGet, "HTTP/1.1 200 OK\r\n" + coded + "\r\n5\r\nhello\r\n0\r\n", "5\r\nhello\r\n"},
		{"a broken size", askGet, "HTTP/1.1 200 OK\r\n" + coded + "\r\n5\r\nhello\r\n0x0\r\n\r\n", "5\r\nhello\r\n"},
		{"data beyond its size", askGet, "HTTP/1.1 200 OK\r\n" + coded + "\r\n4\r\nhello\r\n0\r\n\r\n", "4\r\nhell\r\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			e.origin.script(row.answer, true)
			conn := e.dial(t)
			conn.send(e.through().of(row.ask))
			var b strings.Builder
			_, _ = io.Copy(&b, conn) // ends with the connection, perhaps with a reset
			head, rest, _ := strings.Cut(b.String(), "\r\n\r\n")
			if !strings.HasPrefix(head, "HTTP/1.1 200 OK") || rest != row.most {
				t.Errorf("the client has %q, want at most %q", b.String(), row.most)
			}
		})
	}
	t.Run("in the header", func(t *testing.T) {
		e.origin.script("HTTP/1.1 200 OK\r\nContent-Le", true)
		conn := e.dial(t)
		conn.send(e.through().of(askGet))
		if head, _ := conn.whole("GET"); code(head) != "502" {
			t.Errorf("passed on as\n%s", head)
		}
		conn.goesOn(e)
	})
}

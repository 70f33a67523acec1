package e2e

import (
	"slices"
	"strings"
	"testing"
)

// passage is a request that is let in, and what the site then gets, byte for byte: site with the length where it was sent,
// what the gateway says itself, the lines of framing, and the body.
type passage struct {
	name, raw                   string
	site, length, framing, body string
	ends                        bool // the connection ends after the response
	lost                        bool // the gateway has no endpoint at this path
}

const (
	lineGet  = "GET PATH HTTP/1.1\r\nHost: a\r\n"
	linePost = "POST PATH HTTP/1.1\r\nHost: a\r\n"
	coded    = "Transfer-Encoding: chunked\r\n"
)

// kept is a GET whose header lines are all forwarded; of dropped none are.
func kept(name, lines string) passage {
	return passage{name: name, raw: lineGet + lines + "\r\n", site: lineGet + lines}
}

func dropped(name, lines string) passage {
	return passage{name: name, raw: lineGet + lines + "X: 1\r\n\r\n", site: lineGet + "X: 1\r\n"}
}

func target(name, tail string) passage {
	line := strings.Replace(lineGet, "PATH", "PATH"+tail, 1)
	return passage{name: name, raw: line + "\r\n", site: line, lost: tail[0] == '/'}
}

func host(name, host string) passage {
	return passage{name: name, raw: "GET PATH HTTP/1.1\r\nHost: " + host + "\r\nLINE\r\n", site: "GET PATH HTTP/1.1\r\nHost: " + host + "\r\n"}
}

// counted and chunked are POSTs with a body; chunked ones reach the site as one chunk.
func counted(name, lines, body string) passage {
	return passage{name: name, raw: linePost + lines + "Content-Length: " + itoa(len(body)) + "\r\n\r\n" + body, site: linePost + lines, length: "Content-Length: " + itoa(len(body)) + "\r\n", body: body}
}

func inChunks(name, chunks, data string) passage {
	p := passage{name: name, raw: linePost + coded + "\r\n" + chunks, site: linePost, framing: coded, body: "0\r\n\r\n"}
	if data != "" {
		p.body = hexOf(len(data)) + "\r\n" + data + "\r\n" + p.body
	}
	return p
}

var hidden = strings.Repeat("x", 8<<10) + smuggled

var passed = []passage{
	{name: "F2 a request in a body, by length", raw: linePost + "Content-Length: " + itoa(len(smuggled)) + "\r\n\r\n" + smuggled, site: linePost, length: "Content-Length: " + itoa(len(smuggled)) + "\r\n", body: smuggled},
	inChunks("F2 a request in a body, in chunks", hexOf(len(smuggled))+"\r\n"+smuggled+"\r\n0\r\n\r\n", smuggled),
	counted("F7 a length", "", "helloworld"),
	{name: "F7 no length at all", raw: linePost + "\r\n", site: linePost},
	counted("F7 the length 0", "", ""),
	{name: "F8 a transfer coding in another case", raw: linePost + "transfer-encoding: \tCHUNKED \r\n\r\n0\r\n\r\n", site: linePost, framing: coded, body: "0\r\n\r\n"},
	kept("F12 names of every sort of token", "!#$%&'*+-.^_`|~0aZ: 1\r\nx: 2\r\n"),
	kept("F13 tabs, high bytes and blanks in a value", "X-A:\t\xc3\xa4 \xff\x80\tb\t \r\nX-B:1\r\nX-C:\r\nX-D:  \r\n"),
	kept("F16 underscores and dots of other names", "X_Custom: 1\r\nContent_Type: text/plain\r\nx.y: 2\r\nX_Forwarded: 3\r\n"),
	inChunks("F17 chunk sizes in every case, with zeros", "000000000000005\r\nhello\r\nB\r\n hello worl\r\n00a\r\n0123456789\r\n000\r\n\r\n", "hello hello worl0123456789"),
	inChunks("F18 chunk extensions", "5;a\r\nhello\r\n2;b=c;d=\"e f\"\r\n, \r\n3;g=\t\r\nyou\r\n0;last\r\n\r\n", "hello, you"),
	counted("F20 a long body that ends in a request, by length", "", hidden),
	inChunks("F20 a long body that ends in a request, in chunks", hexOf(len(hidden))+"\r\n"+hidden+"\r\n0\r\n\r\n", hidden),
	counted("F21 multipart with an epilogue", "Content-Type: multipart/form-data; boundary=b\r\n", "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n"+smuggled),
	{name: "F22 GET with a body", raw: lineGet + "Content-Length: " + itoa(len(smuggled)) + "\r\n\r\n" + smuggled, site: lineGet, length: "Content-Length: " + itoa(len(smuggled)) + "\r\n", body: smuggled},
	{name: "F22 GET with chunks", raw: lineGet + coded + "\r\n2\r\nhi\r\n0\r\n\r\n", site: lineGet, framing: coded, body: "2\r\nhi\r\n0\r\n\r\n"},
	{name: "F22 HEAD with a body", raw: "HEAD PATH HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", site: "HEAD PATH HTTP/1.1\r\nHost: a\r\n", length: "Content-Length: 5\r\n", body: "hello"},
	{name: "F22 OPTIONS with a body", raw: "OPTIONS PATH HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", site: "OPTIONS PATH HTTP/1.1\r\nHost: a\r\n", length: "Content-Length: 5\r\n", body: "hello"},
	{name: "F24 trailers that were not announced", raw: linePost + coded + "\r\n2\r\nhi\r\n0\r\nX-Sum: 1\r\nContent-Length: 5\r\n\r\n", site: linePost, framing: coded, body: "2\r\nhi\r\n0\r\n\r\n"},
	{name: "F24 trailers that may travel, and others", raw: linePost + coded + "Trailer: X-Sum, x-more\r\nTrailer: X-None\r\n\r\n2\r\nhi\r\n0\r\n" +
		"X-Sum: 1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nHost: b\r\nAuthorization: x\r\nCookie: a=1\r\nX-Forwarded-For: 192.0.2.1\r\nX_Forwarded_For: 192.0.2.1\r\nContent_Length: 5\r\nX-Waiting-Room-Session: s\r\nConnection: close\r\nX-Else: 2\r\nX-MORE:3\r\n\r\n",
		site: linePost, framing: coded + "Trailer: X-Sum, x-more, X-None\r\n", body: "2\r\nhi\r\n0\r\nX-Sum: 1\r\nX-MORE:3\r\n\r\n"},
	{name: "F26 an expectation beside its body", raw: linePost + "Expect: 100-Continue\r\nContent-Length: 5\r\n\r\nhello", site: linePost, length: "Content-Length: 5\r\n", body: "hello"},
	{name: "F26 an expectation without a body", raw: lineGet + "Expect: 100-continue\r\n\r\n", site: lineGet},
	{name: "F26 an expectation on HTTP/1.0", raw: "POST PATH HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello", site: linePost, length: "Content-Length: 5\r\n", body: "hello", ends: true},
	{name: "F26 any expectation on HTTP/1.0", raw: "GET PATH HTTP/1.0\r\nHost: a\r\nExpect: else\r\n\r\n", site: lineGet, ends: true},
	{name: "F30 an absolute target", raw: "GET http://aPATH?q HTTP/1.1\r\nHost: a\r\n\r\n", site: "GET PATH?q HTTP/1.1\r\nHost: a\r\n"},
	{name: "F30 an absolute target in capitals", raw: "GET HTTPS://APATH HTTP/1.1\r\nHost: a\r\n\r\n", site: lineGet},
	{name: "F30 an absolute target with a port", raw: "GET http://a:8080PATH HTTP/1.1\r\nHost: a:8080\r\nLINE\r\n", site: "GET PATH HTTP/1.1\r\nHost: a:8080\r\n"},
	target("F31 slashes and a host behind them", "//evil.example/x"),
	target("F31 a URL in the path", "/http://u@evil.example/"),
	target("F32 escaped slashes stay as they are", "/a%2Fb"),
	target("F32 escaped backslashes stay as they are", "/c%5cd"),
	target("F32 escapes stay as they are", "/%0d%0a/e"),
	target("F32 dots stay as they are", "/./y/"),
	target("F32 escaped dots stay as they are", "/y/%2e%2E/z"),
	target("F32 slashes stay as they are", "/z//w/"),
	target("F32 parameters stay as they are", "/v;p=1/"),
	target("F33 odd queries stay as they are", "?a=1;b=2&c=%zz&%&=&&a=%00&d=http://x/?y=/../z&"+strings.Repeat("p=1&", 1000)),
	target("F34 what browsers do not escape", "/{a}|b^c`d'e!$&()*,:@~?q={[1]}|^`"),
	{name: "F35 methods of all sorts", raw: "PURGE PATH HTTP/1.1\r\nHost: a\r\n\r\n", site: "PURGE PATH HTTP/1.1\r\nHost: a\r\n"},
	{name: "F35 a method in lower case is another", raw: "get PATH HTTP/1.1\r\nHost: a\r\n\r\n", site: "get PATH HTTP/1.1\r\nHost: a\r\n"},
	{name: "F36 HTTP/1.0", raw: "GET PATH HTTP/1.0\r\nHost: a\r\n\r\n", site: lineGet, ends: true},
	{name: "F36 HTTP/1.0 that is kept", raw: "POST PATH HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", site: linePost, length: "Content-Length: 5\r\n", body: "hello"},
	{name: "F36 an empty line before the request", raw: "\r\n" + lineGet + "\r\n", site: lineGet},
	target("F37 a target of 7.9 KB", "?"+strings.Repeat("a", 7900)),
	kept("F37 90 headers", strings.Repeat("X-A: 1\r\n", 90)),
	kept("F37 a header of 15 KB", strings.Repeat("X-A: "+strings.Repeat("a", 993)+"\r\n", 14)),
	dropped("F39 what Connection names", "Connection: X-A, x-b\r\nX-A: 1\r\nCONNECTION:X-C,,\r\nx-B: 2\r\nx-c: 3\r\n"),
	dropped("F40 Connection names what is ours to say", "Connection: X-Forwarded-For, Host, Content-Length, X-Waiting-Room-Session, X-Real-IP\r\n"),
	{name: "F40 Connection names the framing", raw: linePost + "Connection: Content-Length, close\r\nContent-Length: 5\r\n\r\nhello", site: linePost, length: "Content-Length: 5\r\n", body: "hello", ends: true},
	{name: "F40 Connection names the coding", raw: linePost + "Connection: Transfer-Encoding\r\n" + coded + "\r\n0\r\n\r\n", site: linePost, framing: coded, body: "0\r\n\r\n"},
	dropped("F41 hop-by-hop headers", "Connection:\r\nConnection: keep-alive, ,\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nProxy-Authenticate: x\r\nTE: gzip\r\nTrailer: X-Sum\r\nProxy: http://evil.example\r\n"),
	{name: "F41 TE: trailers", raw: lineGet + "TE: gzip, Trailers;q=1, trailers\r\nConnection: TE\r\n\r\n", site: lineGet, framing: "TE: trailers\r\nConnection: TE\r\n"},
	{name: "F42 Connection: Close", raw: lineGet + "Connection: Close\r\n\r\n", site: lineGet, ends: true},
	{name: "F42 Connection: x, close", raw: lineGet + "Connection: x ,\tclose\r\n\r\n", site: lineGet, ends: true},
	{name: "F42 close, then keep-alive", raw: lineGet + "Connection: close\r\nConnection: keep-alive\r\n\r\n", site: lineGet, ends: true},
	dropped("F43 addresses that a stranger tells", "X-Forwarded-For: 192.0.2.1\r\nx-forwarded-for: 192.0.2.2, 192.0.2.3\r\n"),
	dropped("F44 other things that a stranger tells", "X-Real-IP: 192.0.2.1\r\nForwarded: for=192.0.2.1;host=b;proto=https\r\nX-Forwarded-Host: b\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Prefix: /x\r\nx-forwarded-anything: 1\r\n"),
	kept("F47 a User-Agent, and nothing where there is none", "user-agent: x\r\n"),
	kept("F48 repeated headers, in order and case", "X-B: 1\r\nx-a: 2\r\nX-b: 3\r\nACCEPT: */*\r\naccept: text/json\r\n"),
	{name: "F48 cookies on several lines, and the room's own", raw: lineGet + "Cookie: a=1;b=2\r\nX: 1\r\ncookie: c=\"3\"; ; wr_in_pass=forged; __Host-wr_other_ticket=x;a=4; wr_mine=5\r\nCookie: wr_out_nonce=x\r\n\r\n",
		site: lineGet + "Cookie: a=1;b=2; c=\"3\"; ;a=4; wr_mine=5\r\nX: 1\r\n"},
	dropped("F49 headers that are the gateway's", "X-Waiting-Room-Session: forged\r\nX-Waiting-Room-Pass: forged\r\nx-waiting-room-token: forged\r\nX-WAITING-ROOM-ANYTHING: 1\r\n"),
	dropped("F49 headers that would lead elsewhere behind the gateway", "X-Original-URL: /out/x\r\nX-Rewrite-URL: /out/x\r\nScript-Name: /in\r\nX-Script-Name: /in\r\nPath-Info: /out/x\r\n"),
	host("F50 a Host with a port", "Shop.Example:8080"),
	host("F50 a Host with a dot", "a.example."),
	host("F50 a Host that is an address", "[2001:DB8::1]:443"),
	dropped("F78 an upgrade without Connection", "Upgrade: websocket\r\n"),
	dropped("F78 an upgrade to HTTP/2", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"),
	dropped("F78 an upgrade to HTTP/2 among others", "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n"),
	dropped("F78 two upgrades", "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: echo\r\n"),
	dropped("F78 an upgrade to what no token is", "Connection: Upgrade\r\nUpgrade: web\xffsocket\r\n"),
	{name: "F78 an upgrade of a request with a body", raw: linePost + "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\nhello", site: linePost, length: "Content-Length: 5\r\n", body: "hello"},
	{name: "F78 an upgrade on HTTP/1.0", raw: "GET PATH HTTP/1.0\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", site: lineGet, ends: true},
}

// apartFrom lists the gateway's own statuses for a request that would pass: by method, the last for all other methods.
var apartFrom = map[string]map[string]string{
	"waiting":               {"GET": "202", "HEAD": "202", "": "503"},
	"waiting with a ticket": {"GET": "202", "HEAD": "202", "": "503"},
	"status":                {"GET": "200", "HEAD": "200", "OPTIONS": "204", "": "405"},
	"tickets":               {"POST": "200", "OPTIONS": "204", "": "405"},
	"claim":                 {"POST": "409", "OPTIONS": "204", "": "405"},
	"events":                {"GET": "200", "OPTIONS": "204", "": "405"},
	"page":                  {"GET": "200", "HEAD": "200", "OPTIONS": "204", "": "405"},
	"unknown room":          {"": "404"},
}

// tryPassed sends unusual and valid requests. The site receives exactly one request with exactly these bytes. A request that waits, or is
// for the gateway itself, receives a response of the gateway. In either case the next request on the connection is never read from a
// body.
func tryPassed(t *testing.T, e *edge) {
	tries := 0
	for _, p := range passed {
		t.Run(p.name, func(t *testing.T) {
			w := e.through()
			tries++
			raw := w.of(p.raw)
			site := strings.ReplaceAll(p.site, "PATH", w.path)
			want := site + p.length + e.own(field(site, "Host"), p.framing) + p.body
			conn := e.dial(t)
			pass(t, e, conn, methodOf(raw), want, raw)
			after(t, e, conn, p.ends)
			if p.name[:3] != "F37" { // cut at a few places: F28
				for _, at := range []int{1, 5, len(raw) / 3, strings.Index(raw, "\r\n\r\n") + 3, len(raw) - 3, len(raw) - 1} {
					conn := e.dial(t)
					pass(t, e, conn, methodOf(raw), "", raw[:at], raw[at:])
					after(t, e, conn, p.ends)
				}
			}
			for _, w := range e.apart() {
				tries++
				apart(t, e, w, p)
			}
		})
	}
	t.Logf("%d inputs in %d tries passed", len(passed), tries)
}

// pass sends a request, or the rest of one, and checks what the site receives.
func pass(t *testing.T, e *edge, conn *edgeConn, method, want string, raw ...string) {
	t.Helper()
	before := e.origin.mark()
	for _, part := range raw[:len(raw)-1] {
		conn.send(part)
	}
	go conn.send(raw[len(raw)-1])
	head, body := conn.whole(method)
	if code(head) != "200" || body != "ok" && method != "HEAD" {
		t.Fatalf("%.300q is answered with\n%s%s", raw, head, body)
	}
	got, begun := e.origin.since(before)
	if begun != 1 || len(got) != 1 || want != "" && got[0] != want {
		t.Errorf("the site got %d requests: %.3000q\nwant one:\n%.3000q", begun, got, want)
	}
}

func after(t *testing.T, e *edge, conn *edgeConn, ends bool) {
	t.Helper()
	if ends {
		conn.ended()
	} else {
		conn.goesOn(e)
	}
}

func apart(t *testing.T, e *edge, w way, p passage) {
	t.Helper()
	raw := w.of(p.raw)
	method := methodOf(raw)
	want, ok := apartFrom[w.name][method]
	if !ok {
		want = apartFrom[w.name][""]
	}
	if w.name == "tickets" && method == "POST" && !slices.Contains([]string{"", "0\r\n\r\n"}, p.body) {
		want = "422" // not JSON
	}
	if p.lost && strings.HasPrefix(w.path, "/.waiting-room/") {
		want = "404"
	}
	if strings.Contains(raw, "Upgrade: ") && strings.HasPrefix(w.name, "waiting") {
		want = "503"
	}
	before := e.origin.mark()
	conn := e.dial(t)
	go conn.send(raw)
	if w.name == "events" && want == "200" {
		if head := conn.head(); code(head) != want {
			t.Errorf("%s: %.200q: want %s, have\n%s", w.name, raw, want, head)
		}
	} else {
		head, body := conn.whole(method)
		if code(head) != want && !(want == "422" && code(head) == "413") {
			t.Errorf("%s: %.200q: want %s, have\n%s%s", w.name, raw, want, head, body)
		}
		if ends := p.ends || field(head, "Connection") == "close"; ends {
			conn.ended()
		} else {
			conn.goesOn(e)
			before.begun++
		}
	}
	if _, begun := e.origin.since(before); begun != 0 {
		t.Errorf("%s: %.200q reached the site", w.name, raw)
	}
}

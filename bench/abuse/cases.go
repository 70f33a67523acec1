package main

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// want is the expected result of a case.
type want int

const (
	refuse want = iota // the origin receives no complete request; the client is refused or disconnected
	clean              // the gateway has to refuse it; other servers may also forward it with one reading only
	either             // refused, or forwarded with one reading only
	serve              // it has to be served: a server may not refuse everything
	bad                // the origin's response is malformed: the client receives a 5xx, an incomplete response, or one with one reading and the same content
)

// abuse is one case. In texts, § is replaced with the case's number and ¶ with the header line of the pass.
type abuse struct {
	name   string
	want   want
	send   string
	answer string // the origin's response, instead of its usual one
	absent string // must not be in a header that the origin receives
	body   string // of what the origin (bad: the client) receives, if it receives something
	stop   bool   // the client closes its side after sending
}

const (
	host     = "Host: site.test\r\n"
	tags     = "X-Case: §\r\n¶"
	smuggled = "GET /smuggled HTTP/1.1\r\n" + host + tags + "\r\n"
)

// get and post return requests that are valid except for the given lines.
func get(lines string) string { return "GET /case-§ HTTP/1.1\r\n" + host + tags + lines + "\r\n" }
func post(lines, body string) string {
	return "POST /case-§ HTTP/1.1\r\n" + host + tags + lines + "\r\n" + body
}

// line returns a request that is valid except for its first line, hosted one except for its Host.
func line(first string) string   { return first + "\r\n" + host + tags + "\r\n" }
func hosted(hosts string) string { return "GET /case-§ HTTP/1.1\r\n" + hosts + tags + "\r\n" }

// chunked returns a request that is valid except for its body.
func chunked(body string) string { return post("Transfer-Encoding: chunked\r\n", body) }

// cases returns all cases.
func cases() (all []abuse) {
	add := func(c ...abuse) { all = append(all, c...) }

	for _, v := range []string{"+5", "-1", "-0", "0x5", "0o5", "1_0", "1 0", "", "5.", "5\x0b", "5;", "21000000000000000000", "18446744073709551621", "99999999999999999999999999"} {
		add(abuse{name: fmt.Sprintf("Content-Length: %q", v), want: refuse, send: post("Content-Length: "+v+"\r\n", "hello")})
	}
	add(
		abuse{name: "two different lengths", want: refuse, send: post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!")},
		abuse{name: "two equal lengths", want: either, send: post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), body: "hello"},
		abuse{name: "Content-Length: 5, 5", want: either, send: post("Content-Length: 5, 5\r\n", "hello"), body: "hello"},
		abuse{name: "Content-Length: 5, 10", want: refuse, send: post("Content-Length: 5, 10\r\n", "hello")},
		abuse{name: "Content-Length: 005", want: either, send: post("Content-Length: 005\r\n", "hello"), body: "hello"},
		abuse{name: "length, then chunked", want: either, send: post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+smuggled)},
		abuse{name: "chunked, then length", want: either, send: post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"+smuggled)},
		abuse{name: "CL.TE with a request in the body", want: either, send: post("Content-Length: 400\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+smuggled)},
		abuse{name: "TE.CL with a request in a chunk", want: either, send: post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", "5c\r\n"+strings.Repeat("x", 92)+"\r\n0\r\n\r\n"+smuggled)},
		abuse{name: "two Transfer-Encodings", want: either, send: post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")},
		abuse{name: "Transfer-Encoding on HTTP/1.0", want: either, send: "POST /case-§ HTTP/1.0\r\n" + host + tags + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled},
		abuse{name: "… and a length", want: either, send: "POST /case-§ HTTP/1.0\r\n" + host + tags + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	)
	for _, v := range []string{"identity", "xchunked", "x-chunked", "chunked, gzip", "gzip, chunked", "chunked, chunked", ",chunked", "chunked;x=1", "\x0bchunked", "chunked\x00", "", "\"chunked\"", "chunke", "chunked\x7f", "identity, chunked", "gzip"} {
		add(abuse{name: fmt.Sprintf("Transfer-Encoding: %q", v), want: refuse, send: post("Transfer-Encoding: "+v+"\r\n", "0\r\n\r\n")})
	}
	add(
		abuse{name: "a list that ends otherwise, and a length", want: refuse, send: post("Transfer-Encoding: chunked, identity\r\nContent-Length: 5\r\n", "0\r\n\r\n")},
		abuse{name: "blank before the colon, length", want: refuse, send: post("Content-Length : 5\r\n", "hello")},
		abuse{name: "blank before the colon, encoding", want: refuse, send: post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n")},
		abuse{name: "tab before the colon, encoding", want: refuse, send: post("Transfer-Encoding\t: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n")},
		abuse{name: "blank before the colon, Host", want: clean, send: hosted("Host : site.test\r\n")},
		abuse{name: "blank before the colon, any", want: clean, send: get("X-Any : x\r\n")},
	)
	for what, l := range sorted(map[string]string{
		"\\x85 in a name": "X\x85A: x\r\n", "\\xa0 at a name's end": "X-A\xa0: x\r\n", "\\x01 in a name": "X\x01A: x\r\n", "an empty name": ": x\r\n",
		"no colon": "nonsense\r\n", "brackets in a name": "X-Invalid[]: x\r\n", "a quote in a name": "X\"A: x\r\n", "NUL in a name": "X\x00A: x\r\n", "a blank in a name": "X A: x\r\n",
		"NUL in a value": "X-A: a\x00b\r\n", "bare CR in a value": "X-A: a\rb\r\n", "\\x01 in a value": "X-A: a\x01b\r\n", "DEL in a value": "X-A: a\x7fb\r\n", "a vertical tab in a value": "X-A: a\x0bb\r\n", "a form feed in a value": "X-A: a\x0cb\r\n",
		"bare CR before a header": "X-A: a\rX-B: b\r\n", "CR CR LF": "X-A: a\r\r\n",
	}) {
		add(abuse{name: what, want: clean, send: get(l)})
	}
	add(
		abuse{name: "a blank before the first header", want: clean, send: "GET /case-§ HTTP/1.1\r\n " + host + tags + "\r\n"},
		abuse{name: "a folded header", want: either, send: get("X-Fold: a\r\n b\r\n")},
		abuse{name: "a folded encoding", want: either, send: post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n")},
		abuse{name: "a folded length", want: either, send: post("Content-Length: 5\r\n 0\r\n", "hello")},
		abuse{name: "a line of blanks only", want: either, send: get("X-A: a\r\n \r\n")},
		abuse{name: "bare LF after a header", want: either, send: get("X-A: a\nX-B: b\r\n")},
		abuse{name: "bare LF everywhere", want: either, send: strings.ReplaceAll(get(""), "\r\n", "\n")},
		abuse{name: "bare LF before the blank line", want: either, send: get("X-A: a\n")},
		abuse{name: "Transfer_Encoding", want: either, send: post("Transfer_Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), absent: "Transfer_Encoding", body: "0\r\n\r\n"},
		abuse{name: "Content_Length", want: either, send: get("Content_Length: 50\r\n"), absent: "Content_Length"},
	)

	for what, b := range sorted(map[string]string{
		"0x5": "0x5\r\nhello\r\n0\r\n\r\n", "+5": "+5\r\nhello\r\n0\r\n\r\n", "-1": "-1\r\nhello\r\n0\r\n\r\n", "1_0": "1_0\r\nhellohellohello!\r\n0\r\n\r\n", "none": "\r\nhello\r\n0\r\n\r\n",
		"more than 16 digits": "10000000000000005\r\nhello\r\n0\r\n\r\n", "FFFFFFFFFFFFFFFF": "FFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n", "G": "G\r\nhello\r\n0\r\n\r\n", "5h": "5h\r\nhello\r\n0\r\n\r\n",
	}) {
		add(abuse{name: "chunk size " + what, want: refuse, send: chunked(b + smuggled)})
	}
	for what, b := range sorted(map[string]string{
		"blank before its size": " 5\r\nhello\r\n0\r\n\r\n", "blank after its size": "5 \r\nhello\r\n0\r\n\r\n", "tab after its size": "5\t\r\nhello\r\n0\r\n\r\n", "leading zeros": "00000000000000005\r\nhello\r\n0\r\n\r\n",
		"bare LF after its size": "5\nhello\r\n0\r\n\r\n", "bare LF after its data": "5\r\nhello\n0\r\n\r\n", "bare LF in an extension": "5;a\nb\r\nhello\r\n0\r\n\r\n", "bare CR in an extension": "5;a\rb\r\nhello\r\n0\r\n\r\n",
		"NUL in an extension": "5;a\x00b\r\nhello\r\n0\r\n\r\n", "a bare semicolon": "5;\r\nhello\r\n0\r\n\r\n", "an extension of 64 KiB": "5;a=" + strings.Repeat("x", 64<<10) + "\r\nhello\r\n0\r\n\r\n",
	}) {
		add(abuse{name: "chunk: " + what, want: either, send: chunked(b), body: "hello"})
	}
	add(
		abuse{name: "chunk: data longer than its size", want: refuse, send: chunked("3\r\nhello\r\n0\r\n\r\n")},
		abuse{name: "chunk: data shorter than its size", want: refuse, send: chunked("8\r\nhello\r\n0\r\n\r\n" + smuggled)},
		abuse{name: "chunk: no CRLF after its data", want: refuse, send: chunked("5\r\nhello0\r\n\r\n")},
		abuse{name: "chunk: bare CR after its data", want: refuse, send: chunked("5\r\nhello\r0\r\n\r\n")},
		abuse{name: "chunk: bare CR after its size", want: refuse, send: chunked("5\rhello\r\n0\r\n\r\n")},
		abuse{name: "chunk: no end of the trailers", want: refuse, send: chunked("5\r\nhello\r\n0\r\nX:"), stop: true},
		abuse{name: "chunk: a trailer without a colon", want: either, send: chunked("5\r\nhello\r\n0\r\nnonsense\r\n\r\n"), body: "hello"},
		abuse{name: "trailers that frame", want: either, send: chunked("5\r\nhello\r\n0\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n"), body: "hello", absent: "Content-Length: 50"},
		abuse{name: "trailers that route and authorise", want: either, send: chunked("5\r\nhello\r\n0\r\nHost: evil.test\r\nAuthorization: x\r\nCookie: y\r\n\r\n"), body: "hello", absent: "evil.test"},
		abuse{name: "NUL in a trailer", want: either, send: chunked("5\r\nhello\r\n0\r\nX: a\x00b\r\n\r\n"), body: "hello"},
		abuse{name: "cut in the middle of a length", want: refuse, send: post("Content-Length: 10\r\n", "hello"), stop: true},
		abuse{name: "cut in the middle of a chunk", want: refuse, send: chunked("a\r\nhello"), stop: true},
		abuse{name: "cut before the last chunk", want: refuse, send: chunked("5\r\nhello\r\n"), stop: true},
		abuse{name: "GET with a body", want: either, send: get("Content-Length: 5\r\n") + "hello", body: "hello"},
		abuse{name: "HEAD with a request as its body", want: either, send: "HEAD /case-§ HTTP/1.1\r\n" + host + tags + "Content-Length: 60\r\n\r\n" + strings.Repeat("x", 60)},
		abuse{name: "early answer, length", want: either, send: post("Content-Length: 9000\r\n", strings.Repeat("x", 8192)+pad(808)), answer: early},
		abuse{name: "early answer, chunked", want: either, send: chunked("2328\r\n" + strings.Repeat("x", 8192) + pad(808) + "\r\n0\r\n\r\n"), answer: early},
		abuse{name: "early answer, then a bad chunk", want: either, send: chunked("2000\r\n" + strings.Repeat("x", 8192) + "\r\nzz\r\n" + smuggled), answer: early},
	)

	for what, h := range sorted(map[string]string{
		"none": "", "two": host + "Host: evil.test\r\n", "empty": "Host: \r\n", "a list": "Host: a, b\r\n", "user-info": "Host: user@site.test\r\n", "a path": "Host: site.test/p\r\n",
		"a port that is none": "Host: site.test:x\r\n", "a port too high": "Host: site.test:99999\r\n", "a blank": "Host: site test\r\n", "a query": "Host: site.test?x\r\n", "a backslash": "Host: site.test\\p\r\n", "NUL": "Host: site\x00test\r\n",
	}) {
		add(abuse{name: "Host: " + what, want: clean, absent: "Authorization", send: hosted(h)})
	}
	for _, l := range []string{
		"CONNECT site.test:80 HTTP/1.1", "GET * HTTP/1.1", "GET case HTTP/1.1", "GET /case-§ HTTP/1.2", "GET /case-§ HTTP/9.9", "GET /case-§ HTTP/2.0", "GET /case-§ HTTP/0.9", "GET /case-§ http/1.1",
		"GET /case-§ HTTP/1.10", "GET /case-§ HTTP/01.1", "GET /case-§ HTTP/1", "GET /case-§ XTTP/1.1", "GET /case-§", "GET  /case-§ HTTP/1.1", "GET /case-§  HTTP/1.1", "GET\t/case-§ HTTP/1.1", "GET /case-§\tHTTP/1.1", "GET /case-§ HTTP/1.1 ", " GET /case-§ HTTP/1.1",
		"GET /a b HTTP/1.1", "GET /case-§#frag HTTP/1.1", "GET /a\x01b HTTP/1.1", "GET /a\x00b HTTP/1.1", "GET /a\x7fb HTTP/1.1", "GET /a\rb HTTP/1.1", "G@T /case-§ HTTP/1.1", "G\x01T /case-§ HTTP/1.1", "/case-§ HTTP/1.1", "",
		"PRI * HTTP/2.0",
	} {
		add(abuse{name: fmt.Sprintf("%q", l), want: clean, send: line(l)})
	}
	add(
		abuse{name: "TRACE", want: refuse, send: line("TRACE /case-§ HTTP/1.1")},
		abuse{name: "absolute form with another authority", want: either, send: line("GET http://evil.test/case-§ HTTP/1.1"), absent: "http://"},
		abuse{name: "absolute form with user-info", want: either, send: line("GET http://user@site.test/case-§ HTTP/1.1"), absent: "user@"},
		abuse{name: "absolute form", want: either, send: line("GET http://site.test/case-§ HTTP/1.1")},
		abuse{name: "a target of 100 KB", want: clean, send: line("GET /" + strings.Repeat("a", 100_000) + " HTTP/1.1")},
		abuse{name: "a cookie of 64 KB", want: clean, send: get("Cookie: a=" + strings.Repeat("b", 64<<10) + "\r\n")},
		abuse{name: "1000 headers", want: clean, send: get(strings.Repeat("X-A: b\r\n", 1000))},
		abuse{name: "a second request that is bad", want: either, send: get("") + post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!") + smuggled},
	)

	add(
		abuse{name: "plain", want: serve, send: get("")},
		abuse{name: "a body of known length", want: serve, send: post("Content-Length: 5\r\n", "hello"), body: "hello"},
		abuse{name: "a chunked body", want: serve, send: chunked("5\r\nhello\r\n1;a=b\r\n!\r\n0\r\n\r\n"), body: "hello!"},
		abuse{name: "Transfer-Encoding: Chunked", want: serve, send: post("Transfer-Encoding: Chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"), body: "hello"},
		abuse{name: "two at once", want: serve, send: get("") + post("Content-Length: 5\r\n", "hello"), body: "hello"},
		abuse{name: "a target of 7.9 KB", want: serve, send: line("GET /" + strings.Repeat("a", 7_900) + " HTTP/1.1")},
		abuse{name: "a value beyond ASCII", want: serve, send: get("X-A: caf\xc3\xa9\r\n")},
		abuse{name: "an escaped slash", want: serve, send: line("GET /a%2Fb/../c;p?x=%zz HTTP/1.1")},
		abuse{name: "another method", want: serve, send: line("PROPFIND /case-§ HTTP/1.1")},
		abuse{name: "an answer after words in between", want: serve, send: get(""), answer: "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"},
		abuse{name: "a chunked answer", want: serve, send: get(""), answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
		abuse{name: "an answer until the end", want: serve, send: get(""), answer: "HTTP/1.1 200 OK\r\n\r\nok"},
	)

	for what, a := range sorted(map[string]string{
		"two different lengths": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 2\r\n\r\nhello", "a length twice in a line": "HTTP/1.1 200 OK\r\nContent-Length: 5, 2\r\n\r\nhello",
		"a signed length": "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", "a length that is none": "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello", "an overflowing length": "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
		"two encodings": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "an unknown encoding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"a bad chunk size": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", "data longer than its chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
		"a blank before the colon": "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\nhello", "NUL in a value": "HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 5\r\n\r\nhello", "bare CR in a value": "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 5\r\n\r\nhello",
		"no colon": "HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 5\r\n\r\nhello", "no status line": "hello hello hello\r\n\r\n", "a status of four digits": "HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nhello", "another protocol": "ICY 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"101 that nobody asked for": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello", "a folded header": "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 5\r\n\r\nhello",
		"both framings": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "two equal lengths": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		"bytes after its end": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON",
	}) {
		add(abuse{name: "answer: " + what, want: bad, send: get(""), answer: a, body: "hello"})
	}
	for what, a := range sorted(map[string]string{
		"cut in the middle of its length": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", "cut in the middle of a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhello",
		"cut before its last chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "cut in its header": "HTTP/1.1 200 OK\r\nContent-Le",
	}) {
		add(abuse{name: "answer: " + what, want: bad, send: get(""), answer: a, body: "none may be complete"})
	}
	add(abuse{name: "answer: 204 with a body", want: bad, send: get(""), answer: "HTTP/1.1 204 No Content\r\n\r\nPOISON"})
	return all
}

// early is a response that the origin sends before it has read the body.
const early = "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"

// pad returns a request to smuggle, padded to n bytes.
func pad(n int) string {
	r := "GET /smuggled HTTP/1.1\r\n" + host + "X-Case: §\r\nX-Fill: "
	return r + strings.Repeat("f", n-len(r)-len("000")+len("§")-4) + "\r\n\r\n"
}

// sorted iterates over a map in the order of its keys.
func sorted(m map[string]string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

package e2e

import (
	"strconv"
	"strings"
	"testing"
)

// class is a set of requests that are refused in the same way: each value of in replaces $.
type class struct {
	name   string
	status int
	form   string
	in     []string
}

const (
	anyGet    = "GET PATH HTTP/1.1\r\nHost: a\r\n$\r\n\r\n"
	anyPost   = "POST PATH HTTP/1.1\r\nHost: a\r\n$\r\n\r\n0\r\n\r\n"
	anyChunks = "POST PATH HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n$"
)

var refused = []class{
	{"F1 Content-Length with Transfer-Encoding", 400, anyPost, []string{
		"Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5",
		"Content-Length: 0\r\nTransfer-Encoding: chunked", "content-length: 5\r\nX: 1\r\ntransfer-encoding: Chunked",
		"Connection: Content-Length\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
		"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\nContent-Length: 5"}},
	{"F2 a request in a body of two lengths", 400, "POST PATH HTTP/1.1\r\nHost: a\r\n$", []string{
		"Content-Length: 43\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n26\r\n" + smuggled + "\r\n0\r\n\r\n",
		"Content-Length: 43\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nHEAD /in/smuggled HTTP/1.1\r\nHost: a\r\n\r\n"}},
	{"F3 two lengths", 400, "POST PATH HTTP/1.1\r\nHost: a\r\n$\r\n\r\nhello", []string{
		"Content-Length: 5\r\nContent-Length: 6", "Content-Length: 0\r\nContent-Length: 5", "Content-Length: 5\r\ncontent-length: 4"}},
	{"F4 equal lengths, lists of lengths", 400, "POST PATH HTTP/1.1\r\nHost: a\r\n$\r\n\r\nhello", []string{
		"Content-Length: 5\r\nContent-Length: 5", "Content-Length: 5, 5", "Content-Length: 5,5", "Content-Length: 5, 10", "Content-Length: ,5", "Content-Length: 5,", "Content-Length: 5;5"}},
	{"F5 a length that is no number", 400, "POST PATH HTTP/1.1\r\nHost: a\r\nContent-Length: $\r\n\r\nhelloworld", []string{
		"+5", "-1", "-0", "0x5", "0o5", "0b1", "1_0", "1 0", "", "5.0", "5e0", "\"5\"", "five", "\xd9\xa5", "5\x00", "5\v", "$5"}},
	{"F6 a length beyond 64 bits", 400, "POST PATH HTTP/1.1\r\nHost: a\r\nContent-Length: $\r\n\r\nhello", []string{
		"21000000000000000000", "9223372036854775808", "18446744073709551621", "4294967301999999999999999999999", strings.Repeat("9", 400)}},
	{"F7 a length with zeros before it", 400, "POST PATH HTTP/1.1\r\nHost: a\r\nContent-Length: $\r\n\r\nhelloworld", []string{"005", "010", "00", "0000000000000000000005"}},
	{"F8 two transfer codings", 400, anyPost, []string{
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: identity\r\ntransfer-encoding: chunked"}},
	{"F9 a transfer coding that is not exactly chunked", 400, "POST PATH HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: $\r\n\r\n0\r\n\r\n", []string{
		"identity", "xchunked", "x-chunked", "chunke", "chunkedd", "chunked, gzip", "chunked, chunked", ",chunked", "chunked,", ", chunked", "chunked;x=1", "chunked ;", "chunked; q=0", "\vchunked",
		"\fchunked", "chunked\x00", "\x00chunked", "chunked\r", "\"chunked\"", "'chunked'", "chun\tked", "", "identity, chunked", "chunked, identity", "gzip, chunked, chunked", "gzip;x, chunked", "\xa0chunked", "chunked\x85", "c\xc4\xa7unked"}},
	{"F9 a transfer coding that is known and not spoken", 501, "POST PATH HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: $\r\n\r\n0\r\n\r\n", []string{
		"gzip, chunked", "gzip", "deflate", "x-gzip,chunked", "compress, chunked"}},
	{"F10 a transfer coding on HTTP/1.0", 400, "POST PATH HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: $\r\n\r\n0\r\n\r\n", []string{"chunked", "identity", "chunked\r\nConnection: keep-alive", "gzip"}},
	{"F11 a blank before the colon", 400, "POST PATH HTTP/1.1\r\nHost: a\r\n$\r\n\r\n0\r\n\r\n", []string{
		"Content-Length : 5", "Content-Length\t: 5", "Transfer-Encoding : chunked", "Transfer-Encoding\t: chunked", "Host : a", "X-Any : 1", "X-Any  : 1", "Cookie : a=1", "Transfer-Encoding \r\n: chunked"}},
	{"F12 a name that is no token", 400, anyGet, []string{
		"X\x85: 1", "\x85X: 1", "X\xa0: 1", "\xa0Transfer-Encoding: chunked", "X\x01: 1", "X\x7f: 1", "X\x00: 1", ": 1", ":", "nonsense", "X", " X: 1", "\tX: 1", "X-Invalid[]: 1", "X(a): 1", "X/a: 1",
		"X@a: 1", "X,Y: 1", "X;Y: 1", "\"X\": 1", "X=Y", "X\xff: 1", "X{}: 1", "GET / HTTP/1.1"}},
	{"F12 a blank before the first name", 400, "GET PATH HTTP/1.1\r\n$Host: a\r\n\r\n", []string{" ", "\t", "  "}},
	{"F13 a control character in a value", 400, "GET PATH HTTP/1.1\r\nHost: a\r\nX-Any: 1$2\r\n\r\n", []string{
		"\x00", "\r", "\x01", "\x07", "\b", "\v", "\f", "\x1b", "\x1f", "\x7f", "\r\r", "\rTransfer-Encoding: chunked"}},
	{"F13 a control character at a value's end", 400, "GET PATH HTTP/1.1\r\nHost: a\r\nX-Any: $\r\n\r\n", []string{"\r", "1\r", "1\x00", "\x00", "1 \r", "12345678\x01"}},
	{"F14 folded headers", 400, anyPost, []string{
		"X-Any: 1\r\n 2", "X-Any: 1\r\n\t2", "Transfer-Encoding:\r\n chunked", "Transfer-Encoding: chunked\r\n ,identity", "Content-Length: 1\r\n 0", "Host:\r\n b", "X-Any:\r\n ", "Cookie: a=1;\r\n b=2", "X-Any: 1\r\n Transfer-Encoding: chunked"}},
	{"F15 lines that end with LF alone", 400, "$", []string{
		"GET PATH HTTP/1.1\nHost: a\n\n", "GET PATH HTTP/1.1\r\nHost: a\n\r\n", "GET PATH HTTP/1.1\nHost: a\r\n\r\n", "GET PATH HTTP/1.1\r\nHost: a\r\n\n", "GET PATH HTTP/1.1\r\nHost: a\r\nX: 1\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"\nGET PATH HTTP/1.1\r\nHost: a\r\n\r\n", "GET PATH HTTP/1.1\r\n\nHost: a\r\n\r\n"}},
	{"F16 names that a server may read as reserved ones", 400, anyPost, []string{
		"Transfer_Encoding: chunked", "Content_Length: 5", "X_Forwarded_For: 192.0.2.1", "X-Forwarded_Proto: https", "X_Real_IP: 192.0.2.1", "X_Waiting_Room_Session: s", "X-Waiting_Room-Pass: p", "x_waiting_room_anything: 1",
		"Proxy_Authorization: x", "SCRIPT_NAME: /in", "Path_Info: /out", "Transfer.Encoding: chunked", "X.Forwarded.For: 192.0.2.1", "X!Waiting|Room~Session: s", "Content^Length: 5", "X_Forwarded_" + strings.Repeat("a", 100) + ": 1"}},
	{"F17 a chunk size that is none", 400, anyChunks, []string{
		"0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "-1\r\nhello\r\n0\r\n\r\n", "+0\r\n\r\n", "-0\r\n\r\n", "1_0\r\nhello\r\n0\r\n\r\n", "\r\nhello\r\n0\r\n\r\n", " 5\r\nhello\r\n0\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n",
		"5\t\r\nhello\r\n0\r\n\r\n", "0 \r\n\r\n", "00000000000000005\r\nhello\r\n0\r\n\r\n", "fffffffffffffffff\r\nhello\r\n0\r\n\r\n", "10000000000000005\r\nhello\r\n0\r\n\r\n", "7fffffffffffffff\r\nhello\r\n0\r\n\r\n",
		"g\r\nhello\r\n0\r\n\r\n", "5h\r\nhello\r\n0\r\n\r\n", "5.0\r\nhello\r\n0\r\n\r\n", "\x005\r\nhello\r\n0\r\n\r\n", "5\x00\r\nhello\r\n0\r\n\r\n", "5,5\r\nhello\r\n0\r\n\r\n", "\xef\xbb\xbf5\r\nhello\r\n0\r\n\r\n", "five\r\n"}},
	{"F18 a chunk extension that is none", 400, anyChunks, []string{
		"5;a\nhello\r\n0\r\n\r\n", "5;a=b\nc\r\nhello\r\n0\r\n\r\n", "5;a\rb\r\nhello\r\n0\r\n\r\n", "5;\r\r\nhello\r\n0\r\n\r\n", "5;a\r\r\nhello\r\n0\r\n\r\n", "5;a\x00\r\nhello\r\n0\r\n\r\n", "5;\r\nhello\r\n0\r\n\r\n", "5; \r\nhello\r\n0\r\n\r\n", "5 ;a\r\nhello\r\n0\r\n\r\n",
		"5;a=\"\x7f\"\r\nhello\r\n0\r\n\r\n", "5;a=\xff\r\nhello\r\n0\r\n\r\n", "5;" + strings.Repeat("a", 1000) + "\r\nhello\r\n0\r\n\r\n", "0;\r\n\r\n", "0;a\nX\r\n\r\n", "5;a=\"\nhello\r\n0\r\n\r\n"}},
	{"F18 more extension than data", 400, anyChunks, []string{strings.Repeat("1;"+strings.Repeat("a", 400)+"\r\nx\r\n", 45) + "0\r\n\r\n", "5;a=" + strings.Repeat("a", 64<<10) + "\r\nhello\r\n0\r\n\r\n"}},
	{"F19 data that is not as long as its size", 400, anyChunks, []string{
		"4\r\nhello\r\n0\r\n\r\n", "6\r\nhello\r\n0\r\n\r\n", "5\r\nhello0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhello\r0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "5\rhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\n\r\n", "5\r\nhello\r\n0\r\n\n",
		"5\r\nhello\r\n0\r\nX:\n\r\n", "5\r\nhello\r\n0\r\nX\r\n\r\n", "5\r\nhello\r\n0\r\n: 1\r\n\r\n", "5\r\nhello\r\n0\r\nX : 1\r\n\r\n", "5\r\nhello\r\n0\r\nX: 1\r\n 2\r\n\r\n", "5\r\nhello\r\n0\r\nX: \x00\r\n\r\n",
		"5\r\nhello\r\n0\r\n" + smuggled}},
	{"F24 a trailer section that is too large", 400, anyChunks, []string{"0\r\n" + strings.Repeat("X: "+strings.Repeat("a", 100)+"\r\n", 100) + "\r\n"}},
	{"F24 trailers that frame, lead or prove", 400, "POST PATH HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: $\r\n\r\n0\r\n\r\n", []string{
		"Content-Length", "transfer-encoding", "Host", "Authorization", "Cookie", "Connection", "Trailer", "X-Forwarded-For", "X_Forwarded_For", "Content_Length", "X-Real-IP", "X-Waiting-Room-Session", "X-Sum, Host", "X-Sum\r\nTrailer: Host", "Set-Cookie", "a b", ",", "X-Sum,,X-More", "X:"}},
	{"F26 an unknown expectation", 417, "POST PATH HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: $\r\n\r\nhi", []string{"200-ok", "100-continu", "100-continue, x", "", "100-continue\r\nExpect: y"}},
	{"F29 a Host that is none", 400, "GET PATH HTTP/1.1\r\n$\r\n", []string{
		"", "Host: a\r\nHost: a\r\n", "Host: a\r\nHost: b\r\n", "Host:\r\n", "Host: \r\n", "Host: a,b\r\n", "Host: a, b\r\n", "Host: a b\r\n", "Host: u@a\r\n", "Host: u:p@a\r\n", "Host: a/b\r\n", "Host: /\r\n", "Host: http://a\r\n", "Host: a?b\r\n", "Host: a#b\r\n",
		"Host: a:\r\n", "Host: a:x\r\n", "Host: a:-1\r\n", "Host: a:65536\r\n", "Host: a:80:80\r\n", "Host: a:080000\r\n", "Host: :80\r\n", "Host: a\\b\r\n", "Host: a%00\r\n", "Host: a%2eb\r\n", "Host: \"a\"\r\n", "Host: <a>\r\n", "Host: a\x00\r\n", "Host: \xc3\xa4\r\n", "Host: a;b\r\n",
		"Host: .\r\n", "Host: a..b\r\n", "Host: .a\r\n", "Host: a..\r\n", "Host: []\r\n", "Host: [\r\n", "Host: [::1\r\n", "Host: ::1\r\n", "Host: [::1]x\r\n", "Host: [::1]:\r\n", "Host: [::1]:x\r\n", "Host: [fe80::1%25lo]\r\n", "Host: [fe80::1%lo]\r\n", "Host: [1:2]\r\n", "Host: [:::]\r\n",
		"Host: [...]\r\n", "Host: [v1.a]\r\n", "Host: [127.0.0.1]\r\n", "Host: a*\r\n", "Host: *\r\n", "Host: a'b\r\n", "Host: a$b\r\n", "Host: " + strings.Repeat("a", 300) + "\r\n"}},
	{"F30 an authority other than Host", 400, "GET $ HTTP/1.1\r\nHost: a\r\n\r\n", []string{
		"http://bPATH", "http://a.PATH", "http://a:80PATH", "http://a:81PATH", "https://bPATH", "HTTP://bPATH", "http://u@aPATH", "http://u:p@aPATH", "http://a@bPATH", "http://a%2ebPATH", "http://PATH", "http:///PATH", "http://[::1]PATH", "http://", "http:PATH", "http:/aPATH"}},
	{"F31 a target that leads elsewhere", 400, "GET $ HTTP/1.1\r\nHost: a\r\n\r\n", []string{"/\\evil.example", "\\\\evil.example", "http://evil.example/x", "@evil.example", "ftp://a/x", "file:///etc/passwd", "javascript:x", "evil.example:80", "a/b", "x", "?q", "./x", "../x"}},
	{"F34 a target that no URI has", 400, "GET PATH$ HTTP/1.1\r\nHost: a\r\n\r\n", []string{
		"#f", "?a#b", " b", "  ", "\\b", "\xc0\xaf", "\xc3\xa4", "\xff", "<b>", "\"b\"", "\x00", "\x01", "\x7f", "\t", "\r", "\v", "?a=\x1b", "?a b"}},
	{"F35 methods that are not served", 405, "$ HTTP/1.1\r\nHost: a\r\n\r\n", []string{"CONNECT a:443", "CONNECT PATH", "TRACE PATH", "CONNECT a", "TRACE *"}},
	{"F35 the asterisk of another method", 400, "$ * HTTP/1.1\r\nHost: a\r\n\r\n", []string{"GET", "POST", "HEAD", "PRI"}},
	{"F35 methods that are none", 400, "$ PATH HTTP/1.1\r\nHost: a\r\n\r\n", []string{"", "G\x00T", "GET,", "(GET)", "G\xc3\x84T", "GET/", strings.Repeat("A", 40), "GET:", "G\tT", "{}"}},
	{"F36 versions that are not spoken", 505, "GET PATH $\r\nHost: a\r\n\r\n", []string{"HTTP/1.2", "HTTP/2.0", "HTTP/9.9", "HTTP/0.9", "HTTP/3", "HTTP/2"}},
	{"F36 versions that are none", 400, "GET PATH$\r\nHost: a\r\n\r\n", []string{
		"", " ", " http/1.1", " Http/1.1", " HTTP/1.1 ", " HTTP/1.10", " HTTP/01.1", " HTTP/1,1", " HTTP/+1.1", " HTTP/1.1.1", " HTTP /1.1", " HTTPS/1.1", " HTTP/", " HTTP", " HTTP/one", " ICY/1.0", " HTTP/1.1\t", "  HTTP/1.1", "\tHTTP/1.1", " HTTP/1.1\x00"}},
	{"F36 other protocols", 400, "$", []string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "SSH-2.0-x\r\n", "\x00\x00\x00\x00\r\n\r\n", "EHLO a\r\n", "*1\r\n$4\r\nPING\r\n"}},
	{"F36 the preface of HTTP/2", 505, "$", []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}},
	{"F36 blanks in the request line", 400, "$\r\nHost: a\r\n\r\n", []string{"GET  PATH HTTP/1.1", "GET PATH  HTTP/1.1", " GET PATH HTTP/1.1", "\tGET PATH HTTP/1.1", "GET\tPATH HTTP/1.1", "GET PATH\tHTTP/1.1", "GET\vPATH HTTP/1.1", "GET PATH\r HTTP/1.1", "\r\n\r\nGET PATH HTTP/1.1", "\rGET PATH HTTP/1.1"}},
	{"F37 a target that is too long", 414, "GET PATH$ HTTP/1.1\r\nHost: a\r\n\r\n", []string{strings.Repeat("a", 8<<10), "?" + strings.Repeat("a", 15<<10), strings.Repeat("a", 100_000)}},
	{"F37 a header that is too large", 431, anyGet, []string{
		"Cookie: a=" + strings.Repeat("a", 64<<10), strings.Repeat("X-A: 1\r\n", 100) + "X-B: 1", strings.Repeat("X-A: 1\r\n", 1000) + "X-B: 1", strings.Repeat("X-A: "+strings.Repeat("a", 200)+"\r\n", 90) + "X-B: 1",
		"X-A: " + strings.Repeat("a", 16<<10), strings.Repeat("N", 20<<10) + ": 1"}},
}

// tryRefused sends requests that parsers may read in different ways. On every way the request is refused, the connection ends, the site
// receives nothing, and the bytes after the request are not run.
func tryRefused(t *testing.T, e *edge) {
	inputs, tries := 0, 0
	for _, c := range refused {
		t.Run(c.name, func(t *testing.T) {
			for _, in := range c.in {
				inputs++
				for _, w := range e.ways() {
					tries++
					raw := w.of(strings.Replace(c.form, "$", in, 1))
					before := e.origin.mark()
					conn := e.dial(t)
					go conn.send(raw + smuggled)
					head, body := conn.whole(methodOf(raw))
					if code(head) != strconv.Itoa(c.status) || field(head, "Connection") != "close" || field(head, "Cache-Control") != "no-store" || strings.Contains(head, "Set-Cookie") {
						t.Errorf("%s: %.200q: want %d and an end, have\n%s%s", w.name, raw, c.status, head, body)
					}
					conn.ended()
					if _, begun := e.origin.since(before); begun != 0 {
						t.Errorf("%s: %.200q reached the site", w.name, raw)
					}
				}
			}
		})
	}
	t.Logf("%d inputs in %d tries refused", inputs, tries)
}

package e2e

import (
	"io"
	"net"
	"strings"
	"testing"
)

// tryBodiesThatBreak sends bodies whose fault comes after the header. The site never has a whole request of it; those
// who would not have reached the site have their answer already. In either case nothing runs that follows.
func tryBodiesThatBreak(t *testing.T, e *edge) {
	const begin = "POST PATH HTTP/1.1\r\nHost: a\r\n" + coded + "\r\n2\r\nhi\r\n"
	goesOn := begin + "4000\r\n" + strings.Repeat("x", 0x4000) + "\r\n" // so much of a body is forwarded without waiting for more
	for _, c := range refused {
		if c.form != anyChunks {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			for _, in := range c.in {
				before := e.origin.mark()
				conn := e.dial(t)
				conn.send(e.through().of(goesOn))
				until(t, "the site has the header", func() bool { _, begun := e.origin.since(before); return begun == 1 })
				go conn.send(in + smuggled)
				head, body := conn.whole("POST")
				if code(head) != "400" || field(head, "Connection") != "close" {
					t.Errorf("%.200q is answered with\n%s%s", in, head, body)
				}
				conn.ended()
				until(t, "the site's connection has ended", func() bool { return e.origin.mark().strays == before.strays+1 })
				if whole, begun := e.origin.since(before); len(whole) != 0 || begun != 1 {
					t.Errorf("%.200q: the site has %d whole requests of %d: %q", in, len(whole), begun, whole)
				}

				before = e.origin.mark()
				conn = e.dial(t)
				conn.send(way{path: "/out/x"}.of(begin))
				if head, body := conn.whole("POST"); code(head) != "503" {
					t.Errorf("waiting: answered with\n%s%s", head, body)
				}
				go conn.send(in + smuggled)
				conn.ended()
				conn = e.dial(t)
				conn.send(way{path: "/.waiting-room/out/tickets"}.of(begin))
				go conn.send(in + smuggled)
				if head, body := conn.whole("POST"); code(head) != "400" || field(head, "Connection") != "close" {
					t.Errorf("tickets: answered with\n%s%s", head, body)
				}
				conn.ended()
				if _, begun := e.origin.since(before); begun != 0 {
					t.Errorf("%.200q reached the site", in)
				}
			}
		})
	}
}

// tryBodiesThatStop: F25, a client that disconnects within a body.
func tryBodiesThatStop(t *testing.T, e *edge) {
	for name, raw := range map[string]string{
		"by length": linePost + "Content-Length: 10\r\n\r\nhello", "in a chunk": linePost + coded + "\r\na\r\nhello", "between chunks": linePost + coded + "\r\n5\r\nhello\r\n",
		"before the last line": linePost + coded + "\r\n5\r\nhello\r\n0\r\n", "in trailers": linePost + coded + "\r\n5\r\nhello\r\n0\r\nX-A: 1\r\n", "in a size": linePost + coded + "\r\n5\r\nhello\r\n1",
	} {
		t.Run(name, func(t *testing.T) {
			for _, half := range []bool{true, false} { // both end, or only the sending does
				before := e.origin.mark()
				conn := e.dial(t)
				conn.send(e.through().of(raw))
				until(t, "the site has the header", func() bool { _, begun := e.origin.since(before); return begun == 1 })
				if half {
					_ = conn.Conn.(*net.TCPConn).CloseWrite()
					if head, _ := conn.whole("POST"); code(head) != "400" || field(head, "Connection") != "close" {
						t.Errorf("answered with\n%s", head)
					}
				}
				_ = conn.Close()
				until(t, "the site's connection has ended", func() bool { return e.origin.mark().strays == before.strays+1 })
				if whole, begun := e.origin.since(before); len(whole) != 0 || begun != 1 {
					t.Errorf("the site has %d whole requests of %d: %q", len(whole), begun, whole)
				}
			}
		})
	}
}

// tryBodiesThatAreTooLong: F38 at the site, whose limit is 1 MiB, and F20 where the body is not read.
func tryBodiesThatAreTooLong(t *testing.T, e *edge) {
	long := strings.Repeat("x", 2<<20) + smuggled
	byLength := linePost + "Content-Length: " + itoa(len(long)) + "\r\n\r\n" + long
	inPieces := linePost + coded + "\r\n" + strings.Repeat("8000\r\n"+strings.Repeat("x", 0x8000)+"\r\n", 64) + "0\r\n\r\n"
	for _, w := range e.ways() {
		want := map[string]string{"with a pass": "413", "waiting": "503", "waiting with a ticket": "503", "tickets": "413", "claim": "409", "unknown room": "404"}[w.name]
		if want == "" {
			want = "405"
		}
		t.Run(w.name, func(t *testing.T) {
			for _, raw := range []string{byLength, inPieces} {
				before := e.origin.mark()
				conn := e.dial(t)
				go conn.send(w.of(raw) + smuggled)
				if head, body := conn.whole("POST"); code(head) != want {
					t.Errorf("%.100q: answered with\n%s%s", raw, head, body)
				}
				conn.ended()
				if whole, _ := e.origin.since(before); len(whole) != 0 {
					t.Errorf("the site has %.300q", whole)
				}
			}
		})
	}
}

// tryExpectations: F26, one that is waited for, and F27, one whose request we answer ourselves.
func tryExpectations(t *testing.T, e *edge) {
	const asks = "POST PATH HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
	for _, framed := range [][2]string{{"Content-Length: 2\r\n\r\n", "{}"}, {coded + "\r\n", "2\r\n{}\r\n0\r\n\r\n"}} {
		for _, w := range []way{e.through(), {"tickets", "/.waiting-room/out/tickets", ""}} {
			conn := e.dial(t)
			conn.send(w.of(asks + framed[0]))
			if head := conn.head(); head != "HTTP/1.1 100 Continue\r\n\r\n" {
				t.Fatalf("%s: told %q", w.name, head)
			}
			conn.send(framed[1])
			if head, body := conn.whole("POST"); code(head)[0] != '2' {
				t.Errorf("%s: answered with\n%s%s", w.name, head, body)
			}
			conn.goesOn(e)
		}
		for _, w := range e.apart() {
			if w.name == "tickets" {
				continue
			}
			before := e.origin.mark()
			conn := e.dial(t)
			conn.send(w.of(asks + framed[0]))
			if head, body := conn.whole("POST"); code(head)[0] < '4' || field(head, "Connection") != "close" {
				t.Errorf("%s: answered with\n%s%s", w.name, head, body)
			}
			conn.send(smuggled)
			conn.ended()
			if _, begun := e.origin.since(before); begun != 0 {
				t.Errorf("%s: the site heard of it", w.name)
			}
		}
	}
}

// tryPipelines: F23, requests that are sent ahead are answered in order, and none after one that is refused.
func tryPipelines(t *testing.T, e *edge) {
	const bad = "GET /in/bad HTTP/1.1\r\nHost : a\r\n\r\n"
	get := func(path string) string { return way{path: path, line: e.pass}.of(lineGet + "\r\n") }
	post := func(path, body string) string {
		return way{path: path, line: e.pass}.of(linePost+"Content-Length: "+itoa(len(body))+"\r\n\r\n") + body
	}
	for _, row := range []struct {
		name string
		raw  []string
		want string // statuses
		site int    // requests
		ends bool
	}{
		{"good ones", []string{get("/in/1"), post("/in/2", smuggled), get("/in/3")}, "200 200 200", 3, false},
		{"good, then bad", []string{get("/in/1"), bad, get("/in/2")}, "200 400", 1, true},
		{"bad first", []string{bad, get("/in/1")}, "400", 0, true},
		{"all sorts", []string{get("/in/1"), get("/out/1"), post("/out/2", smuggled), get("/.waiting-room/nowhere/x"), post("/.waiting-room/out/tickets", "{}"), post("/in/2", "hello"), get("/in/3")}, "200 202 503 404 201 200 200", 3, false},
		{"an end, then more", []string{strings.Replace(get("/in/1"), "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1), get("/in/2")}, "200", 1, true},
		{"a broken body, then more", []string{post("/in/1", "x"), way{path: "/in/2", line: e.pass}.of(linePost + coded + "\r\n5\r\nhello0\r\n\r\n"), get("/in/3")}, "200 400", 1, true},
		{"an empty line between", []string{post("/in/1", "x"), "\r\n" + get("/in/2")}, "200 200", 2, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := e.origin.mark()
			conn := e.dial(t)
			go conn.send(strings.Join(row.raw, ""))
			for i, want := range strings.Fields(row.want) {
				if head, body := conn.whole("GET"); code(head) != want {
					t.Errorf("answer %d is not %s:\n%s%s", i, want, head, body)
				}
			}
			if whole, begun := e.origin.since(before); begun != row.site || len(whole) != row.site {
				t.Errorf("the site has %d requests of %d, want %d: %q", len(whole), begun, row.site, whole)
			}
			after(t, e, conn, row.ends)
		})
	}
}

// tryByteByByte: F28.
func tryByteByByte(t *testing.T, e *edge) {
	raw := e.through().of(linePost + coded + "Trailer: X-Sum\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n")
	want := "POST /in/x HTTP/1.1\r\nHost: a\r\n" + e.own("a", coded+"Trailer: X-Sum\r\n") + "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
	conn := e.dial(t)
	before := e.origin.mark()
	for i := range raw {
		conn.send(raw[i : i+1])
	}
	if head, _ := conn.whole("POST"); code(head) != "200" {
		t.Fatalf("answered with\n%s", head)
	}
	if whole, begun := e.origin.since(before); begun != 1 || strings.ReplaceAll(strings.Join(whole, ""), "1\r\nh\r\n1\r\ne\r\n1\r\nl\r\n1\r\nl\r\n1\r\no\r\n", "5\r\nhello\r\n") != want {
		t.Logf("the site has %q of %d", whole, begun) // how the body is cut is the network's affair
		if len(whole) != 1 || !strings.HasPrefix(whole[0], want[:strings.Index(want, "\r\n\r\n")]) || !strings.HasSuffix(whole[0], "\r\n0\r\nX-Sum: 1\r\n\r\n") {
			t.Error("that is not what was sent")
		}
	}
	conn.goesOn(e)
}

// tryNoPath: HTTP/1.0 needs none, and F35, OPTIONS * has no path: the site's own server answers both.
func tryNoPath(t *testing.T, e *edge) {
	own := "X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n"
	authority := strings.TrimPrefix(e.origin.url(), "http://")
	for raw, want := range map[string]string{
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n":        "OPTIONS * HTTP/1.1\r\nHost: a\r\n" + own + "X-Forwarded-Host: a\r\n\r\n",
		"OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n": "OPTIONS * HTTP/1.1\r\nHost: a\r\n" + own + "X-Forwarded-Host: a\r\n\r\n",
		"GET http://a?q HTTP/1.1\r\nHost: a\r\n\r\n":   "GET /?q HTTP/1.1\r\nHost: a\r\n" + own + "X-Forwarded-Host: a\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n":                       "GET / HTTP/1.1\r\nHost: " + authority + "\r\n" + own + "\r\n",
	} {
		before := e.origin.mark()
		conn := e.dial(t)
		conn.send(raw)
		if head, _ := conn.whole("GET"); code(head) != "200" {
			t.Errorf("%q: answered with\n%s", raw, head)
		}
		if whole, _ := e.origin.since(before); len(whole) != 1 || whole[0] != want {
			t.Errorf("%q: the site has %q, want %q", raw, whole, want)
		}
	}
}

// tryWhatProxiesTell: F43 to F45, from an address that is trusted. What the site is told is one chain and one value of each.
func tryWhatProxiesTell(t *testing.T, e *edge) {
	for _, row := range []struct{ name, lines, chain, real, proto, host string }{
		{"nothing", "", "127.0.0.2", "127.0.0.2", "http", "a"},
		{"a chain", "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n", "192.0.2.1, 127.0.0.2", "192.0.2.1", "https", "a"},
		{"several lines", "X-Forwarded-For: 198.51.100.1\r\nX: 1\r\nx-forwarded-for: 192.0.2.1, 127.0.0.2\r\n", "198.51.100.1, 192.0.2.1, 127.0.0.2, 127.0.0.2", "192.0.2.1", "http", "a"},
		{"Forwarded, which is not trusted_header", "Forwarded: for=\"[2001:db8::1]:4711\";proto=https;host=b\r\n", "127.0.0.2", "127.0.0.2", "http", "a"},
		{"rubbish", "X-Forwarded-For: evil\r\nX-Forwarded-Proto: gopher\r\nX-Real-IP: 192.0.2.9\r\nX-Forwarded-Host: b/evil\r\n", "evil, 127.0.0.2", "127.0.0.2", "http", "a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := e.origin.mark()
			conn := e.dialFrom(t, "127.0.0.2")
			pass := e.pass
			if row.proto == "https" {
				pass = strings.Replace(pass, "wr_in", "__Host-wr_in", 1)
			}
			conn.send(way{path: "/in/x", line: pass}.of(lineGet + row.lines + "\r\n"))
			if head, body := conn.whole("GET"); code(head) != "200" {
				t.Fatalf("answered with\n%s%s", head, body)
			}
			whole, _ := e.origin.since(before)
			want := "GET /in/x HTTP/1.1\r\nHost: a\r\n" + map[bool]string{true: "X: 1\r\n"}[strings.Contains(row.lines, "X: 1")] +
				"X-Forwarded-For: " + row.chain + "\r\nX-Real-IP: " + row.real + "\r\nX-Forwarded-Proto: " + row.proto + "\r\nX-Forwarded-Host: " + row.host + "\r\nX-Waiting-Room-Session: " + e.sid + "\r\n\r\n"
			if len(whole) != 1 || whole[0] != want {
				t.Errorf("the site has %q\nwant %q", whole, want)
			}
		})
	}
}

// tryNothingButRequests: F36, a request cut off before its end is not forwarded.
func tryNothingButRequests(t *testing.T, e *edge) {
	before := e.origin.mark()
	for _, raw := range []string{"", "\r\n", "G", "GET /in/x HTTP/1.1\r\nHost: a\r\n", "GET /in/x HTTP/1.1\r\nHost: a\r\n\r"} {
		conn := e.dial(t)
		conn.send(raw)
		_ = conn.Conn.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(conn)
		if s := string(b); s != "" && code(s) != "400" {
			t.Errorf("%q is answered with %q", raw, s)
		}
	}
	if _, begun := e.origin.since(before); begun != 0 {
		t.Errorf("the site heard of %d", begun)
	}
}

// tryUpgradeWithoutAPass: F80. Who would have to wait gets no tunnel, and what follows is a request like any other.
func tryUpgradeWithoutAPass(t *testing.T, e *edge) {
	e.origin.script("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", false)
	const ask = lineGet + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	for _, w := range e.apart()[:2] {
		before := e.origin.mark()
		conn := e.dial(t)
		conn.send(w.of(ask))
		if head, body := conn.whole("GET"); code(head) != "503" {
			t.Errorf("%s: answered with\n%s%s", w.name, head, body)
		}
		if _, begun := e.origin.since(before); begun != 0 {
			t.Errorf("%s: the site heard of it", w.name)
		}
		conn.goesOn(e)
	}
	conn := e.dial(t)
	conn.send(e.through().of(ask) + "hello")
	if head := conn.head(); code(head) != "101" {
		t.Errorf("with a pass: answered with\n%s", head)
	}
}

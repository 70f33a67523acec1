package proxy

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

// The header that the origin receives. %H stands for the gateway's own lines.
func TestForward_RequestHeaders(t *testing.T) {
	const own = "X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n"
	for _, tc := range []struct {
		name, lines, sent string
		set               func(*Forward)
	}{
		{"no User-Agent stays absent", "", "%H", nil},
		{"repeated headers keep their order", "X-A: 1\r\nX-B: 2\r\nx-a: 3\r\n", "X-A: 1\r\nX-B: 2\r\nx-a: 3\r\n%H", nil},
		{"named by Connection", "X-Hop: 1\r\nConnection: x-hop, close\r\nX-End: 2\r\nConnection: X-Also , ,\r\nx-also: 3\r\n", "X-End: 2\r\n%H", nil},
		{"Connection cannot strip ours", "Connection: X-Forwarded-For, Cookie, X-Waiting-Room-Session, Host, X-Real-IP\r\nCookie: a=1\r\n", strings.Replace("%H", "%H", own+"X-Waiting-Room-Session: s\r\n", 1), func(f *Forward) { f.Session = "s" }},
		{"empty Connection", "Connection:\r\nX-A: 1\r\n", "X-A: 1\r\n%H", nil},
		{"hop-by-hop", "Keep-Alive: 5\r\nProxy-Connection: x\r\nProxy-Authorization: x\r\nProxy-Authenticate: x\r\nTE: gzip\r\nTrailer: X\r\nUpgrade: x\r\nProxy: x\r\nX-A: 1\r\n", "X-A: 1\r\n%H", nil},
		{"TE: trailers", "TE: gzip;q=0.5, Trailers\r\n", own + "TE: trailers\r\nConnection: TE\r\n", nil},
		{"TE: trailers and Upgrade", "Connection: TE, Upgrade\r\nTE: trailers\r\nUpgrade: websocket\r\n", own + "TE: trailers\r\nConnection: TE, Upgrade\r\nUpgrade: websocket\r\n", nil},
		{"forged addresses", "X-Forwarded-For: 1.1.1.1\r\nx-forwarded-for: 2.2.2.2\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 1\r\nX-Real-IP: 1.1.1.1\r\nForwarded: for=1.1.1.1\r\n", "%H", nil},
		{"a trusted chain", "X-Forwarded-For: 1.1.1.1\r\n", "X-Forwarded-For: 1.1.1.1, 127.0.0.1\r\nX-Real-IP: 1.1.1.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: b\r\n", func(f *Forward) {
			f.ClientIP, f.ForwardedFor, f.Proto, f.Host = netip.MustParseAddr("1.1.1.1"), []byte("1.1.1.1"), "https", []byte("b")
		}},
		{"forged sessions", "X-Waiting-Room-Session: evil\r\nx-waiting-room-pass: p\r\nX-Waiting-Room-Anything: 1\r\n", "%H", nil},
		{"one cookie line", "Cookie: a=1; b=2\r\n", "Cookie: a=1; b=2\r\n%H", nil},
		{"two cookie lines", "Cookie: a=1\r\nX-A: 1\r\ncookie: b=2;c=3\r\n", "Cookie: a=1; b=2;c=3\r\nX-A: 1\r\n%H", nil},
		{"a cookie line without cookies of the gateway", "X-A: 1\r\ncookie:a=1;b=2 ;\r\nX-B: 1\r\n", "X-A: 1\r\ncookie:a=1;b=2 ;\r\nX-B: 1\r\n%H", dropOurs},
		{"an empty cookie line", "Cookie:\r\nX-A: 1\r\n", "Cookie:\r\nX-A: 1\r\n%H", dropOurs},
		{"cookie lines, one of ours", "X-A: 1\r\ncookie: wr_x=1\r\nX-B: 1\r\nCookie: a=\xe9;wr_y=2; b\r\nCookie:c=1 \r\n", "X-A: 1\r\ncookie: a=\xe9; b; c=1\r\nX-B: 1\r\n%H", dropOurs},
		{"case, order, blanks, empty values, bytes that are no text", "x-lower: a\r\nX-UPPER:b\r\nX-Blank: \t c \r\nX-Empty:\r\nX-Empty: \r\nX-Obs: \xe9\xff\x80\r\n", "x-lower: a\r\nX-UPPER:b\r\nX-Blank: \t c \r\nX-Empty:\r\nX-Empty: \r\nX-Obs: \xe9\xff\x80\r\n%H", nil},
		{"what asks for a representation", "Accept-Encoding: gzip, br;q=0\r\nRange: bytes=0-1,5-\r\nIf-Range: \"a\"\r\nIf-None-Match: W/\"b\"\r\n", "Accept-Encoding: gzip, br;q=0\r\nRange: bytes=0-1,5-\r\nIf-Range: \"a\"\r\nIf-None-Match: W/\"b\"\r\n%H", nil},
		{"Content-Length", "X-A: 1\r\ncontent-length: 0\r\nX-B: 1\r\n", "X-A: 1\r\ncontent-length: 0\r\nX-B: 1\r\n%H", nil},
		{"Content-Length between blanks, named by Connection", "X-A: 1\r\ncontent-length:  0 \r\nConnection: content-length\r\nX-B: 1\r\n", "X-A: 1\r\nContent-Length: 0\r\nX-B: 1\r\n%H", nil},
		{"our cookies", "Cookie: wr_sale_pass=x; a=\"1\"; wr_sale_ticket=y;;b\r\n", "Cookie: a=\"1\";;b\r\n%H", dropOurs},
		{"our cookies alone", "Cookie: wr_sale_pass=x\r\nCookie: wr_sale_ticket=y\r\n", "%H", dropOurs},
		{"Expect", "Expect: 100-continue\r\n", "%H", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newRecorder(t, answering(okAnswer))
			g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
				g.forward = func(_ *fasthttp.RequestCtx, f *Forward) {
					if tc.set != nil {
						tc.set(f)
					}
				}
			})
			c := g.dial()
			c.Send("GET / HTTP/1.1\r\nHost: a\r\n" + tc.lines + "\r\n")
			c.Answer("GET")
			head := o.requests()[0]
			host := "a"
			if strings.Contains(tc.sent, "X-Forwarded-Host: b") {
				host = "b"
			}
			if want := "GET / HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Replace(tc.sent, "%H", own, 1) + "\r\n"; head != want {
				t.Errorf("the origin saw\n%s\nwant\n%s", head, want)
			}
		})
	}
}

func dropOurs(f *Forward) {
	f.DropCookie = func(name []byte) bool { return bytes.HasPrefix(name, []byte("wr_")) }
}

// Host keeps its place among the lines and has the configured value.
func TestForward_Host(t *testing.T) {
	for _, tc := range []struct {
		name, request string
		preserve      bool
		sent          string // %O stands for the origin's own
	}{
		{"as it came", "X-A: 1\r\nhost: visitor.example\r\nX-B: 1\r\n", true, "X-A: 1\r\nhost: visitor.example\r\nX-B: 1\r\n"},
		{"between blanks", "X-A: 1\r\nhost:\tvisitor.example \r\n", true, "X-A: 1\r\nHost: visitor.example\r\n"},
		{"named by Connection", "Connection: host\r\nHost: visitor.example\r\n", true, "Host: visitor.example\r\n"},
		{"the origin's", "X-A: 1\r\nhost: visitor.example\r\nX-B: 1\r\n", false, "X-A: 1\r\nHost: %O\r\nX-B: 1\r\n"},
		{"HTTP/1.0 without", "X-A: 1\r\n", true, "Host: %O\r\nX-A: 1\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newRecorder(t, answering(okAnswer))
			cfg := to(o)
			cfg.PreserveHost = tc.preserve
			g := newGate(t, cfg, wire.Limits{}, nil)
			version := "1.1"
			if tc.name == "HTTP/1.0 without" {
				version = "1.0"
			}
			c := g.dial()
			c.Send("GET / HTTP/" + version + "\r\n" + tc.request + "\r\n")
			c.Answer("GET")
			head := o.requests()[0]
			if want := "GET / HTTP/1.1\r\n" + strings.Replace(tc.sent, "%O", o.ln.Addr().String(), 1) + "X-Forwarded-For: "; !strings.HasPrefix(head, want) {
				t.Errorf("%q\nwant %q", head, want)
			}
			if tc.name != "HTTP/1.0 without" && wiretest.HeaderValue(head, "X-Forwarded-Host") != "visitor.example" {
				t.Error(head)
			}
		})
	}
}

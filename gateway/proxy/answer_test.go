package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/wire"
)

func TestRequest_Answer(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
		g.early = func(ctx *fasthttp.RequestCtx) bool {
			if string(Target(ctx)) == "/proxied" {
				return false
			}
			if !Answer(ctx, at, 202, []byte("X-Ours: 1\r\n"), []byte("wait")) {
				t.Error("no answer was sent")
			}
			return true
		}
	})
	const begin = "HTTP/1.1 202 Accepted\r\nDate: Fri, 02 Jan 2026 03:04:05 GMT\r\nX-Ours: 1\r\nContent-Length: 4\r\n"
	for _, tc := range []struct {
		name, request, RequestHeader, Body string
		goesOn                             bool
	}{
		{"GET", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", begin + "\r\n", "wait", true},
		{"HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", begin + "\r\n", "", true},
		{"client closes", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", begin + "Connection: close\r\n\r\n", "wait", false},
		{"1.0", "GET / HTTP/1.0\r\nHost: a\r\n\r\n", begin + "Connection: close\r\n\r\n", "wait", false},
		{"1.0, keep-alive", "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", begin + "Connection: keep-alive\r\n\r\n", "wait", true},
		{"an unread body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 42\r\n\r\nGET /proxied HTTP/1.1\r\nHost: evil.test\r\n\r\n", begin + "\r\n", "wait", true},
		{"a body too long to drop", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\nx", begin + "Connection: close\r\n\r\n", "wait", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := g.dial()
			c.Send(tc.request)
			method, _, _ := strings.Cut(tc.request, " ")
			if _, head, body := c.Answer(method); head != tc.RequestHeader || body != tc.Body {
				t.Errorf("have\n%q %q\nwant\n%q %q", head, body, tc.RequestHeader, tc.Body)
			}
			if !tc.goesOn {
				c.Closed()
				return
			}
			c.Send("GET /proxied HTTP/1.1\r\nHost: a\r\n\r\n")
			if status, _, body := c.Answer("GET"); status != 200 || body != "ok" {
				t.Errorf("%d %q", status, body)
			}
		})
	}
	for _, r := range o.requests() {
		if strings.Contains(r, "evil") {
			t.Errorf("what was in a body ran as a request: %q", r)
		}
	}
}

// Only the first of two responses to one request is sent. A response that is too long for Answer is left to ctx.Response.
func TestRequest_AnswersOnce(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), wire.Limits{}, func(g *gate) {
		g.early = func(ctx *fasthttp.RequestCtx) bool {
			if Answer(ctx, time.Now(), 200, nil, make([]byte, http1.BlockSize)) {
				t.Error("an answer larger than a block was taken")
			}
			if string(Target(ctx)) == "/once" {
				Answer(ctx, time.Now(), 201, nil, []byte("once"))
				if Answer(ctx, time.Now(), 200, nil, []byte("twice")) {
					t.Error("a second answer was taken")
				}
				return true
			}
			ctx.SetStatusCode(203)
			ctx.SetBodyString("else")
			return true
		}
	})
	c := g.dial()
	for _, tc := range []struct {
		target string
		status int
		Body   string
	}{{"/once", 201, "once"}, {"/", 203, "else"}, {"/once", 201, "once"}} {
		c.Send("GET " + tc.target + " HTTP/1.1\r\nHost: a\r\n\r\n")
		if status, _, body := c.Answer("GET"); status != tc.status || body != tc.Body {
			t.Errorf("%s: %d %q", tc.target, status, body)
		}
	}
}

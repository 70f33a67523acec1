package proxy

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// What has arrived of a body goes on, wherever in its framing the origin pauses.
func TestNothingWaitsForWhatHasNotCome(t *testing.T) {
	const stream = "5;x=1\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n"
	const text = "hello world"
	decoded := func(n int) string {
		b, _ := io.ReadAll(newChunked(bufio.NewReader(strings.NewReader(stream[:n]))))
		return string(b)
	}
	for _, added := range []string{"as it came", "with a cookie of ours"} {
		t.Run(added, func(t *testing.T) {
			arrived := make(chan struct{})
			o := newRecorder(t, func(s *session) {
				for {
					var cut int
					if _, err := fmt.Sscanf(s.head(), "GET /%d ", &cut); err != nil {
						return
					}
					s.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + stream[:cut])
					select {
					case <-arrived:
					case <-t.Context().Done():
						return
					}
					s.write(stream[cut:])
				}
			})
			g := newGate(t, to(o), Limits{}, func(g *gate) {
				g.forward = func(_ *fasthttp.RequestCtx, f *Forward) {
					if added != "as it came" {
						f.OnlyWith, f.OnHeader = nil, func(h *fasthttp.ResponseHeader) { h.Add("Set-Cookie", "ours=1") }
					}
				}
			})
			c := g.dial()
			for cut := range len(stream) {
				c.send("GET /" + itoa(cut) + " HTTP/1.1\r\nHost: a\r\n\r\n")
				head, err := c.readHead()
				if err != nil || strings.Contains(head, "ours=1") != (added != "as it came") {
					t.Fatalf("%q, %v", head, err)
				}
				body := newChunked(c.r)
				first := make([]byte, len(decoded(cut)))
				if n, err := io.ReadFull(body, first); err != nil {
					t.Fatalf("after %q the client has %q: %v", stream[:cut], first[:n], err)
				}
				arrived <- struct{}{}
				rest, err := io.ReadAll(body)
				if got := string(first) + string(rest); err != nil || got != text {
					t.Fatalf("cut after %q: %q, %v", stream[:cut], got, err)
				}
			}
		})
	}
}

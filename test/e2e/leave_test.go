package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// keeper is a client with a persistent connection by RFC 9112. It does not reuse a connection after Connection: close, and sends a request
// again on a new connection if the old one ended before any response.
type keeper struct {
	at   []string // addresses; the next one is used when no program listens on the former
	c    net.Conn
	r    *bufio.Reader
	used bool
	told *atomic.Int64 // Connection: close
	lost atomic.Int64  // connections that ended between two requests
}

func (k *keeper) request(request string) error {
	for again := false; ; again = true {
		err := k.once(request)
		if err == nil {
			return nil
		}
		if k.c != nil {
			_ = k.c.Close()
			k.c = nil
		}
		if !k.used || again {
			return err
		}
		k.used = false
		k.lost.Add(1)
	}
}

func (k *keeper) once(request string) error {
	for k.c == nil {
		c, err := net.DialTimeout("tcp", k.at[0], patience)
		if err != nil {
			if k.at = k.at[1:]; len(k.at) == 0 {
				return err
			}
			continue
		}
		k.c, k.r, k.used = c, bufio.NewReader(c), false
	}
	_ = k.c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(k.c, request); err != nil {
		return fmt.Errorf("used=%v: %w", k.used, err)
	}
	resp, err := http.ReadResponse(k.r, nil)
	if err != nil {
		return fmt.Errorf("used=%v: %w", k.used, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(body) != "whole" {
		k.used = false // a response has begun, so the request is not repeated
		return fmt.Errorf("%d %q %w", resp.StatusCode, body, err)
	}
	k.used = true
	if resp.Close {
		k.told.Add(1)
		_ = k.c.Close()
		k.c = nil
	}
	return nil
}

// A gateway that receives SIGTERM under load fails no request: requests in progress are completed, and each client is told in time to use
// another gateway.
func TestSIGTERM_UnderLoadFailsNoRequest(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Origin", "yes")
		_, _ = io.WriteString(w, "whole")
	})
	s := setup{origin: site.URL, rooms: []string{"{id: sale, enabled: false}"}, more: "log: {access: false}\n"}
	leaves, stays := start(t, s), start(t, s)
	var served, told, lost atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 24 {
		clients.Go(func() {
			k := &keeper{at: []string{leaves.addr, stays.addr}, told: &told}
			request := "GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n"
			switch {
			case i%3 == 1:
				request = "POST / HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 5\r\n\r\nhello"
			case i%3 == 2: // one connection a request
				request = "GET / HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n"
				k.told = new(atomic.Int64)
			}
			for {
				select {
				case <-stop:
					if k.c != nil {
						_ = k.c.Close()
					}
					lost.Add(k.lost.Load())
					return
				default:
				}
				if err := k.request(request); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				served.Add(1)
			}
		})
	}
	until(t, "there is load", func() bool { return served.Load() > 500 })
	if n := told.Load(); n != 0 {
		t.Errorf("%d answers say close before anything happened", n)
	}
	leaves.signal(sigterm)
	if code := leaves.wait(); code != 0 {
		t.Errorf("exit %d", code)
	}
	before := served.Load()
	until(t, "the other one serves", func() bool { return served.Load() > before+200 })
	close(stop)
	clients.Wait()
	// A client that sends no request during this second finds its connection closed, which is no failure.
	if n := told.Load(); n == 0 || n+lost.Load() < 16 {
		t.Errorf("16 clients that keep their connections were told %d times to leave, and lost %d", n, lost.Load())
	}
}

// A gateway serves new requests until its balancers have had time to see that it is not ready.
func TestSIGTERM_WaitsForBalancers(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	// The gateway serves until /readyz was refused three times, for at most a third of shutdown_timeout and five seconds.
	g := start(t, setup{origin: site.URL, rooms: []string{"{id: sale, enabled: false}"}, more: "shutdown_timeout: 30s\n"})
	o, c := adminOf(t, g), newClient(t, g)
	o.ask(http.MethodGet, "/readyz", "").want(http.StatusOK)
	c.get(g, "/").want(http.StatusOK)
	g.signal(sigterm)
	until(t, "it is not ready", func() bool { return strings.Contains(g.process.text(), `"msg":"draining"`) })
	o.ask(http.MethodGet, "/readyz", "").want(http.StatusServiceUnavailable)
	g.signal(sighup) // too late for a reload, and must not end the process
	w := dialWire(t, g)
	if code, _ := w.get("/"); code != http.StatusOK {
		t.Errorf("a visitor who is still sent here: %d", code)
	}
	w.closed() // after the response
	o.ask(http.MethodGet, "/readyz", "").want(http.StatusServiceUnavailable)
	o.ask(http.MethodGet, "/readyz", "").want(http.StatusServiceUnavailable)
	if code := g.wait(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// manners are ways to hold a connection without using it.
var manners = []struct {
	name string
	of10 int    // share, in tenths
	says string // sent immediately
	drip string // then sent at one byte a second
	wait bool   // for the response, without reading further
}{
	{"connects and says nothing", 3, "", "", false},
	{"header a byte a second", 2, "GET / HTTP/1.1\r\nHost: a\r\nX-A: ", "v", false},
	{"body a byte a second", 1, "POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n", "b", false},
	{"asks and never reads", 1, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n", "", true},
	{"asks and reads a byte a second", 1, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n", "", true},
	{"idle after one request", 2, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", true},
}

// slowHeld is the longest time of a slow client by the settings of the test, with a margin for a busy machine.
const slowHeld = 20*time.Second + patience

// hold keeps one slow connection until the other side ends it, and returns how it ended.
func hold(ctx context.Context, addr, from string, manner int, up func()) error {
	m := manners[manner]
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		up()
		return err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if m.wait {
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
	}
	_, err = io.WriteString(c, m.says)
	if err == nil && m.wait {
		_, err = c.Read(make([]byte, 512))
	}
	up()
	if err != nil {
		return fmt.Errorf("%s: at the start: %w", m.name, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(slowHeld))
	over := make(chan error, 1)
	if strings.HasPrefix(m.name, "asks") {
		// The other side's reset is seen without reading all, by a write that fails.
		go func() {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for range tick.C {
				if m.name != "asks and never reads" {
					_, _ = c.Read(make([]byte, 1))
				}
				if _, err := io.WriteString(c, "\r\n"); err != nil {
					over <- nil
					return
				}
			}
		}()
		select {
		case err := <-over:
			return err
		case <-time.After(slowHeld):
			return fmt.Errorf("%s: is held for ever", m.name)
		}
	}
	go func() {
		_, err := io.Copy(io.Discard, c)
		if err != nil && os.IsTimeout(err) {
			over <- fmt.Errorf("%s: is held for ever", m.name)
			return
		}
		over <- nil
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-over:
			return err
		case <-tick.C:
			if m.drip != "" {
				_, _ = io.WriteString(c, m.drip)
			}
		}
	}
}

// rss is the memory of a process in kB.
func rss(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc")
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[0] == "VmRSS:" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}

// A thousand slow clients use only connections. Other clients are served as before, and each slow connection ends at its limit.
// SLOW_CLIENTS sets their number.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	many := 1000
	if text := os.Getenv("SLOW_CLIENTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		many = n
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/big":
			_, _ = w.Write(big)
		case "/slow":
			_, _ = io.Copy(io.Discard, r.Body)
		default:
			_, _ = io.WriteString(w, "whole")
		}
	}))
	t.Cleanup(site.Close)
	limit := 5 * time.Second
	if many > 5000 {
		limit = 20 * time.Second // so many clients need time to connect
	}
	g := start(t, setup{rooms: []string{"{id: sale, enabled: false}"}, more: fmt.Sprintf("log: {access: false}\nlimits: {header_timeout: %[1]s, body_idle: %[1]s, write_idle: %[1]s, idle: %[1]s}\n", limit) +
		"origins: [{id: shop, servers: [\"" + site.URL + "\"], max_conns: 20000, connect_timeout: 30s}]\n"})

	var served atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			told := new(atomic.Int64)
			k := &keeper{at: []string{g.addr}, told: told}
			for {
				select {
				case <-stop:
					_ = k.c.Close()
					return
				default:
				}
				began := time.Now()
				if err := k.request("GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n"); err != nil {
					t.Errorf("a client that is not slow: %v", err)
					return
				}
				served.Add(1)
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	p99 := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(took)
		at := took[len(took)*99/100]
		took = took[:0]
		return at
	}
	until(t, "others are served", func() bool { return served.Load() > 2000 })
	quiet, before := p99(), rss(t, g.cmd.Process.Pid)

	ctx, cancel := context.WithTimeout(t.Context(), 2*slowHeld)
	defer cancel()
	var slow, atOnce sync.WaitGroup
	errs := make(chan error, many)
	var up atomic.Int64
	turn := make(chan struct{}, 64) // so that the accept queue does not overflow
	for i := range many {
		manner, n := 0, i%10
		for n >= manners[manner].of10 {
			n -= manners[manner].of10
			manner++
		}
		turn <- struct{}{}
		atOnce.Add(1)
		slow.Go(func() {
			errs <- hold(ctx, g.addr, fmt.Sprintf("127.0.0.%d", 2+i%200), manner, func() { up.Add(1); <-turn; atOnce.Done() })
		})
	}
	atOnce.Wait()
	p99()
	from := served.Load()
	until(t, "others are served beside them", func() bool { return served.Load() > from+2000 })
	during, peak := p99(), rss(t, g.cmd.Process.Pid)
	slow.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	close(stop)
	others.Wait()
	t.Logf("%d slow clients: p99 of the others %s, without them %s; memory %d kB, without them %d kB, %.1f kB each",
		many, during, quiet, peak, before, float64(peak-before)/float64(many))
}

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/internal/redistest"
)

// A thousand visitors (FREEZE_VISITORS) poll, claim and shop at the same time, each on a connection, while the store hangs. All receive
// responses, no work accumulates in the gateway, and after the store resumes the gateway is as before.
func TestStoreHangs_NothingPilesUp(t *testing.T) {
	visitors := 1000
	if n, err := strconv.Atoi(os.Getenv("FREEZE_VISITORS")); err == nil {
		visitors = n
	}
	site := newOrigin(t, nil)
	store := redistest.Server(t)
	// The site runs in this process, and may be slow to accept so many connections.
	more := fmt.Sprintf("log: {access: false}\norigins: [{id: shop, servers: [%q], connect_timeout: 30s}]\n", site.URL)
	g := start(t, setup{more: more, rooms: []string{room("admission: {rate: 0.001, burst: 1}")}}.withRedisFor(store.URL(), "1s"))
	o, c := adminOf(t, g), newClient(t, g)
	pass := joins(c, g, "sale").Pass
	token := joins(c, g, "sale").Token
	client := &fasthttp.HostClient{
		Addr: g.addr, MaxConns: visitors, MaxConnWaitTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		Dial: func(addr string) (net.Conn, error) { return fasthttp.DialTimeout(addr, patience) },
	}
	t.Cleanup(client.CloseIdleConnections)
	kinds := []struct {
		name, method, path, header, value string
		codes                             []int
	}{
		{"with a pass", http.MethodGet, "/", "X-Waiting-Room-Pass", pass, []int{200}},
		{"polls", http.MethodGet, "/.waiting-room/sale/status", "X-Waiting-Room-Token", token, []int{200}},
		{"joins", http.MethodPost, "/.waiting-room/sale/tickets", "", "", []int{201}},
		{"claims", http.MethodPost, "/.waiting-room/sale/claim", "X-Waiting-Room-Token", token, []int{409, 503}},
	}
	var mu sync.Mutex
	took := make([][]time.Duration, len(kinds))
	var wrong atomic.Int64
	wave := func() {
		var all sync.WaitGroup
		for i := range visitors {
			all.Go(func() {
				k := kinds[i%len(kinds)]
				req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
				defer fasthttp.ReleaseRequest(req)
				defer fasthttp.ReleaseResponse(resp)
				req.SetRequestURI("http://" + g.addr + k.path)
				req.Header.SetMethod(k.method)
				if k.header != "" {
					req.Header.Set(k.header, k.value)
				}
				began := time.Now()
				err := client.DoTimeout(req, resp, patience)
				if err != nil || !slices.Contains(k.codes, resp.StatusCode()) {
					if wrong.Add(1) < 5 {
						t.Errorf("%s: %d %v", k.name, resp.StatusCode(), err)
					}
					return
				}
				mu.Lock()
				took[i%len(kinds)] = append(took[i%len(kinds)], time.Since(began))
				mu.Unlock()
			})
		}
		all.Wait()
	}
	wave() // opens the connections
	open := o.number("go_goroutines")
	store.Stop()
	clear(took)
	most := 0.0
	for range 4 {
		done := make(chan struct{})
		go func() { wave(); close(done) }()
		for running := true; running; {
			most = max(most, o.number("go_goroutines"))
			select {
			case <-done:
				running = false
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	until(t, "the store is known to hang", func() bool { return o.metric("anteroom_store_up 0") })
	var report string
	for i, k := range kinds {
		slices.Sort(took[i])
		if n := len(took[i]); n > 0 {
			report += fmt.Sprintf("; %s: p50 %s, p99 %s", k.name, took[i][n/2].Round(time.Millisecond), took[i][n*99/100].Round(time.Millisecond))
		}
	}
	t.Logf("goroutines: %.0f with %d connections, %.0f at most while the store hung%s", open, visitors, most, report)
	// One for each served connection, and as many again for waiting calls.
	if most > open+2*float64(visitors) {
		t.Errorf("%.0f goroutines, %.0f before", most, open)
	}
	store.Cont()
	until(t, "the store is heard again", func() bool { return o.metric("anteroom_store_up 1") })
	until(t, "the goroutines end", func() bool { return o.number("go_goroutines") <= open+50 })
}

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/freeport"
)

// ofServers is a site without a queue, on several servers.
func ofServers(settings string, urls ...string) setup {
	quoted := make([]string, len(urls))
	for i, u := range urls {
		quoted[i] = fmt.Sprintf("%q", u)
	}
	return setup{more: fmt.Sprintf("log: {access: false}\norigins: [{id: shop, servers: [%s]%s}]\n", strings.Join(quoted, ", "), settings)}
}

// visitors request a page repeatedly, each on its own connection.
type visitors struct {
	t    *testing.T
	good atomic.Int64
	stop chan struct{}
	wg   sync.WaitGroup

	mu  sync.Mutex
	bad []string
}

func visit(t *testing.T, g *gateway, n int) *visitors {
	v := &visitors{t: t, stop: make(chan struct{})}
	for range n {
		client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
		v.wg.Go(func() {
			defer client.CloseIdleConnections()
			for {
				select {
				case <-v.stop:
					return
				default:
				}
				resp, err := client.Get("http://" + g.addr + "/")
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					if err == nil && resp.StatusCode != http.StatusOK {
						err = fmt.Errorf("status %d", resp.StatusCode)
					}
				}
				if err != nil {
					v.mu.Lock()
					v.bad = append(v.bad, err.Error())
					v.mu.Unlock()
					continue
				}
				v.good.Add(1)
			}
		})
	}
	t.Cleanup(v.end)
	return v
}

// more waits for n more successful responses.
func (v *visitors) more(n int64) {
	v.t.Helper()
	want := v.good.Load() + n
	until(v.t, fmt.Sprintf("%d more requests are answered", n), func() bool { return v.good.Load() >= want })
}

// failures returns the failures since the last call.
func (v *visitors) failures() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	bad := v.bad
	v.bad = nil
	return bad
}

func (v *visitors) end() {
	v.mu.Lock()
	select {
	case <-v.stop:
	default:
		close(v.stop)
	}
	v.mu.Unlock()
	v.wg.Wait()
}

func (o *operator) metric(line string) bool {
	return strings.Contains(o.ask(http.MethodGet, "/metrics", "").want(http.StatusOK).body, line+"\n")
}

// One of two servers is killed: only the requests in progress may fail. After a restart the server is used again.
func TestServers_OneKilled(t *testing.T) {
	t.Parallel()
	const crowd = 8
	a, _ := startShopAt(t, "127.0.0.1:0")
	b, kill := startShopAt(t, freeport.Address(t))
	g := start(t, ofServers("", a, b))
	o := adminOf(t, g)
	v := visit(t, g, crowd)
	v.more(300)
	up := func(value int) string {
		return fmt.Sprintf(`anteroom_upstream_server_up{origin="shop",server=%q} %d`, b, value)
	}
	if bad := v.failures(); len(bad) > 0 || !o.metric(up(1)) {
		t.Fatalf("before: %q", bad)
	}
	kill()
	until(t, "it is known to be out", func() bool { return o.metric(up(0)) })
	v.more(100)
	if bad := v.failures(); len(bad) > crowd {
		t.Errorf("%d requests failed, of which %d at most were with it: %q", len(bad), crowd, bad)
	}
	v.more(1000)
	if bad := v.failures(); len(bad) > 0 {
		t.Errorf("long after: %q", bad)
	}
	startShopAt(t, strings.TrimPrefix(b, "http://"))
	until(t, "it is back", func() bool { return o.metric(up(1)) })
	v.more(300)
	v.end()
	if bad := v.failures(); len(bad) > 0 {
		t.Errorf("after its return: %q", bad)
	}
	until(t, "the log tells which server was out, and is back", func() bool {
		out, _ := g.line("origin server is out", "server")
		back, _ := g.line("origin server is back", "server")
		return out == b && back == b
	})
}

// counting is a site that counts its open connections.
type counting struct {
	*httptest.Server
	asked atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newCounting(t *testing.T, answer http.HandlerFunc) *counting {
	c := &counting{conns: map[net.Conn]bool{}}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.asked.Add(1)
		if answer != nil {
			answer(w, r)
		}
	}))
	c.Config.ConnState = func(conn net.Conn, s http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s == http.StateNew {
			c.conns[conn] = true
		}
		if s == http.StateClosed || s == http.StateHijacked {
			delete(c.conns, conn)
		}
	}
	c.Start()
	t.Cleanup(c.Close)
	return c
}

func (c *counting) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns)
}

// reload loads another configuration and waits until it is in force.
func (g *gateway) reload(s setup) {
	g.t.Helper()
	s.store = ownStore(g.dir)
	done := strings.Count(g.text(), "configuration reloaded")
	g.rewrite(s.yaml())
	g.signal(sighup)
	until(g.t, "the configuration is taken", func() bool { return strings.Count(g.text(), "configuration reloaded") > done })
}

// SIGHUP adds and removes servers under load. No request fails, and connections to removed servers end.
func TestServers_ChangeAtReload(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	a := newCounting(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			w.(http.Flusher).Flush()
			<-hold
			_, _ = io.WriteString(w, "at last")
		}
	})
	b := newCounting(t, nil)
	g := start(t, ofServers("", a.URL))
	slow := make(chan answer, 1)
	c := newClient(t).lax()
	go func() { slow <- c.get(g, "/slow") }()
	until(t, "the slow one is under way", func() bool { return a.asked.Load() > 0 })
	v := visit(t, g, 4)
	v.more(200)
	g.reload(ofServers("", a.URL, b.URL))
	until(t, "the new server is used", func() bool { return b.asked.Load() > 50 })
	g.reload(ofServers("", b.URL))
	until(t, "only the slow request is with the old one", func() bool { return a.open() == 1 })
	v.more(200)
	before := a.asked.Load()
	v.more(200)
	v.end()
	if n := a.asked.Load() - before; n > 0 {
		t.Errorf("%d requests went to a server that is gone", n)
	}
	if bad := v.failures(); len(bad) > 0 {
		t.Errorf("failed: %q", bad)
	}
	close(hold)
	if got := <-slow; got.code != http.StatusOK || got.body != "at last" {
		t.Errorf("the slow one: %d %q", got.code, got.body)
	}
	until(t, "no connection to the old server is left", func() bool { return a.open() == 0 })
}

// A server whose health check fails receives no requests until its checks succeed, also after a reload of other settings.
func TestServers_HealthChecks(t *testing.T) {
	t.Parallel()
	var ill atomic.Bool
	var pages atomic.Int64
	checked := make(chan string, 1000)
	a := newCounting(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" && ill.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		if r.URL.Path != "/healthz" {
			pages.Add(1)
			return
		}
		select {
		case checked <- r.Host:
		default:
		}
	})
	b := newCounting(t, nil)
	sites := func(more string) setup {
		return ofServers(", health: {path: /healthz, interval: 3s}"+more, a.URL, b.URL)
	}
	g := start(t, sites(""))
	o, c := adminOf(t, g), newClient(t).lax()
	if host := <-checked; "http://"+host != a.URL {
		t.Errorf("asked with Host %s", host)
	}
	up := fmt.Sprintf(`anteroom_upstream_server_up{origin="shop",server=%q} `, a.URL)
	if !o.metric(up + "1") {
		t.Error("not up at first")
	}
	ill.Store(true)
	until(t, "it is out", func() bool { return o.metric(up + "0") })
	until(t, "the log gives the reason", func() bool {
		reason, _ := g.line("origin server is out", "reason")
		return reason == "health check: status 500"
	})
	for range 10 {
		c.get(g, "/page").want(http.StatusOK)
	}
	if n := pages.Load(); n > 0 {
		t.Errorf("the server that is out had %d of 10", n)
	}
	g.reload(sites(", timeout: 29s"))
	if !o.metric(up + "0") {
		t.Error("a reload has forgotten that it is out")
	}
	ill.Store(false)
	until(t, "it is back", func() bool { return o.metric(up + "1") })

	// Without the path no check is sent, except for those that were already in progress.
	g.reload(ofServers("", a.URL, b.URL))
	until(t, "nobody asks", func() bool {
		for len(checked) > 0 {
			<-checked
		}
		<-time.After(5 * time.Second) // one check was due every three
		return len(checked) == 0
	})
}

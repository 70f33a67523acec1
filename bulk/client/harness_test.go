package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/api"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

// server is a bulk worker: the real API over a real store, and an engine once work is called.
type server struct {
	*httptest.Server
	store *store.Store
}

// fault stands in front of a server; next is the server.
type fault func(next http.Handler) http.Handler

func serve(t testing.TB, faults ...fault) *server {
	t.Helper()
	return serveWith(t, func(*store.Settings) {}, faults...)
}

func serveWith(t testing.TB, change func(*store.Settings), faults ...fault) *server {
	t.Helper()
	settings := store.Defaults()
	settings.UnknownTypeAfter = time.Millisecond
	settings.Global, settings.Lease = 1e6, 5*time.Second
	change(&settings)
	st, err := store.New(store.Options{Client: redistest.Client(t), Prefix: redistest.Prefix(t), Timeout: 10 * time.Second, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	a, err := api.New(api.Options{Store: st, ParseAggregate: bulk.ParseAggregate})
	if err != nil {
		t.Fatal(err)
	}
	h := a.Handler()
	for _, f := range faults {
		h = f(h)
	}
	s := &server{Server: httptest.NewUnstartedServer(h), store: st}
	s.Config.RegisterOnShutdown(a.Close)
	s.Start()
	t.Cleanup(func() {
		a.Close()
		s.Close()
	})
	return s
}

// work runs jobs until the test ends. "echo" returns its payload, "refuse" fails for good; jobs of any other type are dead after a moment.
func (s *server) work(t testing.TB) {
	t.Helper()
	e, err := bulk.New(bulk.Options{Store: s.store, Worker: bulk.WorkerOptions{Lease: 5 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	e.Register("echo", bulk.HandlerFunc(func(_ context.Context, j *bulk.Job) ([]byte, error) { return j.Payload, nil }))
	e.Register("refuse", bulk.HandlerFunc(func(context.Context, *bulk.Job) ([]byte, error) {
		return nil, bulk.Permanent("refused", errors.New("no such person"))
	}))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the engine: %v", err)
		}
	})
}

// lines are n jobs without ids.
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"payload":{"n":%d,"text":"%s"}}`+"\n", i, strings.Repeat("x", i%50))
	}
	return b.String()
}

func create(t testing.TB, c *Client, spec GroupSpec) *Group {
	t.Helper()
	if spec.Tenant == "" {
		spec.Tenant = "acme"
	}
	if spec.Type == "" {
		spec.Type = "echo"
	}
	g, err := c.CreateGroup(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// submit makes a sealed group of these lines.
func submit(t testing.TB, c *Client, spec GroupSpec, jobs string) *Group {
	t.Helper()
	g := create(t, c, spec)
	if _, err := c.AddLines(t.Context(), g.ID, strings.NewReader(jobs), Upload{}); err != nil {
		t.Fatal(err)
	}
	g, err := c.Seal(t.Context(), g.ID)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// end watches a group to its end.
func end(t testing.TB, c *Client, id string) *Group {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last *Group
	for g, err := range c.Watch(ctx, id) {
		if err != nil {
			t.Fatalf("watching %s, last %+v: %v", id, last, err)
		}
		last = g
	}
	return last
}

func newClient(t testing.TB, url string, o Options) *Client {
	t.Helper()
	c, err := New(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.o.HTTP.CloseIdleConnections)
	return c
}

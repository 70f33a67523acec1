package span

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/tracing"
)

// sampling returns a tracer for a share of requests, whose collector drops what it gets.
func sampling(t testing.TB, share float64) *tracing.Tracer {
	t.Helper()
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(collector.Close)
	tracer, err := tracing.New(tracing.Options{Endpoint: collector.URL, Sample: share, Service: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracer.Shutdown(t.Context()) })
	return tracer
}

// ask does what a request with a pass does.
func ask(tracer *tracing.Tracer, now time.Time) (traced bool) {
	r := New(tracer)
	if r.Decide(Caller{Began: now}); !r.Traced() {
		return false
	}
	x, _, _ := r.Exchange("GET", "shop")
	r.EndExchange(x, &proxy.Outcome{Status: 200, Server: "http://127.0.0.1:9000", FirstByte: time.Millisecond}, "/sale")
	r.End(&Facts{Method: "GET", Path: "/sale", Scheme: "http", Host: "shop.test", Protocol: "1.1", Route: "/sale", Client: "192.0.2.1", Room: "sale", Outcome: "proxied", Decision: "pass", Status: 200}, now.Add(time.Millisecond))
	return true
}

// A request that is not traced allocates nothing.
func TestDecide_CostsNothingUntraced(t *testing.T) {
	now := time.Now()
	for name, tracer := range map[string]*tracing.Tracer{"off": nil, "on, and not chosen": sampling(t, 0)} {
		if n := testing.AllocsPerRun(100, func() {
			if ask(tracer, now) {
				t.Error("it is traced")
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for name, share := range map[string]float64{"untraced": 0, "traced": 1} {
		b.Run(name, func(b *testing.B) {
			tracer := sampling(b, share)
			b.ReportAllocs()
			now := time.Now()
			for b.Loop() {
				ask(tracer, now)
			}
		})
	}
}

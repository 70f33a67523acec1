package gateway

import (
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

// Against a plain GCRA with a map, for a few sessions at any times.
func TestRequestsAreMeteredAsGCRA(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := newRequests()
		q := Quota{rapid.Int64Range(1, 1000).Draw(t, "n"), rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Hour, 24 * time.Hour}).Draw(t, "per")}
		gateways := rapid.Int64Range(0, 4).Draw(t, "gateways")
		interval := max(1, int64(q.Per/meterStep)*max(1, gateways)/q.N)
		full := map[int]int64{}
		var sessions [5]token.ID
		for i := range sessions {
			sessions[i] = randomID()
		}
		now := time.Duration(0)
		for range rapid.IntRange(1, 300).Draw(t, "requests") {
			now += time.Duration(rapid.Int64Range(0, int64(q.Per)/q.N*2).Draw(t, "later"))
			s := rapid.IntRange(0, 4).Draw(t, "session")
			at := int64(now / meterStep)
			want := time.Duration(0)
			if over := max(at, full[s]) - at - max(0, int64(q.Per/meterStep)-interval); over > 0 {
				want = time.Duration(over) * meterStep
			} else {
				full[s] = max(at, full[s]) + interval
			}
			if got := r.take(sessions[s], now, q, gateways); got != want {
				t.Fatalf("session %d at %s: wait %s, want %s", s, now, got, want)
			}
		}
	})
}

// However many connections a session uses at once, it gets what it may; others are not in its way.
func TestRequestsOfOneSessionRace(t *testing.T) {
	t.Parallel()
	r := newRequests()
	sid, q := randomID(), Quota{100, time.Hour}
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if r.take(sid, time.Minute, q, 1) == 0 {
					passed.Add(1)
				}
				r.take(randomID(), time.Minute, q, 1)
			}
		})
	}
	all.Wait()
	if passed.Load() != 100 {
		t.Errorf("%d requests passed, want 100", passed.Load())
	}
}

func TestSessionRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t, "shop", nil)
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	o := Options{
		Origins: []proxy.Config{originAt("shop", s.URL)},
		Rooms:   []Room{{ID: "sale", Policy: policy(0), Renew: true, MaxSession: time.Hour, SessionRequests: Quota{3, time.Hour}}},
	}
	b := start(t, client, prefix, o)
	_, mine := aPass(t, "sale", 0, 300, "")
	_, other := aPass(t, "sale", 0, 300, "")
	for range 3 {
		b.call("GET /", "X-Waiting-Room-Pass: "+mine).code(t, 200)
	}
	a := b.call("GET /", "X-Waiting-Room-Pass: "+mine, asJSON).code(t, 429)
	if wait := a.header.Get("Retry-After"); len(wait) != 4 || wait[:2] != "11" && wait[:2] != "12" {
		t.Errorf("Retry-After %q, want about 1200", wait)
	}
	if a.field("code") != "session_requests" || len(a.cookies) > 0 {
		t.Errorf("%s", a.text())
	}
	if p := b.call("GET /", "Cookie: wr_sale_pass="+mine, asPage).code(t, 429); !strings.Contains(p.body, "Too many requests") {
		t.Errorf("%s", p.text())
	}
	b.call("GET /a.png", "Cookie: wr_sale_pass="+mine, "Sec-Fetch-Dest: image").code(t, 429)
	b.call("GET /", "X-Waiting-Room-Pass: "+other).code(t, 200)
	if n := testutil.ToFloat64(b.metrics.Room("sale").OverQuota); n != 3 {
		t.Errorf("session_requests_refused_total %v, want 3", n)
	}
	eventually(t, "3 are counted as refused", func() bool { // after their answers are sent
		return testutil.ToFloat64(b.metrics.Room("sale").Requests[refused]) == 3
	})
	reload(t, b, func(r *Room) { r.SessionRequests = Quota{3, time.Minute} }) // of which that hour's three have used nothing
	b.call("GET /", "X-Waiting-Room-Pass: "+mine).code(t, 200)
	reload(t, b, func(r *Room) { r.SessionRequests = Quota{} })
	b.call("GET /", "X-Waiting-Room-Pass: "+mine).code(t, 200) // the session never ended

	// Two gateways share the limit.
	second := start(t, client, prefix, o)
	reload(t, b, func(r *Room) { r.SessionRequests = Quota{4, time.Hour} })
	reload(t, second, func(r *Room) { r.SessionRequests = Quota{4, time.Hour} })
	both := []*bench{b, second}
	for _, g := range both {
		eventually(t, "both gateways are counted", func() bool { return g.line("sale").Snapshot().Gateways == 2 })
	}
	_, third := aPass(t, "sale", 0, 300, "")
	passed := 0
	for i := range 20 {
		if both[i%2].call("GET /", "X-Waiting-Room-Pass: "+third, asJSON).status == 200 {
			passed++
		}
	}
	if passed != 4 {
		t.Errorf("%d requests passed at two gateways, want 4", passed)
	}
}

func BenchmarkRequests(b *testing.B) {
	r, q := newRequests(), Quota{1 << 40, time.Hour}
	sids := make([]token.ID, 1<<10)
	for i := range sids {
		sids[i] = randomID()
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.take(sids[i&1023], time.Duration(i)*time.Microsecond, q, 1)
	}
}

// Client addresses, of which many differ in a byte alone, do not crowd each other out.
func TestRequests_KeepNeighbouringAddressesApart(t *testing.T) {
	r, q := newRequests(), Quota{N: 1, Per: time.Hour}
	const addresses = 1000
	id := func(i int) token.ID {
		return proxy.ClientKey(netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}))
	}
	for i := range addresses {
		r.take(id(i), 0, q, 1)
	}
	kept := 0
	for i := range addresses {
		if r.exhausted(id(i), 0, q, 1) > 0 {
			kept++
		}
	}
	if kept < addresses*95/100 {
		t.Errorf("%d of %d addresses are remembered", kept, addresses)
	}
}

package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/gateway/meter"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestSessionRequests_AreLimited(t *testing.T) {
	t.Parallel()
	s := newSite(t, "shop", nil)
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	o := Options{
		Origins: []proxy.Config{originAt("shop", s.URL)},
		Rooms:   []Room{{ID: "sale", Policy: policy(0), Renew: true, MaxSession: time.Hour, SessionRequests: meter.Quota{N: 3, Per: time.Hour}}},
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
	eventually(t, "3 are counted as refused", func() bool { // after their responses are sent
		return testutil.ToFloat64(b.metrics.Room("sale").Requests[refused]) == 3
	})
	reload(t, b, func(r *Room) { r.SessionRequests = meter.Quota{N: 3, Per: time.Minute} }) // a new quota: the requests of the former quota do not count
	b.call("GET /", "X-Waiting-Room-Pass: "+mine).code(t, 200)
	reload(t, b, func(r *Room) { r.SessionRequests = meter.Quota{} })
	b.call("GET /", "X-Waiting-Room-Pass: "+mine).code(t, 200) // the session never ended

	// Two gateways share the limit.
	second := start(t, client, prefix, o)
	reload(t, b, func(r *Room) { r.SessionRequests = meter.Quota{N: 4, Per: time.Hour} })
	reload(t, second, func(r *Room) { r.SessionRequests = meter.Quota{N: 4, Per: time.Hour} })
	both := []*bench{b, second}
	for _, g := range both {
		eventually(t, "both gateways are counted", func() bool { return g.queue("sale").Snapshot().Gateways == 2 })
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

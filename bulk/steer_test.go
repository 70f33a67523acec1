package bulk

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// When a visitor begins to wait, the gateway reports it at once. At the worker's next read the rate of jobs is at its minimum, whatever
// else happens in this second. While more jobs run than that, gateways can read it.
func TestSteerer_YieldsBetweenSteps(t *testing.T) {
	t.Parallel()
	client, prefix, ctx := redistest.Client(t), redistest.Prefix(t), t.Context()
	gateway, err := admission.New(admission.Options{Client: client, Prefix: prefix, Timeout: patience / 2, Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	room := gateway.Room("sale", admission.Policy{Enabled: true, Method: admission.FIFO, Origin: "shop", Absence: 10 * time.Minute,
		ClaimWindow: time.Minute, SessionTTL: time.Minute, OnStoreError: admission.OnErrorWait})
	if err := room.Tick(ctx); err != nil {
		t.Fatal(err)
	}
	gateway.Origin("shop").Add(time.Millisecond, false)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := openStore(t, client, prefix, func(c *store.Settings) { c.Adaptive = true })
	p := plant
	p.People = "shop"
	var pace atomic.Pointer[Pace]
	pace.Store(&p)
	worker := &steerer{store: s, pace: &pace, people: gateway, recent: &recent{}, metrics: NewMetrics(nil, ""), log: discard()}
	health := func() admission.OriginHealth {
		t.Helper()
		h, err := gateway.OriginHealth(ctx, "shop")
		ok(err)
		return h
	}
	ok(gateway.PublishHealth(ctx))
	ok(worker.steer(ctx))
	ok(worker.yieldAtOnce(ctx))
	if worker.fence == 0 || worker.found < p.Begin || health().Jobs {
		t.Fatalf("it begins with %d (fence %d), jobs run: %t", worker.found, worker.fence, health().Jobs)
	}
	submit(t, s, store.GroupSpec{ID: "g", Tenant: "acme"}, 3, func(int) string { return "1" })
	_, err = s.Pull(ctx, 3)
	ok(err)
	ok(worker.steer(ctx))
	if !health().Jobs {
		t.Error("gateways do not know of the jobs that run")
	}
	if _, _, err := room.Join(ctx, admission.Arrival{ID: admission.ID{1}, Interval: time.Minute}); err != nil {
		t.Fatal(err)
	}
	ok(worker.yieldAtOnce(ctx))
	if worker.found <= p.Policy.MinRate {
		t.Fatal("jobs give way to nobody")
	}
	ok(gateway.PublishWaiting(ctx))
	if h := health(); h.Waiting != 1 || h.Requests != 1 {
		t.Fatalf("gateways say %+v", h)
	}
	ok(worker.yieldAtOnce(ctx))
	limits, err := s.Limits(ctx)
	ok(err)
	if worker.found != p.Policy.MinRate || limits.Global != float64(p.Policy.MinRate)/1000 {
		t.Fatalf("while somebody waits: %d, %+v", worker.found, limits)
	}
}

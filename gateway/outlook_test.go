package gateway

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

// A ticket that was taken at one gateway and admitted at another is measured at the second.
func TestEstimate_IsComparedWithWaitAtAnyGateway(t *testing.T) {
	t.Parallel()
	s, client, prefix := newSite(t, "shop", nil), redistest.Client(t), redistest.Prefix(t)
	p := policy(1)
	p.Rate = 700
	gateway := func() *bench {
		return start(t, client, prefix, Options{Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: p}}})
	}
	a, b := gateway(), gateway()
	a.call("GET /", asJSON).code(t, 200)
	var announced token.Waiting
	real := 0.0
	for real < 1 { // seconds; shorter waits are not compared
		w := a.call("POST /.waiting-room/sale/tickets", asJSON).code(t, 201)
		if w.field("state") != "waiting" {
			continue
		}
		var err error
		announced, err = testRing(t).VerifyWaiting([]byte(w.field("token")), "sale", b.queue("sale").RedisNow()/1e6)
		if err != nil || announced.Promised < 1 || announced.PromisedLow > announced.Promised || announced.PromisedHigh < announced.Promised {
			t.Fatalf("the token says %+v, %v; the answer %s", announced, err, w.body)
		}
		var in *response
		eventually(t, "the turn comes at the other gateway", func() bool {
			in = b.call("GET /.waiting-room/sale/status", "X-Waiting-Room-Token: "+w.field("token"))
			return in.field("pass") != ""
		})
		real = instant(t, in.field("admitted_at")).Sub(instant(t, in.field("joined_at"))).Seconds()
	}
	for name, want := range map[*bench]int{a: 0, b: 1} {
		if got, err := testutil.GatherAndCount(name.reg, "anteroom_eta_error_ratio"); err != nil || got != 2 { // the room, and requests of none
			t.Errorf("%d rooms have a histogram, %v", got, err)
		}
		total := 0.0
		for _, c := range name.metrics.Room("sale").Ranges {
			total += testutil.ToFloat64(c)
		}
		if int(total) != want {
			t.Errorf("%v waits are held against their promise, want %d", total, want)
		}
	}
	if ratio, known := b.Views()[0].WaitError(); !known || math.Abs(ratio*real/float64(announced.Promised)-1) > 0.01 {
		t.Errorf("%d s over %v s: %v, %v", announced.Promised, real, ratio, known)
	}
	if _, known := b.Views()[0].WaitCoverage(); !known {
		t.Error("whether the range held is not known")
	}
}

func instant(t testing.TB, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// A model that is too old is not used, and the gateway logs that. A reload with a newer model ends the fallback.
func TestModel_TooOldIsNotUsed(t *testing.T) {
	t.Parallel()
	model := func(year string) *eta.Model {
		m, err := eta.ReadModel(strings.NewReader(`{"format":"anteroom-eta-model","version":1,"trained_at":"` + year + `-01-01T00:00:00Z",
"features":["log_seconds","hour","hour_then","minute","five","quarter","used","full","gone"],
"low":[0,0,0,-3,-3,-3,0,0,0],"high":[20,24,24,3,3,3,1,1,1],"base":1,"most":1.5,"trees":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	room := Room{ID: "sale", Policy: policy(1), Estimator: "model", ETA: eta.Options{Model: model("2001"), ModelMaxAge: time.Hour}}
	b, _ := one(t, room)
	b.call("GET /", asJSON).code(t, 200)
	b.call("GET /", asJSON).code(t, 202)
	fallback := func(old string) bool {
		b.state.Load().byID["sale"].forecaster.Room()
		return testutil.GatherAndCompare(b.reg, strings.NewReader(`
# HELP anteroom_eta_fallback 1 while the model is not used for estimates, by reason.
# TYPE anteroom_eta_fallback gauge
anteroom_eta_fallback{reason="missing",room="sale"} 0
anteroom_eta_fallback{reason="old",room="sale"} `+old+`
anteroom_eta_fallback{reason="out_of_range",room="sale"} 0
`), "anteroom_eta_fallback") == nil
	}
	eventually(t, "the model is too old", func() bool { return fallback("1") })
	if log := b.logs.String(); !strings.Contains(log, "the model is not used") || !strings.Contains(log, `"reason":"old"`) {
		t.Errorf("the log does not say so:\n%s", log)
	}
	o := b.o
	o.Rooms = []Room{room}
	o.Rooms[0].ETA = eta.Options{Model: model("2999"), ModelMaxAge: time.Hour}
	if err := b.Reload(o); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new one is used", func() bool { return fallback("0") })
}

// A closed room has no wait estimate, whatever its rate, unless an opening is planned.
func TestForecast_ClosedRoomAdmitsNobody(t *testing.T) {
	t.Parallel()
	p := policy(1)
	p.Rate = 100
	b, _ := one(t, Room{ID: "sale", Policy: p})
	b.call("GET /", asJSON).code(t, 200)
	w := b.call("POST /.waiting-room/sale/tickets").code(t, 201)
	queue := b.queue("sale")
	announced := func(state string, eta bool) {
		t.Helper()
		eventually(t, state, func() bool {
			a := b.call("GET /.waiting-room/sale/status", "X-Waiting-Room-Token: "+w.field("token")).code(t, 200)
			if a.field("state") != state {
				return false
			}
			if has := strings.Contains(a.body, `"eta"`); has != eta || a.field("position") != "1" {
				t.Errorf("%s: %s", state, a.body)
			}
			return true
		})
	}
	announced("waiting", true)
	closed := admission.Reject
	if err := queue.Patch(t.Context(), "ann", admission.Live{Method: &closed}); err != nil {
		t.Fatal(err)
	}
	announced("rejected", false)
	if err := queue.Patch(t.Context(), "ann", admission.Live{Clear: []string{"method"}}); err != nil {
		t.Fatal(err)
	}
	announced("waiting", true)

	now := time.Now()
	shut := admission.Event{Starts: now.Add(-time.Hour).UnixMicro(), Ends: now.Add(time.Hour).UnixMicro(), Method: admission.Reject}
	p.Plan = admission.NewPlan(nil, "sale", &p, []admission.Event{shut})
	o := b.o
	o.Rooms = []Room{{ID: "sale", Policy: p}}
	if err := b.Reload(o); err != nil {
		t.Fatal(err)
	}
	announced("rejected", true)
	if e := b.state.Load().byID["sale"].forecaster.Room().Waits.At(0); e.Seconds < 3000 || e.Seconds > 4000 {
		t.Errorf("the next visitor is admitted after %v s, want an hour and the time of one place", e.Seconds)
	}
}

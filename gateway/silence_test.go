package gateway

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

// timedFleet is gateways over one store, by a clock of the test.
type timedFleet struct {
	t        testing.TB
	us       atomic.Int64
	client   redis.UniversalClient
	prefix   string
	gateways []*bench
}

const liveLife = 12 * time.Hour

// live is a policy whose gateways keep sessions alive. It admits burst visitors.
func live(burst int64) admission.Policy {
	p := policy(burst)
	p.PassLife = liveLife
	return p
}

func newTimedFleet(t testing.TB, rooms ...Room) *timedFleet {
	t.Helper()
	f := &timedFleet{t: t, client: redistest.Client(t), prefix: redistest.Prefix(t)}
	f.us.Store(time.Now().UnixMicro())
	s := newSite(t, "shop", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/done" {
			w.Header().Set("X-Waiting-Room-Command", "revoke")
		}
		fmt.Fprint(w, "ok")
	})
	for range 2 {
		f.gateways = append(f.gateways, startAt(t, f.client, f.prefix, calm, f.us.Load, Options{
			Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: rooms,
		}))
	}
	return f
}

// pass lets time pass while the gateways tick. A longer step would be a silence of the store.
func (f *timedFleet) pass(d time.Duration) {
	f.t.Helper()
	for ; d > 0; d -= 4 * time.Second {
		f.us.Add(min(d, 4*time.Second).Microseconds())
		for _, b := range f.gateways {
			if err := b.queue("sale").Tick(f.t.Context()); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

// readPass returns the claims of a pass by the clock of the test.
func (f *timedFleet) readPass(raw string) token.Pass {
	f.t.Helper()
	p, err := testRing(f.t).VerifyPass([]byte(raw), "sale", f.us.Load()/1e6)
	if err != nil {
		f.t.Fatalf("the pass %q: %v", raw, err)
	}
	return p
}

// calls returns how often the gateways of the fleet have run a script.
func (f *timedFleet) calls(script string) (n int) {
	f.t.Helper()
	for _, b := range f.gateways {
		families, err := b.reg.Gather()
		if err != nil {
			f.t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() != "anteroom_store_command_seconds" {
				continue
			}
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetValue() == script {
						n += int(m.GetHistogram().GetSampleCount())
					}
				}
			}
		}
	}
	return n
}

func saleRoom(p admission.Policy) Room {
	return Room{ID: "sale", Policy: p, Renew: true, MaxSession: liveLife}
}

// A visitor whose cookie is never renewed stays in for an hour, at the cost in store calls of one whose cookie is. The session then
// ends after ttl to 1.5 ttl of silence, at every gateway.
func TestLivePass_LastsWithoutCookie(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Minute
	heartbeats := map[string]int{}
	for _, row := range []struct {
		name  string
		p     admission.Policy
		keeps bool // the client keeps the cookies of later responses
	}{{"renewed cookie", policy(9), true}, {"first cookie", live(9), false}} {
		f := newTimedFleet(t, saleRoom(row.p))
		one, two := f.gateways[0], f.gateways[1]
		in := one.call("GET /", asPage).code(t, 200)
		jar := in.jar()
		one.rate("sale", 0)
		f.pass(8 * time.Second)
		before := f.calls("room_heartbeat")
		for range 30 {
			f.pass(2 * time.Minute)
			a := one.call("GET /", jar).code(t, 200)
			if again := a.cookies["wr_sale_pass"]; row.keeps && again != "" {
				jar = a.jar()
			} else if again != "" {
				t.Fatal("the pass is signed again")
			}
		}
		f.pass(4 * time.Second)
		heartbeats[row.name] = f.calls("room_heartbeat") - before
		if row.keeps {
			continue
		}
		p := f.readPass(in.cookies["wr_sale_pass"])
		if !p.Live || p.Expires-p.IssuedAt != int64(liveLife.Seconds()) {
			t.Errorf("the pass is %+v", p)
		}
		for _, header := range in.header["Set-Cookie"] {
			if c, err := http.ParseSetCookie(header); err == nil && c.Name == "wr_sale_pass" && c.MaxAge != int((liveLife+10*time.Minute).Seconds()) {
				t.Errorf("the cookie lives for %d s", c.MaxAge)
			}
		}
		f.pass(ttl - 4*time.Second)
		two.call("GET /", jar).code(t, 200)
		f.pass(ttl*3/2 + 8*time.Second)
		first := one.call("GET /", asJSON, jar).code(t, 202)
		two.call("GET /", asJSON, jar).code(t, 202)
		if n := one.queue("sale").Snapshot().Active; n != 0 {
			t.Errorf("%d sessions count", n)
		}
		if testutil.ToFloat64(one.metrics.RejectedTokens["expired"]) == 0 {
			t.Error("the pass is not counted as an expired token")
		}
		w, err := testRing(t).VerifyWaiting([]byte(first.field("token")), "sale", f.us.Load()/1e6)
		if err != nil || w.Order != p.Order || w.Used < int64(time.Hour.Seconds()) {
			t.Errorf("the visitor waits with %+v %v, want order %d", w, err, p.Order)
		}
	}
	if heartbeats["first cookie"] != heartbeats["renewed cookie"] || heartbeats["first cookie"] == 0 {
		t.Errorf("calls of room_heartbeat: %v", heartbeats)
	}
}

// Changing session.renew by a reload ends no session. A pass is as it was signed: a short one lasts until its end, and one of a session
// that the gateways keep alive as long as they do.
func TestLivePass_ReloadEndsNoSession(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Minute
	f := newTimedFleet(t, saleRoom(policy(9)))
	reload := func(p admission.Policy) {
		t.Helper()
		for _, b := range f.gateways {
			o := b.o
			o.Rooms = []Room{saleRoom(p)}
			if err := b.Reload(o); err != nil {
				t.Fatal(err)
			}
		}
		f.pass(4 * time.Second)
	}
	one, two := f.gateways[0], f.gateways[1]
	short := one.call("GET /", asPage).code(t, 200).jar()
	one.rate("sale", 0)
	f.pass(time.Minute)
	reload(live(9))
	a := two.call("GET /", short).code(t, 200)
	long := a.jar()
	if p := f.readPass(a.cookies["wr_sale_pass"]); !p.Live || p.Expires-p.IssuedAt != int64(liveLife.Seconds()) {
		t.Fatalf("the short pass became %+v", p)
	}
	one.call("GET /", short).code(t, 200)
	f.pass(ttl)
	one.call("GET /", "Sec-Fetch-Dest: image", short).code(t, 503) // its own end; a visitor with it would come back, and end the session
	if got := one.call("GET /", long).code(t, 200).cookies["wr_sale_pass"]; got != "" {
		t.Error("the new pass is signed again")
	}
	reload(policy(9))
	for range 4 {
		f.pass(ttl - 8*time.Second)
		two.call("GET /", long).code(t, 200)
	}
	f.pass(ttl*3/2 + 8*time.Second)
	two.call("GET /", asJSON, long).code(t, 202)
}

// A session that has ended by silence stays ended when session.ttl is raised: another visitor may have its slot of max_active.
func TestLivePass_RaisedTTLRevivesNoSession(t *testing.T) {
	t.Parallel()
	p := live(9)
	p.MaxActive, p.SessionTTL = 1, 8*time.Second
	f := newTimedFleet(t, saleRoom(p))
	one, two := f.gateways[0], f.gateways[1]
	f.pass(6 * time.Minute) // for the first ttl of a store every session counts
	silent := one.call("GET /", asPage).code(t, 200).jar()
	f.pass(16 * time.Second)
	next := two.call("GET /", asPage).code(t, 200).jar()
	if err := one.queue("sale").Patch(t.Context(), "ann", admission.Live{SessionTTL: new(5 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	f.pass(4 * time.Second)
	for _, b := range f.gateways {
		b.call("GET /", asJSON, silent).code(t, 202)
		b.call("GET /", asJSON, next).code(t, 200)
	}
	f.pass(4 * time.Second)
	if n := one.queue("sale").Snapshot().Active; n != 1 {
		t.Errorf("%d sessions count, of max_active 1", n)
	}
}

// A session that its origin revokes is over at every gateway.
func TestLivePass_Revoked(t *testing.T) {
	t.Parallel()
	f := newTimedFleet(t, saleRoom(live(1)))
	one, two := f.gateways[0], f.gateways[1]
	jar := one.call("GET /", asPage).code(t, 200).jar()
	f.pass(4 * time.Second)
	two.call("GET /", jar).code(t, 200)
	one.call("GET /done", jar).code(t, 200)
	f.pass(4 * time.Second)
	for _, b := range f.gateways {
		b.call("GET /", asJSON, jar).code(t, 202)
	}
}

// After a loss of the store's data a session of a gateway that has died goes on; one that is silent for ttl after the loss does not.
func TestLivePass_AfterLoss(t *testing.T) {
	t.Parallel()
	f := newTimedFleet(t, saleRoom(live(9)))
	one, two := f.gateways[0], f.gateways[1]
	jar, silent := one.call("GET /", asPage).code(t, 200).jar(), one.call("GET /", asPage).code(t, 200).jar()
	f.pass(time.Minute)
	one.stop()
	f.gateways = f.gateways[1:]
	keys, err := f.client.Keys(t.Context(), f.prefix+":{room:sale}:*").Result()
	if err != nil || f.client.Del(t.Context(), keys...).Err() != nil {
		t.Fatal(err)
	}
	f.pass(3 * time.Minute)
	two.call("GET /", asJSON, jar).code(t, 200)
	f.pass(4 * time.Minute)
	two.call("GET /", asJSON, jar).code(t, 200)
	two.call("GET /", asJSON, silent).code(t, 202)
}

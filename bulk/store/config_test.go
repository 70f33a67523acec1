package store

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// TestConfigure_ChangesOrder: jobs that are queued, gated or ready under one configuration start under every other one.
func TestConfigure_ChangesOrder(t *testing.T) {
	modes := map[string]func(*Settings){
		"fair":    func(*Settings) {},
		"strict":  func(set *Settings) { set.Strict = true },
		"score":   func(set *Settings) { set.Policy = "score" },
		"classic": func(set *Settings) { set.Policy, set.Limiter, set.Gating = "score", "fixed_window", false },
	}
	for from, before := range modes {
		for to, after := range modes {
			if from == to {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				s, c := open(t, func(set *Settings) { before(set); set.PerTenant, set.Burst, set.Global = 50, 5, 200 })
				for i, level := range []Level{High, Normal, Low} {
					for _, tenant := range []string{"a", "b"} {
						id := tenant + string(level)
						create(t, s, GroupSpec{ID: id, Tenant: tenant, Level: level, Rate: []float64{0, 20, 0}[i]})
						add(t, s, id, 0, 30)
					}
				}
				done := 0
				work := func(want int) {
					dispatch(t, s)
					jobs := pull(t, s, want).Jobs
					done += len(jobs)
					ack(t, s, Done, jobs...)
					c.advance(100 * time.Millisecond)
				}
				for range 5 {
					work(3)
				}
				clean(t, s)
				set := s.Settings()
				d := Defaults()
				set.Policy, set.Strict, set.Gating, set.Limiter = d.Policy, d.Strict, d.Gating, d.Limiter
				after(&set)
				if err := s.Configure(set); err != nil {
					t.Fatal(err)
				}
				for i := 0; i < 600 && done < 180; i++ {
					work(10)
					if i < 20 {
						clean(t, s)
					}
				}
				if done != 180 {
					t.Errorf("%d jobs of 180 ran", done)
				}
				clean(t, s)
			})
		}
	}
}

// TestClassicPipeline_KeepsRateOfGroup: the rate of a group, and of a redrive, was ignored.
func TestClassicPipeline_KeepsRateOfGroup(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.Policy, set.Limiter, set.Gating = "score", "fixed_window", false })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Rate: 5})
	add(t, s, "g", 0, 100)
	started := 0
	for end := c.us + 10_000_000; c.us < end; c.advance(100 * time.Millisecond) {
		dispatch(t, s)
		jobs := pull(t, s, 20).Jobs
		started += len(jobs)
		ack(t, s, Done, jobs...)
	}
	if started == 0 || started > 50 {
		t.Errorf("%d starts in 10 s at 5/s", started)
	}
	clean(t, s)
}

// TestPull_IsBounded: under the score policy, one pull gated every group of a tenant whose rate was spent, however many there were.
func TestPull_IsBounded(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.Policy, set.PerTenant, set.Burst = "score", 0.001, 1 })
	for i := range 700 {
		id := string(rune('a'+i/26%26)) + string(rune('a'+i%26)) + string(rune('a'+i/676))
		create(t, s, GroupSpec{ID: id, Tenant: "spent"})
		add(t, s, id, 0, 1)
	}
	if p := pull(t, s, 1); len(p.Jobs) != 1 {
		t.Fatalf("%+v", p)
	}
	c.advance(time.Millisecond)
	p := pull(t, s, 5)
	gated, err := redistest.Client(t).ZCard(t.Context(), s.keys[keyGates]).Result()
	if err != nil || gated != 305 || len(p.Jobs) != 0 || !p.More {
		t.Fatalf("%d groups gated in one pull, %+v, %v", gated, p, err)
	}
	for range 2 {
		p = pull(t, s, 5)
	}
	if p.More || p.Next == 0 {
		t.Fatalf("%+v", p)
	}
	clean(t, s)
}

// TestSetLimits_OpensGates: with more than a thousand gated tenants, a new rate opened the gates of the first thousand only.
func TestSetLimits_OpensGates(t *testing.T) {
	short.Skip(t, "runs for long")
	s, c := open(t, func(set *Settings) { set.PerTenant, set.Global = 0.001, 1e6 })
	for i := range 1100 {
		id := fmt.Sprintf("t%04d", i)
		create(t, s, GroupSpec{ID: id, Tenant: id})
		add(t, s, id, 0, 2)
	}
	started := 0
	work := func() {
		for more := true; more; {
			p := pull(t, s, 500)
			started, more = started+len(p.Jobs), p.More || len(p.Jobs) > 0
			if len(p.Jobs) > 0 {
				ack(t, s, Done, p.Jobs...)
			}
		}
	}
	work()
	fast := 1000.0
	if _, err := s.SetLimits(t.Context(), LimitsPatch{PerTenant: &fast, PerTenantGiven: true}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		c.advance(time.Millisecond)
		work()
	}
	if started != 2200 {
		t.Errorf("%d jobs of 2200 started", started)
	}
	clean(t, s)
}

// TestConfigure_OpensGates: gates that a lower rate.per_tenant had closed stayed closed under a higher one, after a reload as after
// a restart.
func TestConfigure_OpensGates(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	for _, policy := range []string{"fair", "score"} {
		for _, higher := range []float64{0, 1000} {
			t.Run(fmt.Sprint(policy, higher), func(t *testing.T) {
				s, c := open(t, func(set *Settings) { set.Policy, set.PerTenant, set.Global = policy, 0.02, 1e6 })
				const tenants = 450
				for i := range tenants {
					id := fmt.Sprintf("t%04d", i)
					create(t, s, GroupSpec{ID: id, Tenant: id})
					add(t, s, id, 0, 2)
				}
				create(t, s, GroupSpec{ID: "slow", Tenant: "t0000", Rate: 0.01})
				add(t, s, "slow", 0, 2)
				started := 0
				work := func() {
					for more := true; more; {
						p := pull(t, s, 500)
						started, more = started+len(p.Jobs), p.More || len(p.Jobs) > 0
						ack(t, s, Done, p.Jobs...)
					}
				}
				work()
				if started != tenants {
					t.Fatalf("%d jobs started at first, want %d", started, tenants)
				}
				for range 10 { // under the same rate nothing opens
					c.advance(200 * time.Millisecond)
					if d := dispatch(t, s); d.Woken != 0 {
						t.Fatalf("%+v", d)
					}
				}
				set := s.Settings()
				set.PerTenant = higher
				if err := s.Configure(set); err != nil {
					t.Fatal(err)
				}
				for range 20 {
					c.advance(200 * time.Millisecond)
					dispatch(t, s)
					work()
				}
				if started != 2*tenants+1 { // all but one of the slow group
					t.Errorf("%d jobs started, want %d", started, 2*tenants+1)
				}
				c.advance(time.Second)
				if d := dispatch(t, s); d.Woken != 0 {
					t.Errorf("afterwards: %+v", d)
				}
				clean(t, s)
			})
		}
	}
}

// Processes with different policies, as in a rolling deploy, rebuilt the queue again and again, and nearly no job started.
func TestPolicies_OfTwoProcessesTakeTurns(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"score":  func(set *Settings) { set.Policy = "score" },
		"strict": func(set *Settings) { set.Strict = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := open(t, func(set *Settings) { set.Global, set.Burst = 1e6, 1e6 })
			set := s.Settings()
			change(&set)
			var logged strings.Builder
			other, err := New(Options{Client: s.o.Client, Prefix: s.o.Prefix, Timeout: s.o.Timeout, Settings: set, Now: s.o.Now,
				Log: slog.New(slog.NewTextHandler(&logged, nil))})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				id := fmt.Sprint("g", i)
				create(t, s, GroupSpec{ID: id, Tenant: id})
				add(t, s, id, 0, 300)
			}
			began, done := c.us, 0
			for i := 0; i < 6000 && done < 1500; i++ {
				from := []*Store{s, other}[i%2]
				jobs := pull(t, from, 5).Jobs
				done += len(jobs)
				ack(t, from, Done, jobs...)
				c.advance(10 * time.Millisecond)
			}
			if took := c.us - began; done < 1500 || took > 6_000_000 {
				t.Errorf("%d jobs of 1500 in %d ms, which takes 3 s in one order", done, took/1000)
			}
			if n := strings.Count(logged.String(), "the fair queue now has the order"); n != 1 {
				t.Errorf("logged %d changes of order: %s", n, logged.String())
			}
			// The remaining process has its order after a minute.
			c.advance(time.Minute)
			pull(t, s, 1)
			if mode := s.o.Client.HGet(t.Context(), s.keys[keyState], "mode").Val(); mode != "1" {
				t.Errorf("the fair queue is in order %s a minute after the other process was gone, want 1", mode)
			}
			clean(t, s)
		})
	}
}

package store

import (
	"fmt"
	"testing"
	"time"
)

// limited opens a store whose clock stands still until the test moves it.
func limited(t *testing.T, change func(*Settings)) (s *Store, now *int64) {
	t.Helper()
	s, _ = open(t, func(set *Settings) { set.Global, set.Burst = 1e6, 1e6; change(set) })
	now = new(int64(1_780_000_000_000_000))
	s.o.Now = func() int64 { return *now }
	return s, now
}

func pulled(t *testing.T, s *Store, want int, types ...string) (jobs []Leased, byType map[string]int, next time.Duration) {
	t.Helper()
	byType = map[string]int{}
	p, err := s.Pull(t.Context(), want, types...)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range p.Jobs {
		byType[j.Type]++
	}
	return p.Jobs, byType, p.Next
}

func TestTypeLimit_HoldsItsTypeAlone(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"fair":  func(*Settings) {},
		"score": func(set *Settings) { set.Policy = "score" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, now := limited(t, func(set *Settings) { change(set); set.Types = map[string]TypeLimit{"mail": {Rate: 20, Concurrency: 3}} })
			create(t, s, GroupSpec{ID: "mails", Tenant: "acme", Type: "mail"})
			add(t, s, "mails", 0, 2000)
			create(t, s, GroupSpec{ID: "mixed", Tenant: "beta", Type: "fax"})
			mixed(t, s, "mixed", 30, "mail", "fax")
			jobs, got, next := pulled(t, s, 100)
			if got["mail"] != 2 || got["fax"] != 30 { // 100 ms of 20 a second
				t.Fatalf("started %v", got)
			}
			if next != 50*time.Millisecond {
				t.Errorf("the next pull is to come in %v", next)
			}
			clean(t, s)
			*now += 100_000
			more, got, next := pulled(t, s, 100)
			if got["mail"] != 1 || next != 0 { // the third that runs; then only an ack lets another one start
				t.Errorf("started %v, the next pull in %v", got, next)
			}
			if g, _ := s.Group(t.Context(), "mails"); !g.Gated {
				t.Error("a group that waits for its type is not shown as gated")
			}
			ack(t, s, Done, append(jobs, more...)...)
			clean(t, s)
			if _, got, _ = pulled(t, s, 100); got["mail"] != 1 {
				t.Errorf("after the acks %v started, by the rate one", got)
			}
			clean(t, s)
		})
	}
}

func TestTypeLimit_IsSharedByTenants(t *testing.T) {
	t.Parallel()
	s, now := limited(t, func(set *Settings) { set.Types = map[string]TypeLimit{"mail": {Rate: 10}} })
	for i := range 20 {
		id := fmt.Sprint("many", i)
		create(t, s, GroupSpec{ID: id, Tenant: "acme", Type: "mail"})
		add(t, s, id, 0, 20)
	}
	create(t, s, GroupSpec{ID: "one", Tenant: "beta", Type: "mail"})
	add(t, s, "one", 0, 200)
	served := map[string]int{}
	for range 100 {
		p, err := s.Pull(t.Context(), 5, "mail")
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range p.Jobs {
			served[j.Tenant]++
		}
		*now += 100_000
	}
	if served["acme"]+served["beta"] != 100 || served["beta"] < 48 || served["beta"] > 52 {
		t.Errorf("served %v, of one group of beta and twenty of acme", served)
	}
	clean(t, s)
}

func TestTypeLimit_ChangesLive(t *testing.T) {
	t.Parallel()
	s, now := limited(t, func(set *Settings) { set.Types = map[string]TypeLimit{"mail": {Rate: 1}} })
	create(t, s, GroupSpec{ID: "mails", Tenant: "acme", Type: "mail"})
	add(t, s, "mails", 0, 100)
	if _, got, _ := pulled(t, s, 50); got["mail"] != 1 {
		t.Fatalf("started %v", got)
	}
	set := func(p TypeLimitPatch) Limits {
		t.Helper()
		l, err := s.SetLimits(t.Context(), LimitsPatch{Types: map[string]TypeLimitPatch{"mail": p}})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := set(TypeLimitPatch{RateGiven: true, Rate: new(0.0), ConcurrencyGiven: true, Concurrency: new(int64(7))}).Types["mail"]; l.Rate != 0 || l.Concurrency != 7 || !l.Live {
		t.Errorf("%+v", l)
	}
	if _, got, _ := pulled(t, s, 50); got["mail"] != 7 {
		t.Errorf("without a rate, seven at once, %v started", got)
	}
	if d, err := s.Depths(t.Context()); err != nil || d.Types["mail"].Running != 7 {
		t.Errorf("%+v, %v", d.Types, err)
	}
	if l := set(TypeLimitPatch{RateGiven: true, ConcurrencyGiven: true}).Types["mail"]; l.Rate != 1 || l.Concurrency != 0 || l.Live {
		t.Errorf("as configured: %+v", l)
	}
	*now += 10_000_000
	if _, got, _ := pulled(t, s, 50); got["mail"] != 1 {
		t.Errorf("at one a second again, %v started", got)
	}
	clean(t, s)
	_, err := s.SetLimits(t.Context(), LimitsPatch{Types: map[string]TypeLimitPatch{"mail": {RateGiven: true, Rate: new(-1.0)}}})
	if err == nil {
		t.Error("a rate below 0 is taken")
	}
	// Jobs that waited for a limit start when the limit is removed.
	if err := s.Configure(func() Settings { c := s.Settings(); c.Types = nil; return c }()); err != nil {
		t.Fatal(err)
	}
	if _, got, _ := pulled(t, s, 50); got["mail"] != 50 {
		t.Errorf("without limits %v started", got)
	}
	clean(t, s)
}

func TestTypeLimit_CountsLostRunsNoLonger(t *testing.T) {
	t.Parallel()
	s, now := limited(t, func(set *Settings) {
		set.Lease = 3 * time.Second
		set.Types = map[string]TypeLimit{"mail": {Concurrency: 2, Batch: 1}}
	})
	create(t, s, GroupSpec{ID: "mails", Tenant: "acme", Type: "mail"})
	add(t, s, "mails", 0, 10)
	for i, want := range []int{1, 1, 0} {
		if _, got, _ := pulled(t, s, 5, "mail"); got["mail"] != want {
			t.Fatalf("pull %d: started %v", i, got)
		}
	}
	if n, err := s.Reclaim(t.Context(), nil); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	if _, got, _ := pulled(t, s, 5, "mail"); got["mail"] != 1 {
		t.Errorf("after what was lost was given back, %v started", got)
	}
	for range 6 { // beside a dispatcher that is alive
		if _, err := s.Dispatch(t.Context()); err != nil {
			t.Fatal(err)
		}
		*now += 900_000
	}
	if l, err := s.Limits(t.Context()); err != nil || l.Types["mail"].Running != 0 {
		t.Errorf("after the leases ended %+v, %v", l.Types, err)
	}
	clean(t, s)
	for _, bad := range []TypeLimit{{Rate: -1}, {Concurrency: -1}, {Batch: -1}} {
		if s.Configure(func() Settings { c := s.Settings(); c.Types = map[string]TypeLimit{"mail": bad}; return c }()) == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func TestTypeLimit_GroupsThatWaitCanEnd(t *testing.T) {
	t.Parallel()
	s, _ := limited(t, func(set *Settings) { set.Types = map[string]TypeLimit{"mail": {Rate: 0.001}} })
	for _, id := range []string{"cancelled", "patched"} {
		create(t, s, GroupSpec{ID: id, Tenant: "acme", Type: "mail"})
		add(t, s, id, 0, 20)
	}
	pulled(t, s, 5, "mail")
	if _, err := s.Cancel(t.Context(), "cancelled"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Patch(t.Context(), "patched", Patch{Level: new(High)}); err != nil {
		t.Fatal(err)
	}
	clean(t, s)
	pulled(t, s, 5, "mail")
	clean(t, s)
}

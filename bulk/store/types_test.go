package store

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// mixed adds n jobs of each type, in turns: a000, b000, a001 and so on.
func mixed(t *testing.T, s *Store, group string, n int, types ...string) {
	t.Helper()
	var jobs []Job
	for i := range n {
		for _, kind := range types {
			jobs = append(jobs, Job{ID: fmt.Sprintf("%s%03d", kind, i), Type: kind, Payload: []byte("1")})
		}
	}
	for part := range slices.Chunk(jobs, MaxAdd) {
		if _, err := s.AddJobs(t.Context(), group, Chunk{}, part); err != nil {
			t.Fatal(err)
		}
	}
}

// drainTypes pulls and acknowledges until a pull finds nothing, and returns the ids by type.
func drainTypes(t *testing.T, s *Store, types ...string) map[string][]string {
	t.Helper()
	got := map[string][]string{}
	for range 200 {
		p, err := s.Pull(t.Context(), 20, types...)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range p.Jobs {
			got[j.Type] = append(got[j.Type], j.ID)
		}
		if len(p.Jobs) == 0 && !p.More {
			return got
		}
		ack(t, s, Done, p.Jobs...)
	}
	t.Fatal("pulls do not come to an end")
	return nil
}

func TestPull_TakesOnlyItsTypes(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"fair":    func(*Settings) {},
		"score":   func(set *Settings) { set.Policy = "score" },
		"classic": func(set *Settings) { set.Policy, set.Limiter, set.Gating = "score", "fixed_window", false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := open(t, func(set *Settings) { set.Global, set.Burst = 1e6, 1e6; change(set) })
			create(t, s, GroupSpec{ID: "mixed", Tenant: "acme", Type: "mail"})
			mixed(t, s, "mixed", 300, "mail", "fax", "sms")
			create(t, s, GroupSpec{ID: "fax", Tenant: "beta", Type: "fax"})
			add(t, s, "fax", 0, 700)
			got := drainTypes(t, s, "mail")
			if len(got["mail"]) != 300 || len(got) != 1 || !slices.IsSorted(got["mail"]) {
				t.Fatalf("%d mails, of %d types", len(got["mail"]), len(got))
			}
			clean(t, s)
			if g, _ := s.Group(t.Context(), "mixed"); g.Pending != 600 || g.InFlight != 0 {
				t.Errorf("%+v", g)
			}
			// Jobs that are held back are not read again.
			if n, err := s.o.Client.ZCard(t.Context(), s.keys[keyLines]).Result(); err != nil || n != 0 {
				t.Errorf("%d groups are in the queue, %v", n, err)
			}
			got = drainTypes(t, s, "sms", "fax")
			if len(got["fax"]) != 1000 || len(got["sms"]) != 300 || len(got) != 2 {
				t.Errorf("%d fax, %d sms, of %d types", len(got["fax"]), len(got["sms"]), len(got))
			}
			clean(t, s)
			for _, id := range []string{"mixed", "fax"} {
				if g, _ := s.Group(t.Context(), id); g.Pending != 0 || g.Succeeded != g.Total {
					t.Errorf("%+v", g)
				}
			}
		})
	}
}

func TestUnknownType_WaitsThenIsDead(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.UnknownTypeAfter = 2 * time.Hour })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "fax"})
	add(t, s, "g", 0, 3)
	drainTypes(t, s, "mail")
	rounds(t, s, c, time.Minute)
	g, err := s.Group(t.Context(), "g")
	d, derr := s.Depths(t.Context())
	if err != nil || derr != nil || g.Unserved != 3 || d.Unserved != 3 || !slices.Equal(d.UnservedTypes, []string{"fax"}) {
		t.Fatalf("unserved: group %d, shard %d %v; %v, %v", g.Unserved, d.Unserved, d.UnservedTypes, err, derr)
	}
	// The type is served while a process that runs it reports.
	fresh, err := New(Options{Client: s.o.Client, Prefix: s.o.Prefix, Timeout: s.o.Timeout, Settings: s.Settings(), Now: s.o.Now})
	if err != nil {
		t.Fatal(err)
	}
	first, err := fresh.Pull(t.Context(), 1, "fax")
	if err != nil || len(first.Jobs) != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	dispatch(t, fresh)
	ack(t, fresh, Returned, first.Jobs...)
	drainTypes(t, s, "mail")
	rounds(t, s, c, 30*time.Second)
	if d, err := s.Depths(t.Context()); err != nil || d.Unserved != 0 {
		t.Errorf("%d unserved beside a process with the type, %v", d.Unserved, err)
	}
	for range 119 {
		c.advance(time.Minute)
		dispatch(t, s)
	}
	clean(t, s)
	if g, _ = s.Group(t.Context(), "g"); g.Dead != 0 || g.Unserved != 3 {
		t.Fatalf("before unknown_type_after: %+v", g)
	}
	c.advance(2 * time.Minute)
	dispatch(t, s)
	clean(t, s)
	if g, _ = s.Group(t.Context(), "g"); g.Dead != 3 || g.Unserved != 0 {
		t.Fatalf("after unknown_type_after: %+v", g)
	}
	if _, err := s.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	reduce(t, s, "g")
	p, err := s.Dead(t.Context(), "g", "", 5)
	if err != nil || len(p.Outcomes) != 3 || p.Outcomes[0].Code != "no_processor" || string(p.Outcomes[0].Payload) != "{}" {
		t.Fatalf("%+v, %v", p, err)
	}
	if d, err := s.Depths(t.Context()); err != nil || d.Unserved != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := s.Redrive(t.Context(), "g", 0); err != nil {
		t.Fatal(err)
	}
	if got := drainTypes(t, fresh, "fax"); len(got["fax"]) != 3 {
		t.Errorf("after a redrive %v", got)
	}
	clean(t, s)
}

// TestCancel_SweepsWhatIsSetAside: jobs of a type that no process runs are cancelled like the others, and no data is left over.
func TestCancel_SweepsWhatIsSetAside(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.KeepJobs, set.KeepGroups, set.KeepDead = time.Hour, time.Hour, time.Hour })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "mail"})
	mixed(t, s, "g", 400, "fax", "sms", "mail")
	drainTypes(t, s, "mail")
	if g, err := s.Cancel(t.Context(), "g"); err != nil || g.Cancelled != 800 || g.Pending != 0 {
		t.Fatalf("%+v, %v", g, err)
	}
	for range 8 {
		for _, id := range dispatch(t, s).Tend {
			did, err := s.Tend(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			clean(t, s)
			if did.Reduce {
				reduce(t, s, id)
			}
		}
		c.advance(2 * time.Second)
	}
	if n, err := s.o.Client.Exists(t.Context(), s.keys[keyAside]).Result(); err != nil || n != 0 {
		t.Errorf("jobs are set aside after the sweep, %v", err)
	}
	if g, err := s.Group(t.Context(), "g"); err != nil || g.Cancelled != 800 || g.Reduced != 1200 {
		t.Errorf("%+v, %v", g, err)
	}
	clean(t, s)
}

// A type that only workers outside the processes ask for is served while they ask, and unserved a while after.
func TestServe_TypesOfPullers(t *testing.T) {
	t.Parallel()
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "fax"})
	add(t, s, "g", 0, 3)
	unserved := func() int64 {
		t.Helper()
		dispatch(t, s)
		d, err := s.Depths(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d.Unserved
	}
	drainTypes(t, s, "mail")
	rounds(t, s, c, time.Minute)
	if n := unserved(); n != 3 {
		t.Fatalf("%d unserved without a puller", n)
	}
	p, err := s.PullFor(t.Context(), "w#1", 1, "fax")
	if err != nil || len(p.Jobs) != 1 {
		t.Fatal(p, err)
	}
	ack(t, s, Returned, p.Jobs...)
	for range 20 { // the puller is busy, and still there
		s.Serve([]string{"fax"})
		rounds(t, s, c, 20*time.Second)
		drainTypes(t, s, "mail")
		if n := unserved(); n != 0 {
			t.Fatalf("%d unserved beside a puller", n)
		}
	}
	rounds(t, s, c, 2*time.Minute)
	if n := unserved(); n != 3 {
		t.Errorf("%d unserved after the puller has gone", n)
	}
}

// Jobs are leased to an owner: it names the worker, and only its leases are reclaimed.
func TestPullFor_LeasesToOwner(t *testing.T) {
	for name, gating := range map[string]bool{"fair": true, "classic": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leasesToOwner(t, gating)
		})
	}
}

func leasesToOwner(t *testing.T, gating bool) {
	s, _ := open(t, func(set *Settings) { set.Gating, set.Global, set.Burst = gating, 1e6, 1e6 })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "fax"})
	add(t, s, "g", 0, 6)
	for _, owner := range []string{"w#1", "w#2", "w2#1"} {
		if p, err := s.PullFor(t.Context(), owner, 2, "fax"); err != nil || len(p.Jobs) != 2 {
			t.Fatal(p, err)
		}
	}
	if n, err := s.ReclaimFrom(t.Context(), "w#1", nil); err != nil || n != 2 {
		t.Errorf("%d reclaimed, %v; want 2", n, err)
	}
	jobs, all, err := s.Running(t.Context())
	if err != nil || all != 4 {
		t.Fatal(all, err)
	}
	by := map[string]int{}
	for _, j := range jobs {
		by[j.Process]++
	}
	if by["w"] != 2 || by["w2"] != 2 {
		t.Errorf("%v", by)
	}
	if j, err := s.Job(t.Context(), "g", jobs[0].ID); err != nil || j.Process != jobs[0].Process {
		t.Errorf("%+v %v", j, err)
	}
	clean(t, s)
}

func TestPullers_ListedWhileReported(t *testing.T) {
	t.Parallel()
	s, c := open(t, nil)
	list := func() (ids []string) {
		t.Helper()
		all, err := s.Pullers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			ids = append(ids, p.ID+" "+p.Host)
		}
		return ids
	}
	note := func(all ...Puller) {
		t.Helper()
		if err := s.NotePullers(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	note()
	note(Puller{ID: "b", Host: "h1"}, Puller{ID: "a", Host: "h1"})
	for range 20 { // over the ends of parts
		c.advance(PullersEvery)
		note(Puller{ID: "a", Host: "h2"})
		if got := list(); !slices.Contains(got, "a h2") || slices.Contains(got, "a h1") {
			t.Fatalf("%v", got)
		}
	}
	if got := list(); !slices.Equal(got, []string{"a h2"}) {
		t.Errorf("%v", got)
	}
	c.advance(time.Minute)
	if got := list(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	clean(t, s) // each key expires
}

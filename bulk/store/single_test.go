package store

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func submit(t testing.TB, s *Store, in Single) Submitted {
	t.Helper()
	if in.Tenant == "" {
		in.Tenant = "acme"
	}
	if in.Type == "" {
		in.Type = "webhook"
	}
	if in.Payload == nil {
		in.Payload = []byte(`{}`)
	}
	done, err := s.Submit(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// TestSubmit_RollsGroups: single jobs of a tenant, type and level share a group, which is sealed after an hour and ends with its jobs.
func TestSubmit_RollsGroups(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.Lease = 48 * time.Hour })
	one, two := submit(t, s, Single{}), submit(t, s, Single{})
	if one.Group != two.Group || one.ID == two.ID || !strings.HasPrefix(one.Group, SinglesPrefix) {
		t.Fatal(one, two)
	}
	others := map[string]bool{one.Group: true}
	for _, in := range []Single{{Tenant: "beta"}, {Job: Job{Type: "mail"}}, {Level: High}, {Own: true}, {Delay: 30 * time.Hour}, {Job: Job{RunAt: after(c.us, 80*time.Hour)}}} {
		others[submit(t, s, in).Group] = true
	}
	if len(others) != 7 {
		t.Fatal(others)
	}
	clean(t, s)
	jobs := pull(t, s, 10).Jobs
	if len(jobs) != 6 {
		t.Fatal(ids(jobs))
	}
	ack(t, s, Done, jobs[:5]...)
	ack(t, s, Buried, jobs[5])
	if j, err := s.Job(t.Context(), one.Group, one.ID); err != nil || j.Status != "succeeded" || string(j.Result) != `{"ok":true}` {
		t.Fatalf("%+v %v", j, err)
	}
	c.advance(time.Hour)
	third := submit(t, s, Single{})
	if third.Group == one.Group {
		t.Fatal(third)
	}
	rounds(t, s, c, time.Second)
	tendDue(t, s)
	clean(t, s)
	if g, err := s.Group(t.Context(), one.Group); err != nil || g.Status != Completed || g.Succeeded != 2 {
		t.Fatalf("%+v %v", g, err)
	}
	// They go with their outcomes, not after retention.groups.
	ack(t, s, Done, pull(t, s, 10).Jobs...)
	c.advance(26 * time.Hour)
	for range 4 {
		tendDue(t, s)
	}
	_, err := s.Group(t.Context(), one.Group)
	refused(t, err, CodeNotFound)
	clean(t, s)
	if p := pull(t, s, 10); len(p.Jobs) != 0 {
		t.Fatal(p)
	}
	c.advance(4 * time.Hour)
	dispatch(t, s)
	if p := pull(t, s, 10); len(p.Jobs) != 1 {
		t.Fatal(p)
	}
	clean(t, s)
}

// TestSubmit_DoesNotCountAsGroups: groups of single jobs do not use up a token's max_groups.
func TestSubmit_DoesNotCountAsGroups(t *testing.T) {
	s, _ := open(t, nil)
	submit(t, s, Single{})
	submit(t, s, Single{Job: Job{Type: "mail"}})
	spec := counted("g")
	spec.MaxGroups = 1
	create(t, s, spec)
	spec.ID = "h"
	_, _, err := s.CreateGroup(t.Context(), spec)
	refused(t, err, CodeQuota)
}

func TestSubmit_IsChecked(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.PendingPerTenant = 1 })
	base := Single{Tenant: "acme", Job: Job{Type: "webhook", Payload: []byte("1")}}
	for _, change := range []func(*Single){
		func(in *Single) { in.Type = "" },
		func(in *Single) { in.Tenant = "a/b" },
		func(in *Single) { in.ID = "a b" },
		func(in *Single) { in.Delay = -1 },
		func(in *Single) { in.Delay, in.RunAt = time.Hour, after(c.us, time.Hour) },
		func(in *Single) { in.Delay, in.ExpiresAt = time.Hour, after(c.us, time.Hour) },
		func(in *Single) { in.ExpiresAt = after(c.us, -1) },
		func(in *Single) { in.Unique.Key = "k" },
		func(in *Single) { in.Unique.Within = time.Hour },
		func(in *Single) { in.Unique = Unique{"k", 721 * time.Hour} },
		func(in *Single) { in.Unique = Unique{strings.Repeat("k", 201), time.Hour} },
		func(in *Single) { in.Cost = MaxCost + 1 },
		func(in *Single) { in.Level = "urgent" },
	} {
		in := base
		change(&in)
		_, err := s.Submit(t.Context(), in)
		refused(t, err, CodeInvalid)
	}
	submit(t, s, base)
	_, err := s.Submit(t.Context(), base)
	refused(t, err, CodeQuota)
	base.MaxPending, base.Tenant = 1, "beta"
	submit(t, s, base)
	_, err = s.Submit(t.Context(), base)
	refused(t, err, CodeQuota)
	clean(t, s)
}

// TestUnique_IsAcceptedOnce: within its time a key brings the first job, or group, however many submit it at once, and the key is forgotten after.
func TestUnique_IsAcceptedOnce(t *testing.T) {
	s, c := open(t, nil)
	race := func(submit func(i int) (string, bool)) (first string) {
		t.Helper()
		var all sync.WaitGroup
		got, fresh := make([]string, 8), make([]bool, 8)
		for i := range got {
			all.Go(func() { got[i], fresh[i] = submit(i) })
		}
		all.Wait()
		n := 0
		for i := range got {
			if fresh[i] {
				n++
			}
			if got[i] != got[0] || got[i] == "" {
				t.Fatalf("%q", got)
			}
		}
		if n != 1 {
			t.Fatalf("%d of 8 were accepted", n)
		}
		return got[0]
	}
	single := func(in Single) func(int) (string, bool) {
		return func(int) (string, bool) {
			in := in
			in.Tenant, in.Type, in.Payload = "acme", "webhook", []byte("1")
			done, err := s.Submit(t.Context(), in)
			if err != nil {
				t.Error(err)
			}
			return done.Group + "/" + done.ID, !done.Duplicate
		}
	}
	group := func(i int) (string, bool) {
		spec := counted(fmt.Sprintf("g%d-%d", i, c.us))
		spec.Unique = Unique{"nightly", time.Hour}
		g, created, err := s.CreateGroup(t.Context(), spec)
		if err != nil {
			t.Error(err)
		}
		if created == g.Duplicate {
			t.Errorf("created %t, duplicate %t", created, g.Duplicate)
		}
		return g.ID, created
	}
	key, own, g := race(single(Single{Unique: Unique{"nightly", time.Hour}})), race(single(Single{Job: Job{ID: "mine"}})), race(group)
	if key == own {
		t.Fatal(key, own)
	}
	clean(t, s)
	if other := submit(t, s, Single{Tenant: "beta", Unique: Unique{"nightly", time.Hour}}); other.Duplicate {
		t.Fatal("another tenant's key")
	}
	// The first group again is no duplicate of itself; a deleted one still has the key.
	spec := counted(g)
	spec.Unique = Unique{"nightly", time.Hour}
	if again, created, err := s.CreateGroup(t.Context(), spec); err != nil || created || again.Duplicate {
		t.Fatalf("%+v %t %v", again, created, err)
	}
	if _, err := s.Cancel(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	tendDue(t, s)
	if gone, err := s.Delete(t.Context(), g, time.Second); !gone || err != nil {
		t.Fatal(gone, err)
	}
	spec.ID = "after"
	_, _, err := s.CreateGroup(t.Context(), spec)
	refused(t, err, CodeExists)
	c.advance(time.Hour)
	if next := race(single(Single{Unique: Unique{"nightly", time.Hour}})); next == key {
		t.Fatal(next)
	}
	if next := race(group); next == g {
		t.Fatal(next)
	}
	if again, _ := single(Single{Job: Job{ID: "mine"}})(0); again != own {
		t.Fatal("an id of its own is taken for a day")
	}
	clean(t, s)
	c.advance(25 * time.Hour)
	dispatch(t, s)
	if n := s.o.Client.HLen(t.Context(), s.keys[keyUniques]).Val(); n != 0 {
		t.Errorf("%d names are left", n)
	}
	if again, _ := single(Single{Job: Job{ID: "mine"}})(0); again == own {
		t.Fatal("its id is free again")
	}
	clean(t, s)
}

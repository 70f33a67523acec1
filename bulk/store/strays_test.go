package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/short"
)

// An entry of the fair queue that contradicts the records, as after a power loss within a transaction, blocks no other group: the next
// pull removes the entry.
func TestPull_RemovesStrays(t *testing.T) {
	for name, row := range map[string]struct {
		score bool
		stray func(w *wreck, ended string)
	}{
		"a line of an ended group":           {stray: func(w *wreck, ended string) { w.do("ZADD", keyLines, 0, "2/acme/00000000000000000000/"+ended) }},
		"a line of no group":                 {stray: func(w *wreck, _ string) { w.do("ZADD", keyLines, 0, "2/acme/00000000000000000000/zz") }},
		"a second line of a group":           {stray: func(w *wreck, _ string) { w.do("ZADD", keyLines, 0, "2/acme/00000000000000000001/"+w.g["new"]) }},
		"a turn of no tenant":                {stray: func(w *wreck, _ string) { w.do("ZADD", keyHigh, -1, "1/gone") }},
		"a turn of a tenant without a line":  {stray: func(w *wreck, _ string) { w.do("ZADD", keyHigh, -1, "1/acme") }},
		"by score, a turn of an ended group": {score: true, stray: func(w *wreck, ended string) { w.do("ZADD", keyHigh, 9e15, ended) }},
		"by score, a turn of no group":       {score: true, stray: func(w *wreck, _ string) { w.do("ZADD", keyNormal, 9e15, "zz") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, way := range []string{"pull", "repair", "change of policy"} {
				s, c := open(t, func(set *Settings) {
					set.Global, set.Burst = 1e6, 1e6
					if row.score {
						set.Policy = "score"
					}
				})
				w := &wreck{t: t, s: s, c: s.o.Client, g: map[string]string{}}
				short := func(id string) string {
					key, err := s.short(t.Context(), id)
					if err != nil {
						t.Fatal(err)
					}
					return key
				}
				create(t, s, GroupSpec{ID: "old", Tenant: "acme", Aggregate: `{"op":"count"}`})
				add(t, s, "old", 0, 1)
				ack(t, s, Done, pull(t, s, 1).Jobs...)
				if _, err := s.Seal(t.Context(), "old"); err != nil {
					t.Fatal(err)
				}
				for _, tenant := range []string{"acme", "beta"} {
					id := map[string]string{"acme": "new", "beta": "other"}[tenant]
					create(t, s, GroupSpec{ID: id, Tenant: tenant})
					add(t, s, id, 0, 20)
					w.g[id] = short(id)
				}
				row.stray(w, short("old"))
				if found, err := s.Audit(t.Context()); err != nil || len(found) == 0 {
					t.Errorf("the audit finds nothing, %v", err)
				}
				if way == "repair" {
					if restored, err := s.Repair(t.Context()); err != nil || len(restored) == 0 {
						t.Errorf("restored %v, %v", restored, err)
					}
					clean(t, s)
				}
				if way == "change of policy" {
					set := s.Settings()
					set.Policy = map[bool]string{true: "fair", false: "score"}[row.score]
					if err := s.Configure(set); err != nil {
						t.Fatal(err)
					}
				}
				got := 0
				for range 10 {
					c.advance(time.Second)
					dispatch(t, s)
					jobs := pull(t, s, 10).Jobs
					got += len(jobs)
					ack(t, s, Done, jobs...)
				}
				if got != 40 {
					t.Errorf("%s: %d jobs have run, want 40", way, got)
				}
				clean(t, s)
			}
		})
	}
}

// A group that waits for the limit or the breaker of its type does not wait for ever when no process runs the type any longer.
func TestTypeLimit_OfATypeThatIsGone(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	t.Parallel()
	s, c := open(t, func(set *Settings) {
		set.Global, set.Burst, set.UnknownTypeAfter = 1e6, 1e6, 10*time.Minute
		set.Types = map[string]TypeLimit{"mail": {Concurrency: 2}}
	})
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "mail"})
	add(t, s, "g", 0, 30)
	jobs, got, _ := pulled(t, s, 10, "mail")
	if got["mail"] != 2 {
		t.Fatalf("started %v", got)
	}
	dispatch(t, s)
	other, err := New(Options{Client: s.o.Client, Prefix: s.o.Prefix, Timeout: s.o.Timeout, Settings: s.Settings(), Now: s.o.Now})
	if err != nil {
		t.Fatal(err)
	}
	ack(t, s, Returned, jobs...)
	pulled(t, s, 0, "mail") // bars the group again
	left := func() Group {
		t.Helper()
		if jobs, _, _ := pulled(t, other, 10, "fax"); len(jobs) != 0 {
			t.Fatalf("it takes %v", ids(jobs))
		}
		dispatch(t, other)
		g, err := other.Group(t.Context(), "g")
		if err != nil {
			t.Fatal(err)
		}
		clean(t, other)
		return g
	}
	for range 20 {
		c.advance(10 * time.Second)
		left()
	}
	if g := left(); g.Unserved != 30 || g.Gated {
		t.Fatalf("%d unserved, gated %t", g.Unserved, g.Gated)
	}
	for range 60 {
		c.advance(15 * time.Second)
		left()
	}
	if g := left(); g.Dead != 30 {
		t.Errorf("%d are dead after unknown_type_after, want 30", g.Dead)
	}
}

// A group that ends while it waits for the limit of its type leaves nothing behind.
func TestTypeLimit_GroupEndsByCancels(t *testing.T) {
	t.Parallel()
	for _, aggregate := range []string{`{"op":"count"}`, `{"op":"sum","field":"n"}`} {
		s, c := open(t, func(set *Settings) {
			set.Global, set.Burst = 1e6, 1e6
			set.Types = map[string]TypeLimit{"mail": {Concurrency: 1}}
		})
		create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "mail", Aggregate: aggregate})
		add(t, s, "g", 0, 3)
		if _, err := s.Seal(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
		jobs, _, _ := pulled(t, s, 3, "mail")
		for i := range 3 {
			if _, err := s.CancelJob(t.Context(), "g", fmt.Sprintf("j%06d", i)); err != nil {
				t.Fatal(err)
			}
		}
		ack(t, s, Returned, jobs...)
		if g, err := s.Group(t.Context(), "g"); err != nil || g.Gated || g.Status == Running {
			t.Errorf("%s: %s, gated %t, %v", aggregate, g.Status, g.Gated, err)
		}
		if n := s.o.Client.ZCard(t.Context(), s.keys[keyAside]).Val(); n != 0 {
			t.Errorf("%s: %d members are left", aggregate, n)
		}
		c.advance(time.Second)
		clean(t, s)
	}
}

// The id of a job in a group that keeps no outcomes stays known when it is submitted again, also after a redrive of the job.
func TestRedrive_OfWhatIsNotKeptIsKnown(t *testing.T) {
	t.Parallel()
	s, _ := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Aggregate: `{"op":"count"}`, Results: NoResults})
	add(t, s, "g", 0, 3)
	ack(t, s, Rejected, pull(t, s, 3).Jobs...)
	if _, err := s.RedriveJobs(t.Context(), "g", RedriveOptions{Statuses: []string{"failed"}}); err != nil {
		t.Fatal(err)
	}
	add(t, s, "g", 0, 3)
	if g, err := s.Group(t.Context(), "g"); err != nil || g.Total != 3 || g.Pending != 0 {
		t.Errorf("%d jobs, %d pending, %v", g.Total, g.Pending, err)
	}
	clean(t, s)
	if _, err := s.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := s.Tend(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.o.Client.HLen(t.Context(), s.keys[keyJobs]).Val(); n != 3 { // those of the redrive
		t.Errorf("%d records are left", n)
	}
	clean(t, s)
}

// A tenant that deletes group after group does not get an unused limit each time.
func TestDelete_KeepsTheLimitOfItsTenant(t *testing.T) {
	t.Parallel()
	for _, limiter := range []string{"gcra", "fixed_window"} {
		s, c := open(t, func(set *Settings) { set.Global, set.Burst, set.PerTenant, set.Limiter = 1e6, 10, 10, limiter })
		started, begun := 0, c.us
		for i := range 5 {
			id := fmt.Sprintf("g%d", i)
			create(t, s, GroupSpec{ID: id, Tenant: "acme", Aggregate: `{"op":"count"}`})
			add(t, s, id, 0, 10)
			if _, err := s.Seal(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			for {
				jobs := pull(t, s, 10).Jobs
				if started += len(jobs); len(jobs) == 0 {
					break
				}
				ack(t, s, Done, jobs...)
			}
			if _, err := s.Cancel(t.Context(), id); err != nil && i == 0 {
				refused(t, err, CodeState) // it has ended
			}
			for range 10 {
				if gone, err := s.Delete(t.Context(), id, 0); err != nil || gone {
					break
				}
				if tended, err := s.Tend(t.Context(), id); err != nil || tended.Removed {
					break
				}
			}
			clean(t, s)
		}
		if most := 10 + 10*float64(c.us-begun)/1e6 + 10; float64(started) > most {
			t.Errorf("%s: %d jobs have started at a rate of 10 with a burst of 10, in %d µs", limiter, started, c.us-begun)
		}
		c.advance(5 * time.Second)
		rounds(t, s, c, 10*time.Second)
		for i := range 5 {
			id := fmt.Sprintf("g%d", i)
			for range 5 {
				if tended, err := s.Tend(t.Context(), id); err != nil || tended.Removed {
					break
				}
				_, _ = s.Delete(t.Context(), id, 0) // those that were cancelled could not be deleted before
			}
		}
		clean(t, s)
		if _, err := s.TenantOf(t.Context(), "g4"); err == nil {
			t.Error("the last group is still there")
		}
	}
}

// TestDelete_MakesGroupUnknown deletes a group without waiting for its housekeeping. From the deletion on no other
// operation finds the group: a chunk that was sent again was answered as before, then refused as sealed.
func TestDelete_MakesGroupUnknown(t *testing.T) {
	t.Parallel()
	s, c := open(t, func(*Settings) {})
	ctx := t.Context()
	spec := GroupSpec{ID: "g", Tenant: "acme", Type: "webhook", Aggregate: `{"op":"count"}`}
	create(t, s, spec)
	chunk := Chunk{Key: "chunk", Last: true, Answer: []byte("answer")}
	if _, err := s.AddJobs(ctx, "g", chunk, nil); err != nil {
		t.Fatal(err)
	}
	add(t, s, "g", 0, 2)
	if _, err := s.Seal(ctx, "g"); err != nil {
		t.Fatal(err)
	}
	ack(t, s, Rejected, pull(t, s, 10).Jobs...)
	if gone, err := s.Delete(ctx, "g", 0); err != nil || gone {
		t.Fatal(gone, err)
	}
	for name, call := range map[string]func() error{
		"Group":      func() error { _, err := s.Group(ctx, "g"); return err },
		"AddJobs":    func() error { _, err := s.AddJobs(ctx, "g", Chunk{}, []Job{{ID: "new", Cost: 1}}); return err },
		"chunk":      func() error { _, err := s.AddJobs(ctx, "g", chunk, nil); return err },
		"ChunkState": func() error { _, err := s.ChunkState(ctx, "g", "chunk"); return err },
		"Seal":       func() error { _, err := s.Seal(ctx, "g"); return err },
		"Cancel":     func() error { _, err := s.Cancel(ctx, "g"); return err },
		"Patch":      func() error { _, err := s.Patch(ctx, "g", Patch{Paused: new(bool)}); return err },
		"Release":    func() error { _, _, err := s.Release(ctx, "g"); return err },
		"Redrive": func() error {
			_, err := s.RedriveJobs(ctx, "g", RedriveOptions{Statuses: []string{"failed"}})
			return err
		},
		"Results":   func() error { _, err := s.Results(ctx, "g", "", 10); return err },
		"Job":       func() error { _, err := s.Job(ctx, "g", "j000000"); return err },
		"CancelJob": func() error { _, err := s.CancelJob(ctx, "g", "j000000"); return err },
		"RetryJob":  func() error { _, err := s.RetryJob(ctx, "g", "j000000", 0); return err },
	} {
		var r *Refusal
		if err := call(); !errors.As(err, &r) || r.Code != CodeNotFound {
			t.Errorf("%s: %v, want %s", name, err, CodeNotFound)
		}
	}
	if groups, _, err := s.Groups(ctx, Filter{Limit: 10}); err != nil || len(groups) > 0 {
		t.Errorf("the list has %v, %v", groups, err)
	}
	_, _, err := s.CreateGroup(ctx, spec)
	refused(t, err, CodeExists)
	for range 5 {
		if gone, err := s.Delete(ctx, "g", time.Second); err != nil {
			refused(t, err, CodeNotFound)
			t.Fatal("the group was gone before its deletion said so")
		} else if gone {
			break
		}
		c.advance(time.Minute)
	}
	create(t, s, spec)
	clean(t, s)
}

package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// splitGroup creates a split group with jobs j0, j1, … and returns it.
func splitGroup(t testing.TB, f *Fleet, spec GroupSpec, jobs int) Group {
	t.Helper()
	spec.Tenant, spec.Type = "acme", "t"
	g, created, err := f.CreateGroup(t.Context(), spec)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	for part := range slices.Chunk(numbered(jobs), MaxAdd) {
		if _, err := f.AddJobs(t.Context(), g.ID, Chunk{}, part); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func numbered(n int) []Job {
	list := make([]Job, n)
	for i := range list {
		list[i] = Job{ID: fmt.Sprintf("j%d", i), Payload: []byte("1")}
	}
	return list
}

// work runs the jobs of all shards until none is left, and does their housekeeping. verdict decides how a job ends.
func work(t testing.TB, f *Fleet, verdict func(l Leased) Ack) {
	t.Helper()
	for idle := 0; idle < 3; {
		ran := 0
		for _, s := range f.shards {
			p, err := s.Pull(t.Context(), 500, "t")
			if err != nil {
				t.Fatal(err)
			}
			var acks []Ack
			for _, l := range p.Jobs {
				a := Ack{Verdict: Done}
				if verdict != nil {
					a = verdict(l)
				}
				a.Key, a.Fence = l.Key, l.Fence
				acks = append(acks, a)
			}
			if len(acks) > 0 {
				if _, err := s.Ack(t.Context(), acks); err != nil {
					t.Fatal(err)
				}
			}
			ran += len(acks)
		}
		keep(t, f)
		if idle++; ran > 0 {
			idle = 0
		}
	}
}

// keep does the housekeeping of all shards once, as an engine does.
func keep(t testing.TB, f *Fleet) {
	t.Helper()
	for n, s := range f.shards {
		d, err := s.Dispatch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range d.Tend {
			for again := true; again; {
				tended, err := s.Tend(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				again = tended.Again
				if tended.Part && tended.Reduce {
					if _, err := f.Join(t.Context(), n, id); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

func TestSplit_IsOneGroup(t *testing.T) {
	f := fleet(t, 3, redistest.Prefix(t), nil, redistest.Client(t))
	g := splitGroup(t, f, GroupSpec{ID: "g", Split: 3, CallbackURL: "http://127.0.0.1/"}, 90)
	if g.Split != 3 {
		t.Fatalf("%+v", g)
	}
	again, err := f.AddJobs(t.Context(), "g", Chunk{}, numbered(100))
	if err != nil || again.Accepted != 10 || again.Duplicates != 90 || !again.Duplicate[0] || again.Duplicate[99] {
		t.Fatalf("%+v, %v", again, err)
	}
	if g, err = f.Group(t.Context(), "g"); err != nil || g.Total != 100 || g.Pending != 100 || g.Status != Created {
		t.Fatalf("%+v, %v", g, err)
	}
	for n, s := range f.shards {
		if part, err := s.Group(t.Context(), "g"); err != nil || part.Total < 15 {
			t.Errorf("shard %d has %d jobs, %v", n, part.Total, err)
		}
	}
	if list, _, _, err := f.Groups(t.Context(), Filter{Limit: 10}); err != nil || len(list) != 1 || list[0].Total != 100 {
		t.Fatalf("%+v, %v", list, err)
	}
	if g, err = f.Seal(t.Context(), "g"); err != nil || !g.Sealed || g.Status != Dispatched {
		t.Fatalf("%+v, %v", g, err)
	}
	work(t, f, func(l Leased) Ack {
		if l.ID == "j7" {
			return Ack{Verdict: Buried, Code: "http_500"}
		}
		return Ack{Verdict: Done}
	})
	g, err = f.Group(t.Context(), "g")
	if err != nil || g.Status != Failed || g.Succeeded != 99 || g.Dead != 1 || g.CallbackState != "pending" || string(g.Result) != `{"succeeded":99,"failed":0,"dead":1,"cancelled":0,"errors":{"http_500":1}}` {
		t.Fatalf("%+v %s, %v", g, g.Result, err)
	}
	var ids []string
	for cursor := ""; ; {
		page, err := f.Results(t.Context(), "g", cursor, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Outcomes {
			ids = append(ids, o.ID)
		}
		if page.Next == cursor {
			break
		}
		cursor = page.Next
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 100 {
		t.Errorf("%d outcomes", len(ids))
	}
	if j, err := f.Job(t.Context(), "g", "j7"); err != nil || j.Status != "dead" {
		t.Errorf("%+v, %v", j, err)
	}
	made, err := f.RedriveJobs(t.Context(), "g", RedriveOptions{})
	if err != nil || made.Total != 1 || made.ID != "g-r1" || !made.Sealed {
		t.Fatalf("%+v, %v", made, err)
	}
	work(t, f, nil)
	if made, err = f.Group(t.Context(), "g-r1"); err != nil || made.Status != Completed || made.Succeeded != 1 || made.CallbackState != "pending" {
		t.Fatalf("%+v, %v", made, err)
	}
	_, err = f.RedriveJobs(t.Context(), "g", RedriveOptions{})
	refused(t, err, CodeState)
	_, err = f.Group(t.Context(), "g-r2")
	refused(t, err, CodeNotFound)
	audit(t, f)
	for _, id := range []string{"g-r1", "g"} {
		for _, s := range f.shards {
			if err := s.CallbackDone(t.Context(), id, true, false, 0); err != nil {
				t.Fatal(err)
			}
		}
		if gone, err := f.Delete(t.Context(), id, 5*time.Second); err != nil || !gone {
			t.Fatal(gone, err)
		}
	}
	for n, s := range f.shards {
		if names, err := s.fields(t.Context(), keyNames_); err != nil || len(names) > 0 {
			t.Errorf("shard %d still has %v, %v", n, names, err)
		}
	}
}

func audit(t testing.TB, f *Fleet) {
	t.Helper()
	broken, err := f.Audit(t.Context())
	for _, v := range broken {
		t.Errorf("%s: %s", v.Invariant, v.What)
	}
	if err != nil {
		t.Fatal(err)
	}
}

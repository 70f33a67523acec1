package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

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
		ran, left := 0, int64(0)
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
			d, err := s.Depths(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			left += d.Pending
		}
		keep(t, f)
		if idle++; ran > 0 || left > 0 {
			idle = 0
		}
	}
}

// pullSome pulls n jobs of a shard, as its rate allows.
func pullSome(t testing.TB, s *Store, n int) (jobs []Leased) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); len(jobs) < n; {
		p, err := s.Pull(t.Context(), n-len(jobs), "t")
		if err != nil || time.Now().After(until) {
			t.Fatalf("%d of %d jobs start, %v", len(jobs), n, err)
		}
		jobs = append(jobs, p.Jobs...)
		if len(p.Jobs) == 0 {
			<-time.After(p.Next)
		}
	}
	return jobs
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
				if tended.Chained {
					if err := f.Chain(t.Context(), n, id, tended); err != nil {
						t.Fatal(err)
					}
				}
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

func TestSplit_RefusesWhatItCannotDivide(t *testing.T) {
	f := fleet(t, 3, redistest.Prefix(t), nil, redistest.Client(t))
	for _, spec := range []GroupSpec{
		{Split: 4}, {Split: -1}, {Split: 3, Concurrency: 2}, {Split: 3, Rate: 29}, {Split: 2, After: "g"}, {ExpectedJobs: -1},
	} {
		spec.ID, spec.Tenant, spec.Type = "g", "acme", "t"
		_, _, err := f.CreateGroup(t.Context(), spec)
		refused(t, err, CodeInvalid)
	}
	one := fleet(t, 1, redistest.Prefix(t), nil, redistest.Client(t))
	_, _, err := one.CreateGroup(t.Context(), GroupSpec{ID: "g", Tenant: "acme", Type: "t", Split: 2})
	refused(t, err, CodeInvalid)
	for _, row := range []struct {
		spec GroupSpec
		want int
	}{
		{GroupSpec{ExpectedJobs: 50_000}, 0}, {GroupSpec{ExpectedJobs: 50_001}, 2}, {GroupSpec{ExpectedJobs: 1e9}, 3},
		{GroupSpec{ExpectedJobs: 1e9, Rate: 25}, 2}, {GroupSpec{ExpectedJobs: 1e9, Concurrency: 1}, 0}, {GroupSpec{Split: 1}, 0},
	} {
		spec := row.spec
		spec.ID, spec.Tenant, spec.Type = fmt.Sprintf("e%d-%v-%d", spec.ExpectedJobs, spec.Rate, spec.Concurrency), "acme", "t"
		g, _, err := f.CreateGroup(t.Context(), spec)
		if err != nil || g.Split != row.want {
			t.Errorf("%+v: split %d, %v", row.spec, g.Split, err)
		}
		if again, created, err := f.CreateGroup(t.Context(), spec); err != nil || created || again.Split != row.want {
			t.Errorf("%+v: repeated: %t, %v", row.spec, created, err)
		}
	}
}

func TestSplit_LimitsAreSharedExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, n := rapid.Int64Range(0, 1e9).Draw(t, "whole"), rapid.IntRange(1, 64).Draw(t, "n")
		sum := int64(0)
		for i := range n {
			part := share(whole, n, i)
			if sum += part; n > 1 && part < whole/int64(n) {
				t.Fatalf("part %d of %d has %d of %d", i, n, part, whole)
			}
			g := GroupSpec{Split: n, Part: i, Rate: float64(whole) / 1000, Concurrency: whole}
			if rate, concurrency := g.wholeOf(share(thousandths(g.Rate), n, i), part); rate != g.Rate || concurrency != whole {
				t.Fatalf("part %d of %d: %v, %d of %d", i, n, rate, concurrency, whole)
			}
		}
		if sum != whole {
			t.Fatalf("%d parts of %d are %d", n, whole, sum)
		}
	})
}

// What is decided for a group holds for all its parts, also where the process ended after the first step.
func TestSplit_PartsFollowTheFirst(t *testing.T) {
	f := fleet(t, 3, redistest.Prefix(t), nil, redistest.Client(t))
	g := splitGroup(t, f, GroupSpec{ID: "g", Split: 3, Rate: 3000, Concurrency: 100}, 60)
	p, err := f.parts(t.Context(), "g")
	if err != nil || len(p) != 3 {
		t.Fatal(p, err)
	}
	rates := func() (sum float64, slots int64) {
		for _, s := range p {
			r, err := s.run(t.Context(), "group_read", "id", "g")
			if err != nil {
				t.Fatal(err)
			}
			line := list(r.at(0))
			for i := 1; i+1 < len(line); i += 2 {
				switch line.string(i) {
				case "rate":
					sum += float64(line.int(i+1)) / 1000
				case "conc":
					slots += line.int(i + 1)
				}
			}
		}
		return sum, slots
	}
	if rate, slots := rates(); rate != 3000 || slots != 100 {
		t.Errorf("the parts have %v a second and %d slots", rate, slots)
	}
	if g, err = f.Patch(t.Context(), "g", Patch{Rate: new(50.5), Concurrency: new(int64(7))}); err != nil || g.Rate != 50.5 || g.Concurrency != 7 {
		t.Errorf("%v, %d, %v", g.Rate, g.Concurrency, err)
	}
	if rate, slots := rates(); rate != 50.5 || slots != 7 {
		t.Errorf("the parts have %v a second and %d slots", rate, slots)
	}
	_, err = f.Patch(t.Context(), "g", Patch{Rate: new(20.0)})
	refused(t, err, CodeInvalid)
	if _, err := f.Patch(t.Context(), "g", Patch{Rate: new(0.0), Concurrency: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	every := func(what string, ok func(g *Group) bool) {
		t.Helper()
		keep(t, f)
		for i, s := range p {
			if part, err := s.Group(t.Context(), "g"); err != nil || !ok(&part) {
				t.Errorf("%s: part %d: %+v, %v", what, i, part, err)
			}
		}
	}
	if _, err := p[0].Patch(t.Context(), "g", Patch{Paused: new(true)}); err != nil {
		t.Fatal(err)
	}
	every("paused", func(g *Group) bool { return g.Paused })
	if _, err := f.Patch(t.Context(), "g", Patch{Paused: new(false)}); err != nil {
		t.Fatal(err)
	}
	every("resumed", func(g *Group) bool { return !g.Paused })
	if _, err := p[0].Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if _, err := p[0].Cancel(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if g, err := f.Group(t.Context(), "g"); err != nil || g.Status != Cancelled || g.Cancelled != 60 || g.Pending != 0 {
		t.Errorf("%+v, %v", g, err)
	}
	for range 4 {
		keep(t, f)
	}
	every("cancelled", func(g *Group) bool { return g.Status == Cancelled && g.swept == 2 })
	if g, err := f.Group(t.Context(), "g"); err != nil || g.Cancelled != 60 || string(g.Result) != `{"succeeded":0,"failed":0,"dead":0,"cancelled":60,"errors":{}}` {
		t.Errorf("%+v %s, %v", g, g.Result, err)
	}
	audit(t, f)
}

// Failures are counted over all parts.
func TestSplit_StopsAtTheFailuresOfAllParts(t *testing.T) {
	f := fleet(t, 3, redistest.Prefix(t), nil, redistest.Client(t))
	splitGroup(t, f, GroupSpec{ID: "g", Split: 3, StopAt: Tolerance{Count: 6}, Tolerance: Tolerance{Count: 100}}, 60)
	fail := func(l Leased) Ack { return Ack{Verdict: Rejected, Code: "http_400"} }
	one := func(s *Store, n int) {
		t.Helper()
		for _, l := range pullSome(t, s, n) {
			a := fail(l)
			a.Key, a.Fence = l.Key, l.Fence
			if _, err := s.Ack(t.Context(), []Ack{a}); err != nil {
				t.Fatal(err)
			}
		}
	}
	p, err := f.parts(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	one(p[1], 3)
	if _, err := f.Join(t.Context(), p[1].o.Shard, "g"); err != nil {
		t.Fatal(err)
	}
	if g, err := f.Group(t.Context(), "g"); err != nil || g.Stopped || g.Failed != 3 {
		t.Fatalf("%+v, %v", g, err)
	}
	one(p[2], 3)
	if _, err := f.Join(t.Context(), p[2].o.Shard, "g"); err != nil {
		t.Fatal(err)
	}
	if g, err := f.Group(t.Context(), "g"); err != nil || !g.Stopped || g.Failed != 6 {
		t.Fatalf("%+v, %v", g, err)
	}
	for _, s := range p {
		if pulled, err := s.Pull(t.Context(), 10, "t"); err != nil || len(pulled.Jobs) > 0 {
			t.Errorf("%d jobs start in a stopped group, %v", len(pulled.Jobs), err)
		}
	}
	if _, err := f.Patch(t.Context(), "g", Patch{Paused: new(false)}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	work(t, f, fail)
	if g, err := f.Group(t.Context(), "g"); err != nil || g.Status != Completed || g.Failed != 60 || g.Stopped {
		t.Fatalf("%+v, %v", g, err)
	}
	audit(t, f)
}

// A chunk is counted once, wherever its sender was interrupted.
func TestSplit_CountsAChunkOnce(t *testing.T) {
	f := fleet(t, 3, redistest.Prefix(t), nil, redistest.Client(t))
	splitGroup(t, f, GroupSpec{ID: "g", Split: 3}, 0)
	p, err := f.parts(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	jobs := numbered(30)
	send := func(want Added) {
		t.Helper()
		a, err := f.AddJobs(t.Context(), "g", Chunk{Key: "k", Last: true, Whole: 30, Answer: []byte("a")}, jobs)
		if err != nil || a.Before+a.Accepted != 30 || a.Duplicates != want.Duplicates || a.Done {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	send(Added{})
	_, err = f.Seal(t.Context(), "g")
	refused(t, err, CodeHalfIn)
	// The process ends when one part has ended the chunk.
	own, err := p[1].AddJobs(t.Context(), "g", Chunk{Key: "k"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p[1].AddJobs(t.Context(), "g", Chunk{Key: "k", Last: true, Answer: fmt.Append(nil, own.Before)}, nil); err != nil {
		t.Fatal(err)
	}
	send(Added{Duplicates: 30})
	if a, err := f.AddJobs(t.Context(), "g", Chunk{Key: "k", Last: true, Answer: []byte("a")}, nil); err != nil || !a.Done || a.Before != 30 {
		t.Fatalf("%+v, %v", a, err)
	}
	_, err = f.AddJobs(t.Context(), "g", Chunk{Key: "k"}, jobs)
	if done, is := errors.AsType[*ChunkDone](err); !is || string(done.Answer) != "a" {
		t.Fatal(err)
	}
	if g, err := f.Seal(t.Context(), "g"); err != nil || g.Total != 30 {
		t.Fatalf("%+v, %v", g, err)
	}
	audit(t, f)
}

// The end of the group is one step of the first part; whatever process ends before or after it, the group has one callback.
func TestSplit_EndsOnceThroughInterruptions(t *testing.T) {
	f := fleet(t, 3, redistest.Prefix(t), nil, redistest.Client(t))
	splitGroup(t, f, GroupSpec{ID: "g", Split: 3, CallbackURL: "http://127.0.0.1/"}, 30)
	p, err := f.parts(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p[0].Seal(t.Context(), "g"); err != nil { // and the process ends: the other parts are not sealed
		t.Fatal(err)
	}
	for _, s := range p {
		own, err := s.Group(t.Context(), "g")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range pullSome(t, s, int(own.Total)) {
			if _, err := s.Ack(t.Context(), []Ack{{Key: l.Key, Fence: l.Fence, Verdict: Done}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if g, err := f.Group(t.Context(), "g"); err != nil || g.Status != Running || g.Succeeded != 30 {
		t.Fatalf("%+v, %v", g, err)
	}
	if list, _, _, err := f.Groups(t.Context(), Filter{Limit: 10, Status: Running}); err != nil || len(list) != 1 {
		t.Errorf("%d groups are listed as running, %v", len(list), err)
	}
	if list, _, _, err := f.Groups(t.Context(), Filter{Limit: 10, Status: Aggregating}); err != nil || len(list) != 0 {
		t.Errorf("%d groups are listed as aggregating, %v", len(list), err)
	}
	_, err = f.Join(t.Context(), p[0].o.Shard, "g") // seals the others
	if err != nil {
		t.Fatal(err)
	}
	// The first part ends, and the process before the others have.
	_, first, others, err := f.settledParts(t.Context(), "g")
	if err != nil || first == nil {
		t.Fatal(first, err)
	}
	if _, joined, err := p[0].join(t.Context(), "g", 0, Completed, othersWords(others), []byte("{}")); err != nil || !joined {
		t.Fatal(joined, err)
	}
	if _, joined, err := p[0].join(t.Context(), "g", 0, Failed, othersWords(others), []byte("{}")); err != nil || joined {
		t.Fatal("the group ended twice", err)
	}
	if part, err := p[2].Group(t.Context(), "g"); err != nil || part.Status != Aggregating {
		t.Fatalf("%+v, %v", part, err)
	}
	for i, s := range p {
		if _, err := f.Join(t.Context(), s.o.Shard, "g"); err != nil {
			t.Fatal(err)
		}
		part, err := s.Group(t.Context(), "g")
		if err != nil || part.Status != Completed || (part.CallbackState == "pending") != (i == 0) {
			t.Errorf("part %d: %+v, %v", i, part, err)
		}
	}
	if g, err := f.Group(t.Context(), "g"); err != nil || g.Succeeded != 30 || g.Total != 30 {
		t.Errorf("%+v, %v", g, err)
	}
	audit(t, f)
}

// A shard that lost its data takes its part with it. The group says so and ends; its other parts lose nothing.
func TestSplit_EndsWithoutALostPart(t *testing.T) {
	f := fleet(t, 3, redistest.Prefix(t), nil, redistest.Client(t))
	splitGroup(t, f, GroupSpec{ID: "g", Split: 3}, 60)
	p, err := f.parts(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	part, err := p[1].Group(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if err := p[1].o.Client.Del(t.Context(), p[1].keys...).Err(); err != nil {
		t.Fatal(err)
	}
	lost := fmt.Sprint([]int{p[1].o.Shard})
	if g, err := f.Group(t.Context(), "g"); err != nil || fmt.Sprint(g.Lost) != lost || g.Total != 60-part.Total {
		t.Fatalf("%+v, %v", g, err)
	}
	_, err = f.AddJobs(t.Context(), "g", Chunk{}, numbered(60))
	refused(t, err, CodeNotFound)
	if _, err := f.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	work(t, f, nil)
	if g, err := f.Group(t.Context(), "g"); err != nil || g.Status != Failed || fmt.Sprint(g.Lost) != lost || g.Succeeded != 60-part.Total {
		t.Fatalf("%+v, %v", g, err)
	}
	if gone, err := f.Delete(t.Context(), "g", 5*time.Second); err != nil || !gone {
		t.Error(gone, err)
	}
	// Without its first part the group is unknown, and what is left of it ends.
	splitGroup(t, f, GroupSpec{ID: "h", Split: 3}, 60)
	if p, err = f.parts(t.Context(), "h"); err != nil {
		t.Fatal(err)
	}
	if err := p[0].o.Client.Del(t.Context(), p[0].keys...).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = f.Group(t.Context(), "h")
	refused(t, err, CodeNotFound)
	if _, err := p[1].Seal(t.Context(), "h"); err != nil {
		t.Fatal(err)
	}
	work(t, f, nil)
	if part, err := p[1].Group(t.Context(), "h"); err != nil || part.Status != Failed {
		t.Errorf("%+v, %v", part, err)
	}
}

// A redrive without jobs leaves no group, also of a group whose outcomes a reducer takes.
func TestSplit_EmptyRedriveLeavesNothing(t *testing.T) {
	f := fleet(t, 3, redistest.Prefix(t), nil, redistest.Client(t))
	spec := GroupSpec{ID: "g", Tenant: "acme", Type: "t", Split: 3, Aggregate: `{"op":"sum","field":"v"}`}
	if _, _, err := f.CreateGroup(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	_, err := f.RedriveJobs(t.Context(), "g", RedriveOptions{})
	refused(t, err, CodeState)
	for n, s := range f.shards {
		if names, err := s.fields(t.Context(), keyNames_); err != nil || !slices.Equal(names, []string{"g"}) {
			t.Errorf("shard %d has %v, %v", n, names, err)
		}
	}
	audit(t, f)
}

// The refusal of a redrive without jobs names the redrive that has them, whatever parts they are in.
func TestSplit_EmptyRedriveNamesTheOneThatHasTheJobs(t *testing.T) {
	f := fleet(t, 3, redistest.Prefix(t), nil, redistest.Client(t))
	splitGroup(t, f, GroupSpec{ID: "g", Split: 3}, 30)
	if _, err := f.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	work(t, f, func(Leased) Ack { return Ack{Verdict: Buried, Code: "no_route"} })
	last := ""
	for _, o := range []RedriveOptions{{Job: "j1"}, {Job: "j2"}, {Job: "j3"}, {}} {
		r, err := f.RedriveJobs(t.Context(), "g", o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.RedriveJobs(t.Context(), "g", o)
		refused(t, err, CodeState)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("redrive %q has ", r.ID)) {
			t.Errorf("%+v: the jobs are in %s, and the refusal is %v", o, r.ID, err)
		}
		last = r.ID
	}
	_, err := f.RedriveJobs(t.Context(), "g", RedriveOptions{})
	if want := fmt.Sprintf("group \"g\" has no dead letters left to redrive, of 30: redrive %q has them", last); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	_, err = f.RedriveJobs(t.Context(), "g", RedriveOptions{Codes: []string{"no_route"}})
	if want := fmt.Sprintf("or redrive %q has them", last); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	audit(t, f)
}

// The id of a split group whose first part was refused, or lost with all jobs, is free for another group, although the process was killed
// before it deleted the other parts: as long as none of them has a job.
func TestSplit_EmptyPartsWithoutAFirstOneHoldNoID(t *testing.T) {
	for _, state := range []string{"unsealed", "sealed", "ended", "with jobs"} {
		f := fleet(t, 3, redistest.Prefix(t)+state[:2], nil, redistest.Client(t))
		jobs := 0
		if state == "with jobs" {
			jobs = 20
		}
		splitGroup(t, f, GroupSpec{ID: "g", Split: 3, Weight: 2}, jobs)
		p, err := f.parts(t.Context(), "g")
		if err != nil {
			t.Fatal(err)
		}
		if err := p[0].o.Client.Del(t.Context(), p[0].keys...).Err(); err != nil {
			t.Fatal(err)
		}
		for _, s := range p[1:] {
			if state == "sealed" || state == "ended" {
				if _, err := s.Seal(t.Context(), "g"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if state == "ended" {
			work(t, f, nil)
		}
		spec := GroupSpec{ID: "g", Tenant: "acme", Type: "t", Split: 3, Weight: 5}
		if _, created, err := f.CreateGroup(t.Context(), spec); jobs > 0 {
			refused(t, err, CodeExists)
			spec.Weight = 2
			if g, created, err := f.CreateGroup(t.Context(), spec); err != nil || !created || g.Total != 0 {
				t.Errorf("the first part again: %+v, %t, %v", g, created, err)
			}
			if g, err := f.Group(t.Context(), "g"); err != nil || g.Total == 0 || len(g.Lost) > 0 {
				t.Errorf("the group again: %+v, %v", g, err)
			}
			continue
		} else if err != nil || !created {
			t.Errorf("%s: %t, %v", state, created, err)
			continue
		}
		for i, s := range p {
			if part, err := s.Group(t.Context(), "g"); err != nil || part.Weight != 5 || part.Sealed {
				t.Errorf("%s: part %d: %+v, %v", state, i, part, err)
			}
		}
		audit(t, f)
	}
}

package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"
)

const counts = `{"op":"count"}`

// ended acks the jobs of group g, the first with the given failures, and returns the group.
func ended(t *testing.T, s *Store, failures ...Ack) Group {
	t.Helper()
	jobs := pull(t, s, 500).Jobs
	acks := make([]Ack, len(jobs))
	for i, j := range jobs {
		acks[i] = Ack{Verdict: Done}
		if i < len(failures) {
			acks[i] = failures[i]
		}
		acks[i].Key, acks[i].Fence = j.Key, j.Fence
	}
	if _, err := s.Ack(t.Context(), acks); err != nil {
		t.Fatal(err)
	}
	g, err := s.Group(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func sealed(t *testing.T, s *Store, spec GroupSpec, jobs int) Group {
	t.Helper()
	spec.ID, spec.Tenant, spec.Aggregate = "g", "acme", cmp.Or(spec.Aggregate, counts)
	create(t, s, spec)
	add(t, s, "g", 0, jobs)
	g, err := s.Seal(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A group that only counts ends in the same step as its last job, without a reducer.
func TestCount_EndsWithTheLastJob(t *testing.T) {
	for _, row := range []struct {
		spec     GroupSpec
		jobs     int
		failures []Ack
		status   Status
		result   string
	}{
		{jobs: 0, status: Completed, result: `{"succeeded":0,"failed":0,"dead":0,"cancelled":0,"errors":{}}`},
		{jobs: 3, status: Completed, result: `{"succeeded":3,"failed":0,"dead":0,"cancelled":0,"errors":{}}`},
		{jobs: 3, failures: []Ack{{Verdict: Rejected, Code: "http_400"}, {Verdict: Rejected, Code: "http_400"}}, status: Failed,
			result: `{"succeeded":1,"failed":2,"dead":0,"cancelled":0,"errors":{"http_400":2}}`},
		{spec: GroupSpec{Tolerance: Tolerance{Count: 2}}, jobs: 3, failures: []Ack{{Verdict: Rejected}, {Verdict: Buried, Code: "timeout"}}, status: Completed,
			result: `{"succeeded":1,"failed":1,"dead":1,"cancelled":0,"errors":{"error":1,"timeout":1}}`},
		{spec: GroupSpec{Tolerance: Tolerance{Share: true, Percent: 33.3}}, jobs: 3, failures: []Ack{{Verdict: Rejected}}, status: Failed,
			result: `{"succeeded":2,"failed":1,"dead":0,"cancelled":0,"errors":{"error":1}}`},
		{spec: GroupSpec{Tolerance: Tolerance{Share: true, Percent: 33.4}, Aggregate: `{"op":"concat"}`}, jobs: 3, failures: []Ack{{Verdict: Rejected}}, status: Completed,
			result: `{"op":"concat","results":"/v1/groups/g/results","succeeded":2,"failed":1,"dead":0,"cancelled":0,"errors":{"error":1}}`},
	} {
		s, c := open(t, nil)
		told := map[Status]int64{}
		s.o.Concluded = func(status Status, n int64) { told[status] += n }
		g := sealed(t, s, row.spec, row.jobs)
		if row.jobs > 0 {
			if g.Status.Ended() {
				t.Fatalf("%+v", g)
			}
			c.advance(time.Second)
			g = ended(t, s, row.failures...)
		}
		if g.Status != row.status || string(g.Result) != row.result || g.FinishedAt.UnixMicro() != c.us {
			t.Errorf("%s %s at %s, want %s %s", g.Status, g.Result, g.FinishedAt, row.status, row.result)
		}
		if want := map[Status]int64{row.status: 1}; !maps.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
		if d := dispatch(t, s); len(d.Tend) != 0 {
			t.Errorf("there is housekeeping for %v", d.Tend)
		}
		clean(t, s)
		c.advance(31 * 24 * time.Hour)
		for range 2 {
			if _, err := s.Tend(t.Context(), "g"); err != nil {
				t.Fatal(err)
			}
		}
		clean(t, s)
		if n := s.o.Client.HLen(t.Context(), s.keys[keySums]).Val(); n != 0 {
			t.Errorf("%d results are left when the group is gone", n)
		}
	}
}

func TestCount_TellsItsCallback(t *testing.T) {
	s, _ := open(t, nil)
	sealed(t, s, GroupSpec{CallbackURL: "https://a.example/done"}, 1)
	if g := ended(t, s); g.Status != Completed || g.CallbackState != "pending" {
		t.Fatalf("%+v", g)
	}
	if d := dispatch(t, s); len(d.Tend) != 1 {
		t.Fatalf("%+v", d)
	}
	if tend, err := s.Tend(t.Context(), "g"); err != nil || !tend.Callback || tend.Reduce {
		t.Fatalf("%+v %v", tend, err)
	}
}

func TestCount_OfACancelledGroupComesWithTheSweep(t *testing.T) {
	s, _ := open(t, nil)
	sealed(t, s, GroupSpec{}, 700)
	ack(t, s, Rejected, pull(t, s, 1).Jobs...)
	running := pull(t, s, 1).Jobs
	if g, err := s.Cancel(t.Context(), "g"); err != nil || g.Result != nil {
		t.Fatalf("%+v %v", g, err)
	}
	ack(t, s, Done, running...)
	for again := true; again; {
		tend, err := s.Tend(t.Context(), "g")
		if err != nil || tend.Reduce {
			t.Fatalf("%+v %v", tend, err)
		}
		again = tend.Again
	}
	want := `{"succeeded":1,"failed":1,"dead":0,"cancelled":698,"errors":{"boom":1}}`
	if g, err := s.Group(t.Context(), "g"); err != nil || string(g.Result) != want {
		t.Fatalf("%s %v, want %s", g.Result, err, want)
	}
	clean(t, s)
}

func TestCount_BoundsCodes(t *testing.T) {
	s, _ := open(t, nil)
	sealed(t, s, GroupSpec{}, 250)
	var want Tally
	for range 2 {
		jobs := pull(t, s, 125).Jobs
		for i, j := range jobs {
			code := fmt.Sprintf("code_%03d", i)
			if _, err := s.Ack(t.Context(), []Ack{{Key: j.Key, Fence: j.Fence, Verdict: Rejected, Code: code}}); err != nil {
				t.Fatal(err)
			}
			want.Add(&Outcome{Status: "failed", Code: code})
		}
	}
	g, err := s.Group(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	var have Tally
	if err := json.Unmarshal(g.Result, &have); err != nil || !maps.Equal(have.Errors, want.Errors) || have.Errors["other"] != 50 {
		t.Errorf("%v %v, want %v", have.Errors, err, want.Errors)
	}
	clean(t, s)
}

// If a process of an earlier version has ended jobs without counting them, a reducer reads all outcomes.
func TestCount_IsLeftToAReducerWhereItIsNotWhole(t *testing.T) {
	s, _ := open(t, nil)
	sealed(t, s, GroupSpec{}, 5)
	ack(t, s, Done, pull(t, s, 2).Jobs...)
	w := &wreck{t: t, s: s, c: s.o.Client, g: map[string]string{"g": "1"}}
	w.flow("g", "tally", 1) // as if it had not counted them
	if g := ended(t, s); g.Status != Aggregating {
		t.Fatalf("%+v", g)
	}
	if tend, err := s.Tend(t.Context(), "g"); err != nil || !tend.Reduce {
		t.Fatalf("%+v %v", tend, err)
	}
	if g := reduce(t, s, "g"); g.Status != Completed || string(g.Result) != `{"sum":1}` {
		t.Fatalf("%+v", g)
	}
	clean(t, s)
}

package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/short"
)

// runMixed runs n jobs of a group: of ten, one fails, one dies, and the others succeed.
func runMixed(t *testing.T, s *Store, group string, n int) {
	t.Helper()
	for n > 0 {
		jobs := pull(t, s, 50).Jobs
		if len(jobs) == 0 {
			t.Fatalf("%d jobs are left", n)
		}
		n -= len(jobs)
		var acks []Ack
		for _, j := range jobs {
			if j.Group != group {
				t.Fatalf("job of group %s", j.Group)
			}
			a := Ack{Key: j.Key, Fence: j.Fence, Verdict: Done, Result: []byte(strings.Repeat("r", 100))}
			switch j.ID[len(j.ID)-1] {
			case '3':
				a = Ack{Key: j.Key, Fence: j.Fence, Verdict: Rejected, Code: "http_400"}
			case '7':
				a = Ack{Key: j.Key, Fence: j.Fence, Verdict: Buried, Code: "gone"}
			}
			acks = append(acks, a)
		}
		if _, err := s.Ack(t.Context(), acks); err != nil {
			t.Fatal(err)
		}
	}
}

// take reduces the outcomes so far, some at a time, and counts them by status.
func take(t *testing.T, s *Store, group string, seen map[string]int) {
	t.Helper()
	r, err := s.BeginReduce(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	cursor := r.Cursor
	for left := r.Group.Succeeded + r.Group.Failed + r.Group.Dead + r.Group.Cancelled - r.Group.Reduced; left > 0; {
		p, err := s.Outcomes(t.Context(), &r, cursor, int(min(left, 130)))
		if err != nil || len(p.Outcomes) == 0 {
			t.Fatalf("%d outcomes are left at %s: %v", left, cursor, err)
		}
		for _, o := range p.Outcomes {
			seen[o.Status]++
		}
		if ok, err := s.CommitReduce(t.Context(), group, r.Fence, p.Next, int64(len(p.Outcomes)), []byte("{}")); err != nil || !ok {
			t.Fatal(ok, err)
		}
		left, cursor = left-int64(len(p.Outcomes)), p.Next
	}
}

// kept lists a group's results, and checks that each can be read on from the cursor before it.
func kept(t *testing.T, s *Store, group string) (all []Outcome) {
	t.Helper()
	for cursor := ""; ; {
		p, err := s.Results(t.Context(), group, cursor, 7)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Outcomes) == 0 {
			return all
		}
		all = append(all, p.Outcomes...)
		cursor = p.Outcomes[len(p.Outcomes)-1].Cursor
	}
}

// TestResults_KeepsWhatItsGroupKeeps: the reducer reads every outcome, before the seal and after it. Then the outcomes that the group
// does not keep are deleted, and the others are listed in order.
func TestResults_KeepsWhatItsGroupKeeps(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	for _, results := range []Results{AllResults, FailureResults, NoResults} {
		t.Run(fmt.Sprintf("%q", results), func(t *testing.T) {
			stores(t, func(t *testing.T, client redis.UniversalClient) {
				s, _ := openOn(t, client, func(set *Settings) { set.Global = 1e6 })
				create(t, s, GroupSpec{ID: "g", Tenant: "acme", Results: results})
				seen := map[string]int{}
				add(t, s, "g", 0, 1250)
				runMixed(t, s, "g", 1250)
				take(t, s, "g", seen)
				clean(t, s)
				// The id of an ended job stays known while more jobs may be added.
				a, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "j000000", Payload: []byte("1")}, {ID: "j000003", Payload: []byte("1")}})
				if err != nil || a.Duplicates != 2 {
					t.Fatalf("%+v, %v", a, err)
				}
				add(t, s, "g", 1250, 1250)
				if _, err := s.Seal(t.Context(), "g"); err != nil {
					t.Fatal(err)
				}
				clean(t, s)
				runMixed(t, s, "g", 700)
				take(t, s, "g", seen)
				clean(t, s)
				before := kept(t, s, "g")
				runMixed(t, s, "g", 550)
				take(t, s, "g", seen)
				g := reduce(t, s, "g")
				for again := true; again; {
					did, err := s.Tend(t.Context(), "g")
					if err != nil {
						t.Fatal(err)
					}
					again = did.Again
				}
				clean(t, s)
				if fmt.Sprint(seen) != "map[dead:250 failed:250 succeeded:2000]" || g.Reduced != 2500 {
					t.Errorf("the reducer saw %v, %+v", seen, g)
				}
				g, err = s.Group(t.Context(), "g")
				if err != nil || g.Results != results {
					t.Fatalf("%+v, %v", g, err)
				}
				after := kept(t, s, "g")
				want := map[Results]int{AllResults: 2500, FailureResults: 500, NoResults: 500}[results]
				if len(after) != want || g.Gone != int64(2500-want) {
					t.Fatalf("%d outcomes are kept, %d went, want %d", len(after), g.Gone, want)
				}
				ids := func(list []Outcome) (ids []string) {
					for _, o := range list {
						if o.Status != "succeeded" || results == AllResults {
							ids = append(ids, o.ID)
						}
					}
					return ids
				}
				if b := ids(before); !slices.Equal(b, ids(after)[:len(b)]) {
					t.Error("the order of what is kept has changed")
				}
				pages, err := client.HLen(t.Context(), s.keys[keyDone]).Result()
				if err != nil || pages != 25 {
					t.Errorf("%d pages", pages)
				}
			})
		})
	}
}

// TestResults_OfWholePagesAreGone: if all jobs of a group succeed, only its counts stay, and no data is left over.
func TestResults_OfWholePagesAreGone(t *testing.T) {
	s, _ := open(t, func(set *Settings) { set.Global = 1e6 })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Results: FailureResults})
	add(t, s, "g", 0, 1230)
	if _, err := s.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	for range 1230 / 205 {
		ack(t, s, Done, pull(t, s, 205).Jobs...)
	}
	reduce(t, s, "g")
	for again := true; again; {
		did, err := s.Tend(t.Context(), "g")
		if err != nil {
			t.Fatal(err)
		}
		again = did.Again
	}
	clean(t, s)
	for _, key := range []int{keyJobs, keyDone} {
		if n, err := s.o.Client.HLen(t.Context(), s.keys[key]).Result(); err != nil || n != 0 {
			t.Errorf("%d entries of %s", n, s.keys[key])
		}
	}
	if list := kept(t, s, "g"); len(list) != 0 {
		t.Errorf("%d outcomes", len(list))
	}
	_, err := s.Job(t.Context(), "g", "j000001")
	refused(t, err, CodeNotKept)
	_, err = s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "j000001", Payload: []byte("1")}})
	refused(t, err, CodeSealed)
}

// TestResults_LettersAreRedriven: a group with results: none keeps dead letters until a redrive takes them.
func TestResults_LettersAreRedriven(t *testing.T) {
	s, _ := open(t, func(set *Settings) { set.Global = 1e6 })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Results: NoResults})
	add(t, s, "g", 0, 300)
	if _, err := s.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	runMixed(t, s, "g", 300)
	reduce(t, s, "g")
	if _, err := s.Tend(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if list := kept(t, s, "g"); len(list) != 60 {
		t.Fatalf("%d outcomes", len(list))
	}
	again, err := s.RedriveJobs(t.Context(), "g", RedriveOptions{Statuses: []string{"dead", "failed"}})
	if err != nil || again.Total != 60 || again.Results != NoResults {
		t.Fatalf("%+v, %v", again, err)
	}
	clean(t, s)
	if list := kept(t, s, "g"); len(list) != 0 {
		t.Errorf("%d outcomes are kept", len(list))
	}
	_, err = s.Job(t.Context(), "g", "j000003")
	refused(t, err, CodeNotKept)
	if n, err := s.o.Client.HLen(t.Context(), s.keys[keyJobs]).Result(); err != nil || n != 60 {
		t.Errorf("%d records", n)
	}
}

// TestResults_OfAGroupThatCounts: an outcome that is counted on arrival is not written; while jobs may be added, the job's id stays
// known.
func TestResults_OfAGroupThatCounts(t *testing.T) {
	for _, results := range []Results{FailureResults, NoResults} {
		s, c := open(t, func(set *Settings) { set.Global = 1e6 })
		create(t, s, GroupSpec{ID: "g", Tenant: "acme", Results: results, Aggregate: counts, CallbackURL: "http://a.example/"})
		records := func(want int64) {
			t.Helper()
			if n, err := s.o.Client.HLen(t.Context(), s.keys[keyJobs]).Result(); err != nil || n != want {
				t.Errorf("%s: %d records of jobs, want %d", results, n, want)
			}
		}
		add(t, s, "g", 0, 300)
		runMixed(t, s, "g", 300)
		clean(t, s)
		records(300)
		a, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "j000000", Payload: []byte("1")}})
		if err != nil || a.Duplicates != 1 {
			t.Fatalf("%+v, %v", a, err)
		}
		_, err = s.Job(t.Context(), "g", "j000000")
		refused(t, err, CodeNotKept)
		if list := kept(t, s, "g"); len(list) != 60 {
			t.Errorf("%d outcomes are listed", len(list))
		}
		add(t, s, "g", 300, 300)
		if _, err := s.Seal(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
		runMixed(t, s, "g", 200)
		clean(t, s)
		records(600 - 160)
		if results == NoResults {
			if _, err := s.Cancel(t.Context(), "g"); err != nil {
				t.Fatal(err)
			}
		} else {
			runMixed(t, s, "g", 100)
		}
		c.advance(time.Second)
		for again := true; again; {
			did, err := s.Tend(t.Context(), "g")
			if err != nil || did.Reduce {
				t.Fatal(did, err)
			}
			again = did.Again
		}
		clean(t, s)
		g, err := s.Group(t.Context(), "g")
		if err != nil {
			t.Fatal(err)
		}
		want := map[Results]string{
			FailureResults: `{"succeeded":480,"failed":60,"dead":60,"cancelled":0,"errors":{"gone":60,"http_400":60}}`,
			NoResults:      `{"succeeded":400,"failed":50,"dead":50,"cancelled":100,"errors":{"gone":50,"http_400":50}}`,
		}[results]
		if string(g.Result) != want {
			t.Errorf("%s, want %s", g.Result, want)
		}
		records(g.Failed + g.Dead)
		if list := kept(t, s, "g"); len(list) != int(g.Failed+g.Dead) {
			t.Errorf("%s: %d outcomes are kept", results, len(list))
		}
		if again, err := s.RedriveJobs(t.Context(), "g", RedriveOptions{Statuses: []string{"dead", "failed"}}); err != nil || again.Total != g.Failed+g.Dead {
			t.Errorf("%+v, %v", again, err)
		}
		clean(t, s)
	}
}

// TestResults_NotKeptAreNotReducedAgain: a process of an earlier version has ended jobs of a group that counts. Their outcomes no longer
// exist, so the counts are used instead of a reduction.
func TestResults_NotKeptAreNotReducedAgain(t *testing.T) {
	s, _ := open(t, nil)
	w := &wreck{t: t, s: s, c: s.o.Client, g: map[string]string{"g": "1"}}
	sealed(t, s, GroupSpec{Results: FailureResults}, 4)
	ack(t, s, Done, pull(t, s, 3).Jobs...)
	w.flow("g", "tally", 2) // as if it had not counted two of them
	if g := ended(t, s); g.Status != Completed || string(g.Result) != `{"succeeded":4,"failed":0,"dead":0,"cancelled":0,"errors":{}}` {
		t.Errorf("%s %s", g.Status, g.Result)
	}
}

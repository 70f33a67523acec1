package store

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/short"
)

// TestPull_IsBoundedInBytes: a pull of large jobs took longer than store.timeout, so its jobs were returned and pulled again for ever.
func TestPull_IsBoundedInBytes(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	for name, classic := range map[string]bool{"default": false, "classic": true} {
		t.Run(name, func(t *testing.T) {
			s, c := open(t, func(set *Settings) {
				set.Global, set.Burst = 1e6, 1e6
				if classic {
					set.Policy, set.Limiter, set.Gating = "score", "fixed_window", false
				}
			})
			create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
			create(t, s, GroupSpec{ID: "small", Tenant: "acme"})
			add(t, s, "small", 0, 30)
			for i := range 24 {
				size := []int{10, 300 << 10, 1 << 20}[i%3]
				if _, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: fmt.Sprint("b", i), Payload: bytes.Repeat([]byte("x"), size)}}); err != nil {
					t.Fatal(err)
				}
			}
			runs := map[string]int{}
			for range 60 {
				p := pull(t, s, 200)
				sum, largest := 0, 0
				for _, j := range p.Jobs {
					sum, largest = sum+len(j.Payload), max(largest, len(j.Payload))
					runs[j.ID]++
				}
				if sum-largest > VisitBytes {
					t.Fatalf("one pull of %d bytes", sum)
				}
				if len(p.Jobs) == 0 && len(runs) == 54 && slices.Max(values(runs)) == 2 {
					break
				}
				if len(p.Jobs) == 0 && !p.More {
					c.advance(2 * time.Second)
					dispatch(t, s)
				}
				for _, j := range p.Jobs {
					if runs[j.ID] == 1 {
						ack(t, s, Retry, j) // and comes back through the front
					} else {
						ack(t, s, Done, j)
					}
				}
			}
			clean(t, s)
			if g, err := s.Group(t.Context(), "g"); err != nil || g.Succeeded != 24 {
				t.Errorf("%+v, %v", g, err)
			}
		})
	}
}

func values(m map[string]int) (out []int) {
	for _, n := range m {
		out = append(out, n)
	}
	return out
}

// TestResults_AreBoundedInBytes: a reducer read 500 whole outcomes at a time, whatever their size.
func TestResults_AreBoundedInBytes(t *testing.T) {
	s, _ := open(t, func(set *Settings) { set.Global, set.Burst = 1e6, 1e6 })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 230)
	jobs := pull(t, s, 500).Jobs
	for i, j := range jobs {
		a := Ack{Key: j.Key, Fence: j.Fence, Verdict: Done, Result: []byte("1")}
		if i%40 == 39 {
			a.Result = bytes.Repeat([]byte("x"), 700<<10)
		}
		if i%50 == 7 {
			a.Verdict, a.Error = Buried, string(bytes.Repeat([]byte("x"), 400<<10))
		}
		if _, err := s.Ack(t.Context(), []Ack{a}); err != nil {
			t.Fatal(err)
		}
	}
	walk := func(read func(cursor string) (Page, error)) (ids []string) {
		t.Helper()
		cursor := ""
		for {
			p, err := read(cursor)
			if err != nil {
				t.Fatal(err)
			}
			sum, largest := 0, 0
			for _, o := range p.Outcomes {
				ids = append(ids, o.ID)
				size := len(o.Result) + len(o.Error)
				sum, largest = sum+size, max(largest, size)
			}
			if sum-largest > VisitBytes {
				t.Fatalf("one page of %d bytes", sum)
			}
			if cursor = p.Next; len(p.Outcomes) == 0 || cursor == "" {
				return ids
			}
		}
	}
	var want []string
	for _, j := range jobs {
		want = append(want, j.ID)
	}
	if have := walk(func(cursor string) (Page, error) { return s.Results(t.Context(), "g", cursor, 500) }); !slices.Equal(have, want) {
		t.Errorf("%d outcomes in another order or number: %v", len(have), have)
	}
	if have := walk(func(cursor string) (Page, error) { return s.Results(t.Context(), "g", cursor, 7) }); !slices.Equal(have, want) {
		t.Errorf("by sevens: %d outcomes in another order or number: %v", len(have), have)
	}
	at, err := s.BeginReduce(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if have := walk(func(cursor string) (Page, error) { return s.Outcomes(t.Context(), &at, cursor, 500) }); !slices.Equal(have, want) {
		t.Errorf("a reducer reads %d outcomes in another order or number: %v", len(have), have)
	}
	if have := walk(func(cursor string) (Page, error) { return s.Dead(t.Context(), "g", cursor, 100) }); len(have) != 5 {
		t.Errorf("dead letters %v", have)
	}
	clean(t, s)
}

// A reducer, which reads without a script, reads the same outcomes and cursors as Results, for every size of pages.
func TestOutcomes_AreResults(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		s, _ := openOn(t, client, nil)
		create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
		add(t, s, "g", 0, 350)
		for {
			jobs := pull(t, s, 50).Jobs
			if len(jobs) == 0 {
				break
			}
			ack(t, s, Done, jobs...)
		}
		at, err := s.BeginReduce(t.Context(), "g")
		if err != nil || at.widest == 0 {
			t.Fatal(at.widest, err)
		}
		for _, limit := range []int{1, 7, 99, 100, 101, 350, 500} {
			for cursor, read := "", 0; ; {
				want, err := s.Results(t.Context(), "g", cursor, limit)
				if err != nil {
					t.Fatal(err)
				}
				have, err := s.Outcomes(t.Context(), &at, cursor, limit)
				if err != nil || have.Next != want.Next || len(have.Outcomes) != len(want.Outcomes) {
					t.Fatalf("%d from %q: %d outcomes to %q, want %d to %q; %v", limit, cursor, len(have.Outcomes), have.Next, len(want.Outcomes), want.Next, err)
				}
				for i := range have.Outcomes {
					if have.Outcomes[i].ID != want.Outcomes[i].ID || have.Outcomes[i].Status != "succeeded" {
						t.Fatalf("%d from %q: outcome %d is %+v", limit, cursor, i, have.Outcomes[i])
					}
				}
				if cursor, read = have.Next, read+len(have.Outcomes); len(have.Outcomes) == 0 {
					if read != 350 {
						t.Fatalf("%d outcomes by %ds", read, limit)
					}
					break
				}
			}
		}
	})
}

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

// clock is the clock of a test's store, in microseconds.
type clock struct{ us int64 }

func (c *clock) now() int64              { return c.us }
func (c *clock) advance(d time.Duration) { c.us += d.Microseconds() }

const begin = int64(1_700_000_000_000_000)

// open returns a store of its own on the shared server, with a clock that the test moves.
func open(t testing.TB, change func(*Settings)) (*Store, *clock) {
	t.Helper()
	return openOn(t, redistest.Client(t), change)
}

func openOn(t testing.TB, client redis.UniversalClient, change func(*Settings)) (*Store, *clock) {
	t.Helper()
	c := &clock{us: begin}
	set := Defaults()
	if change != nil {
		change(&set)
	}
	s, err := New(Options{Client: client, Prefix: redistest.Prefix(t), Timeout: 10 * time.Second, Settings: set, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// stores runs a test on the shared server and on the shared cluster of one node.
func stores(t *testing.T, f func(t *testing.T, client redis.UniversalClient)) {
	t.Run("server", func(t *testing.T) { t.Parallel(); f(t, redistest.Client(t)) })
	t.Run("cluster", func(t *testing.T) { t.Parallel(); f(t, redistest.Cluster(t)) })
}

func create(t testing.TB, s *Store, spec GroupSpec) Group {
	t.Helper()
	if spec.Type == "" {
		spec.Type = "webhook"
	}
	if spec.Aggregate == "" {
		spec.Aggregate = `{"op":"sum","field":"n"}` // a reducer's work, which tests do step by step
	}
	g, _, err := s.CreateGroup(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func add(t testing.TB, s *Store, group string, from, n int) {
	t.Helper()
	for n > 0 {
		part := min(n, MaxAdd)
		jobs := make([]Job, part)
		for i := range jobs {
			jobs[i] = Job{ID: fmt.Sprintf("j%06d", from+i), Payload: []byte(`{}`)}
		}
		if _, err := s.AddJobs(t.Context(), group, Chunk{}, jobs); err != nil {
			t.Fatal(err)
		}
		from, n = from+part, n-part
	}
}

func pull(t testing.TB, s *Store, want int) Pulled {
	t.Helper()
	p, err := s.Pull(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ack(t testing.TB, s *Store, verdict Verdict, jobs ...Leased) []AckState {
	t.Helper()
	acks := make([]Ack, len(jobs))
	for i, j := range jobs {
		acks[i] = Ack{Key: j.Key, Fence: j.Fence, Verdict: verdict, Result: []byte(`{"ok":true}`), Code: "boom", Error: "it went wrong", Retries: 2}
	}
	states, err := s.Ack(t.Context(), acks)
	if err != nil {
		t.Fatal(err)
	}
	return states
}

func ids(jobs []Leased) []string {
	out := make([]string, len(jobs))
	for i, j := range jobs {
		out[i] = j.ID
	}
	return out
}

func dispatch(t testing.TB, s *Store) Dispatch {
	t.Helper()
	d, err := s.Dispatch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// rounds lets time pass with a dispatcher that is alive, and adds up what it does.
func rounds(t testing.TB, s *Store, c *clock, d time.Duration) (sum Dispatch) {
	t.Helper()
	for end := c.us + d.Microseconds(); c.us < end; {
		c.us = min(end, c.us+5_000_000)
		did := dispatch(t, s)
		sum.Moved, sum.Recovered, sum.Dead = sum.Moved+did.Moved, sum.Recovered+did.Recovered, sum.Dead+did.Dead
	}
	return sum
}

// reduce reduces all outcomes and ends the group.
func reduce(t testing.TB, s *Store, group string) Group {
	t.Helper()
	r, err := s.BeginReduce(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	for cursor := r.Cursor; ; {
		p, err := s.Results(t.Context(), group, cursor, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := s.CommitReduce(t.Context(), group, r.Fence, p.Next, int64(len(p.Outcomes)), []byte("state")); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if cursor = p.Next; len(p.Outcomes) == 0 {
			break
		}
	}
	g, ok, err := s.Finish(t.Context(), group, r.Fence, []byte(`{"sum":1}`))
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	return g
}

func refused(t testing.TB, err error, code Code) {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) || r.Code != code {
		t.Fatalf("got %v, want a refusal with code %s", err, code)
	}
}

func clean(t testing.TB, s *Store) {
	t.Helper()
	found, err := s.Audit(context.Background())
	if err != nil || len(found) > 0 {
		t.Errorf("audit: %v, %v", found, err)
	}
}

func TestGroup_FromCreationToResult(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		s, c := openOn(t, client, nil)
		create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
		add(t, s, "g", 0, 250)
		p := pull(t, s, 100)
		if len(p.Jobs) != 100 || p.Jobs[0].ID != "j000000" || p.Jobs[99].ID != "j000099" || !p.More {
			t.Fatalf("pulled %v, more %t", ids(p.Jobs), p.More)
		}
		if j := p.Jobs[7]; j.Group != "g" || j.Tenant != "acme" || j.Type != "webhook" || j.Attempt != 1 || j.Cost != 1 || string(j.Payload) != "{}" || j.Fence == 0 {
			t.Fatalf("job %+v", j)
		}
		ack(t, s, Done, p.Jobs...)
		g, err := s.Seal(t.Context(), "g")
		if err != nil || g.Status != Running || g.Succeeded != 100 || g.Pending != 150 {
			t.Fatalf("%+v, %v", g, err)
		}
		clean(t, s)
		c.advance(time.Second)
		rest := pull(t, s, 500).Jobs
		if len(rest) != 150 {
			t.Fatalf("pulled %d of the rest", len(rest))
		}
		clean(t, s)
		ack(t, s, Rejected, rest[0])
		ack(t, s, Done, rest[1:]...)
		if g, _ = s.Group(t.Context(), "g"); g.Status != Aggregating {
			t.Fatalf("%+v", g)
		}
		if d := dispatch(t, s); !slices.Equal(d.Tend, []string{"g"}) {
			t.Fatalf("%+v", d)
		}
		if tend, err := s.Tend(t.Context(), "g"); err != nil || !tend.Reduce {
			t.Fatalf("%+v %v", tend, err)
		}
		g = reduce(t, s, "g")
		if g.Status != Failed || string(g.Result) != `{"sum":1}` || g.Failed != 1 || g.Succeeded != 249 {
			t.Fatalf("%+v", g)
		}
		clean(t, s)
	})
}

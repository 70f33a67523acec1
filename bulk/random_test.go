package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
	"github.com/anteroom/anteroom/internal/sleep"
)

// TestEngine_SurvivesRandomOperations lets engines come, go, shrink and grow while groups are submitted, paused, cancelled and changed and the store
// is stopped for a while. At the end each job has one outcome, each result counts all outcomes, and the audit finds nothing.
func TestEngine_SurvivesRandomOperations(t *testing.T) {
	short.Skip(t, "runs for long")
	t.Parallel()
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomLife(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

// moody handles a job by its number: it mostly succeeds, and some numbers fail in different ways.
func moody(ctx context.Context, j *Job) ([]byte, error) {
	var p struct{ N int }
	if err := json.Unmarshal(j.Payload, &p); err != nil {
		return nil, Permanent("payload", err)
	}
	switch p.N % 23 {
	case 1:
		return nil, Permanent("nobody", errors.New("no such person"))
	case 2:
		return nil, Fail("http_500", errors.New("always"))
	case 3:
		if j.Attempt < 3 {
			return nil, errors.New("twice")
		}
	case 4:
		if j.Fence%3 != 0 {
			return nil, Busy(time.Duration(p.N)*time.Millisecond, errors.New("429"))
		}
	case 5:
		sleep.For(ctx, 300*time.Millisecond) // longer than a third of the lease
		return j.Payload, ctx.Err()
	case 6:
		if j.Attempt == 1 {
			panic("oh")
		}
	}
	return j.Payload, nil
}

// moodyBatch handles each job of a batch as moody does. A panic of one ends all.
func moodyBatch(ctx context.Context, jobs []*Job) []BatchResult {
	results := make([]BatchResult, len(jobs))
	for i, j := range jobs {
		results[i].Result, results[i].Err = moody(ctx, j)
	}
	return results[:len(jobs)-len(jobs)/6] // a large batch has a job without a verdict
}

func randomLife(t *testing.T, r *rand.Rand) {
	server := redistest.Server(t)
	classic := r.IntN(4) == 0
	change := func(s *store.Settings) {
		s.Lease, s.Global = 700*time.Millisecond, 2000
		if classic {
			s.Policy, s.Limiter, s.Gating = "score", "fixed_window", false
		}
	}
	s := openStore(t, server.Client(), "p", change)
	hasty := openWithin(t, 400*time.Millisecond, server.Client(), "p", change)
	type running struct {
		e    *Engine
		stop func()
	}
	var engines []running
	start := func() {
		e, stop := engine(t, hasty, Options{Worker: WorkerOptions{Count: 1 + r.IntN(20), JobTimeout: time.Second, ShutdownGrace: 100 * time.Millisecond}},
			func(e *Engine) {
				e.Register("t", HandlerFunc(moody))
				if r.IntN(2) == 0 {
					if err := e.RegisterBatch("t", BatchHandlerFunc(moodyBatch), Batching{Most: 1 + r.IntN(9), Wait: 5 * time.Millisecond}); err != nil {
						t.Fatal(err)
					}
				}
			})
		engines = append(engines, running{e, stop})
	}
	var groups []string
	tenant := func() string { return string(rune('a' + r.IntN(3))) }
	for range 40 {
		switch n := r.IntN(12); {
		case n < 3:
			spec := store.GroupSpec{Tenant: tenant(), Level: []store.Level{store.High, store.Normal, store.Low}[r.IntN(3)],
				Aggregate: []string{`{"op":"count"}`, `{"op":"sum","field":"n"}`}[r.IntN(2)],
				Results:   []store.Results{store.AllResults, store.FailureResults, store.NoResults}[r.IntN(3)]}
			if r.IntN(3) == 0 {
				spec.Concurrency = 1 + int64(r.IntN(5))
			}
			if r.IntN(3) == 0 {
				spec.Rate = 100
			}
			groups = append(groups, submit(t, s, spec, r.IntN(150), number))
		case n < 5 && len(engines) < 4:
			start()
		case n == 5 && len(engines) > 0:
			i := r.IntN(len(engines))
			engines[i].stop()
			engines = append(engines[:i], engines[i+1:]...)
		case n == 6 && len(engines) > 0:
			if err := engines[r.IntN(len(engines))].e.Resize(r.IntN(30)); err != nil {
				t.Fatal(err)
			}
		case n == 7 && len(groups) > 0:
			patch(t, s, groups[r.IntN(len(groups))], store.Patch{Paused: new(r.IntN(2) == 0)})
		case n == 8 && len(groups) > 0:
			patch(t, s, groups[r.IntN(len(groups))], store.Patch{Weight: new(0.5 + r.Float64()), Rate: new(float64(r.IntN(3) * 100))})
		case n == 9 && len(groups) > 0 && r.IntN(3) == 0:
			_, err := s.Cancel(t.Context(), groups[r.IntN(len(groups))])
			if refused := (*store.Refusal)(nil); err != nil && !errors.As(err, &refused) {
				t.Fatal(err)
			}
		case n == 10 && r.IntN(3) == 0:
			server.Stop()
			sleep.For(t.Context(), time.Duration(r.IntN(900))*time.Millisecond)
			server.Cont()
		default:
			sleep.For(t.Context(), time.Duration(r.IntN(80))*time.Millisecond)
		}
	}
	for _, e := range engines {
		if err := e.e.Resize(10); err != nil {
			t.Fatal(err)
		}
	}
	start()
	for _, id := range groups {
		patch(t, s, id, store.Patch{Paused: new(false), Rate: new(0.0)})
	}
	total := store.Tally{}
	for _, id := range groups {
		n := outcomesOnce(t, s, id)
		total.Succeeded += n.Succeeded
		total.Failed += n.Failed
		total.Dead += n.Dead
		total.Cancelled += n.Cancelled
	}
	t.Logf("%d groups, classic %t: %d succeeded, %d failed, %d dead, %d cancelled", len(groups), classic,
		total.Succeeded, total.Failed, total.Dead, total.Cancelled)
	for _, e := range engines {
		e.stop()
	}
	clean(t, s)
}

func patch(t *testing.T, s *store.Store, group string, p store.Patch) {
	t.Helper()
	_, err := s.Patch(t.Context(), group, p)
	if refused := (*store.Refusal)(nil); err != nil && !errors.As(err, &refused) { // it has ended
		t.Fatal(err)
	}
}

// outcomesOnce waits for a group's end and its result, compares that with the outcomes, and counts them.
func outcomesOnce(t *testing.T, s *store.Store, group string) store.Tally {
	t.Helper()
	var g store.Group
	await(t, "group "+group+" has no result", func() bool {
		var err error
		if g, err = s.Group(t.Context(), group); err != nil && !errors.Is(err, store.ErrStore) {
			t.Fatal(err)
		}
		return g.Status.Ended() && (len(g.Result) > 0 || g.Status == store.Cancelled && g.Total == 0)
	})
	var want store.Tally
	seen := map[string]bool{}
	for cursor := ""; ; {
		page, err := s.Results(t.Context(), group, cursor, 500)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Outcomes) == 0 {
			break
		}
		for _, o := range page.Outcomes {
			if seen[o.ID] {
				t.Errorf("group %s: job %s has two outcomes", group, o.ID)
			}
			seen[o.ID] = true
			want.Add(&o)
		}
		cursor = page.Next
	}
	if g.Results != store.AllResults { // those of successes go, and with none those of cancelled jobs: when, is the store's business
		if want.Failed != g.Failed || want.Dead != g.Dead || want.Cancelled != g.Cancelled && g.Results == store.FailureResults {
			t.Errorf("group %s keeps %s: %+v of %+v", group, g.Results, want, g)
		}
		want.Succeeded, want.Cancelled = g.Succeeded, g.Cancelled
	} else if int64(len(seen)) != g.Total {
		t.Errorf("group %s, %s: %d outcomes of %d jobs", group, g.Status, len(seen), g.Total)
	}
	var got store.Tally
	if len(g.Result) > 0 {
		if err := json.Unmarshal(g.Result, &got); err != nil {
			t.Fatalf("%s: %v", g.Result, err)
		}
	}
	if len(got.Errors) == 0 {
		got.Errors = nil
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("group %s, %s: the result counts %+v, the outcomes are %+v", group, g.Status, got, want)
	}
	return want
}

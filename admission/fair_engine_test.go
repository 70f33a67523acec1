package admission_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// engine drives the bulk engine's queue in the store and the model of it side by side.
type engine struct {
	*rapid.T
	s     *store.Store
	model *FairTree
	added map[string]int // jobs of each group so far
}

// pageOfJobs is the size of a page of a group's order. A visit of the engine ends with its page, which the model does not know, so
// all jobs of a group fit into one.
const pageOfJobs = 100

var engineLevels = []store.Level{store.High, store.Normal, store.Low}

func (e *engine) do(_ any, err error) {
	if err != nil {
		e.Fatal(err)
	}
}

func (e *engine) weight() int64 {
	return rapid.OneOf(rapid.Just(int64(1000)), rapid.Int64Range(10, 100_000)).Draw(e.T, "weight")
}

func (e *engine) group() *FairGroup {
	if len(e.model.Groups) == 0 {
		e.Skip("no groups yet")
	}
	return e.model.Groups[rapid.SampledFrom(slices.Sorted(maps.Keys(e.model.Groups))).Draw(e.T, "group")]
}

func (e *engine) create() {
	if len(e.model.Groups) == 12 {
		e.Skip("enough groups")
	}
	e.begin(&FairGroup{
		Tenant: rapid.SampledFrom([]string{"acme", "bolt", "cord"}).Draw(e.T, "tenant"),
		Level:  rapid.IntRange(0, 2).Draw(e.T, "level"), Weight: e.weight(),
	}, e.some())
}

func (e *engine) some() int { return rapid.IntRange(1, 60).Draw(e.T, "jobs") }

func (e *engine) begin(g *FairGroup, jobs int) {
	g.ID = fmt.Sprintf("g%x", len(e.model.Groups)) // sorts as the store's short names do
	_, _, err := e.s.CreateGroup(context.Background(), store.GroupSpec{
		ID: g.ID, Tenant: g.Tenant, Type: "t", Level: engineLevels[g.Level], Weight: float64(g.Weight) / 1000,
	})
	e.do(nil, err)
	e.model.Place(g)
	e.add(g, jobs)
}

func (e *engine) add(g *FairGroup, n int) {
	n = min(n, pageOfJobs-e.added[g.ID])
	if n == 0 {
		e.Skip("the group is full")
	}
	var jobs []store.Job
	for range n {
		cost := rapid.Int64Range(1, 5).Draw(e.T, "cost")
		jobs = append(jobs, store.Job{ID: fmt.Sprint("j", e.added[g.ID]), Payload: []byte(`{}`), Cost: cost})
		e.added[g.ID]++
		g.Costs = append(g.Costs, cost)
	}
	e.do(e.s.AddJobs(context.Background(), g.ID, store.Chunk{}, jobs))
	e.model.Place(g)
}

func (e *engine) pull(want int) {
	// jobs_pull.lua: an even part, and at least four jobs.
	batch := max(4, (want+max(1, e.model.Flows())-1)/max(1, e.model.Flows()))
	p, err := e.s.Pull(context.Background(), want)
	e.do(nil, err)
	var got, expected []string
	for _, j := range p.Jobs {
		got = append(got, j.Group)
	}
	for _, v := range e.model.Pull(want, batch) {
		for range v.Jobs {
			expected = append(expected, v.Group)
		}
	}
	if !slices.Equal(got, expected) {
		e.Fatalf("a pull of %d gave jobs of\n%v, the model\n%v", want, got, expected)
	}
}

// A pull of the bulk engine takes the same jobs as the model, in the same order.
func TestFairTree_MatchesEngine(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict=%t", strict), func(t *testing.T) {
			client, prefix := redistest.Client(t), redistest.Prefix(t)
			run := 0
			rapid.Check(t, func(rt *rapid.T) {
				settings := store.Defaults()
				settings.Strict, settings.Global, settings.Burst, settings.ByStarts = strict, 1e6, 1e6, true // no limit in the way, costs as declared
				run++
				s, err := store.New(store.Options{
					Client: client, Prefix: fmt.Sprint(prefix, "r", run), Timeout: patience, Settings: settings,
					Log: slog.New(slog.DiscardHandler), Now: func() int64 { return 1_780_000_000_000_000 },
				})
				if err != nil {
					rt.Fatal(err)
				}
				e := &engine{s: s, model: NewFairTree(strict), added: map[string]int{}}
				on := func(f func()) func(*rapid.T) {
					return func(t *rapid.T) {
						e.T = t
						f()
					}
				}
				// Each level has been in use: before its second visit the engine takes it for one that is not.
				e.T = rt
				for level := range 3 {
					e.begin(&FairGroup{Tenant: "dent", Level: level, Weight: 1000}, 2)
				}
				for range 6 {
					e.pull(1)
				}
				pull := on(func() { e.pull(rapid.IntRange(1, 25).Draw(e.T, "want")) })
				ctx := context.Background()
				rt.Repeat(map[string]func(*rapid.T){
					"create": on(e.create),
					"add":    on(func() { e.add(e.group(), e.some()) }),
					"seal": on(func() {
						g := e.group()
						e.do(e.s.Seal(ctx, g.ID))
						if g.Total == 0 {
							g.Total = int64(e.added[g.ID]) // from here on the boost counts
							e.added[g.ID] = pageOfJobs     // and no job comes any more
						}
					}),
					"pause": on(func() {
						g := e.group()
						g.Gated = !g.Gated
						e.do(e.s.Patch(ctx, g.ID, store.Patch{Paused: &g.Gated}))
						e.model.Place(g)
					}),
					"re-weight": on(func() {
						g := e.group()
						g.Weight = e.weight()
						weight := float64(g.Weight) / 1000
						e.do(e.s.Patch(ctx, g.ID, store.Patch{Weight: &weight}))
					}),
					"re-weight tenant": on(func() {
						name := e.group().Tenant
						weight := e.weight()
						e.model.Tenant(name).Weight = weight
						e.do(e.s.SetTenant(ctx, store.Tenant{Name: name, Weight: float64(weight) / 1000}))
					}),
					"pull":       pull,
					"pull again": pull,
					"pull more":  pull,
				})
			})
		})
	}
}

// BenchmarkEnginePull pulls 50 jobs at a time from few groups and from many, each with its own tenant.
func BenchmarkEnginePull(b *testing.B) {
	for _, groups := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			settings := store.Defaults()
			settings.Global, settings.Burst = 1e6, 1e6
			now := int64(1_780_000_000_000_000)
			s, err := store.New(store.Options{
				Client: redistest.Client(b), Prefix: redistest.Prefix(b), Timeout: patience, Settings: settings,
				Log: slog.New(slog.DiscardHandler), Now: func() int64 { return now },
			})
			if err != nil {
				b.Fatal(err)
			}
			for g := range groups {
				id := fmt.Sprint("g", g)
				if _, _, err := s.CreateGroup(b.Context(), store.GroupSpec{ID: id, Tenant: "t" + id, Type: "t"}); err != nil {
					b.Fatal(err)
				}
			}
			serial := 0
			fill := func() {
				for g := range groups {
					jobs := make([]store.Job, min(store.MaxAdd, 50_000/groups))
					for i := range jobs {
						serial++
						jobs[i] = store.Job{ID: fmt.Sprint(serial), Payload: []byte(`{}`)}
					}
					if _, err := s.AddJobs(b.Context(), fmt.Sprint("g", g), store.Chunk{}, jobs); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ResetTimer()
			for b.Loop() {
				now += 1000
				p, err := s.Pull(b.Context(), 50)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				acks := make([]store.Ack, len(p.Jobs))
				for i, j := range p.Jobs {
					acks[i] = store.Ack{Key: j.Key, Fence: j.Fence, Verdict: store.Done}
				}
				if len(acks) < 50 {
					fill()
				}
				if _, err := s.Ack(b.Context(), acks); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

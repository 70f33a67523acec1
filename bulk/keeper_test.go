package bulk

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// A group needs a reducer, or a callback, that the keeper lacks and another process has.
func TestKeeper_HandsOverWhatItLacks(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	keeper, other := openStore(t, client, prefix, nil), openStore(t, client, prefix, nil)
	_, stop := engine(t, keeper, Options{Worker: WorkerOptions{Count: NoWorkers}}, func(*Engine) {})
	await(t, "there is no keeper", func() bool {
		all, err := keeper.Processes(t.Context())
		return err == nil && slices.ContainsFunc(all, func(p store.Process) bool { return p.Keeper })
	})
	called := make(chan string, 100)
	o := Options{CallbackBody: groupBody, Callback: func(_ context.Context, _ string, body []byte) error {
		called <- string(body)
		return nil
	}}
	_, stop2 := engine(t, other, o, func(e *Engine) {
		e.Register("t", noop)
		e.RegisterReducer("jobs", MapReduce(func(*Outcome) (int, bool, error) { return 1, true, nil }, func(a, b int) int { return a + b }))
	})
	// One after the other: each has to be handed over.
	for i := range 20 {
		spec := store.GroupSpec{Tenant: "a", Aggregate: `{"op":"reduce","name":"jobs"}`, CallbackURL: "https://example.com"}
		if i%2 == 1 {
			spec.Aggregate = `{"op":"count"}`
		}
		id := submit(t, other, spec, 3, number)
		g := ended(t, keeper, id)
		result := struct{ Value, Succeeded int }{Value: 3}
		if err := json.Unmarshal(g.Result, &result); err != nil || g.Status != store.Completed || result.Value != 3 || result.Succeeded != 3 {
			t.Fatalf("group %d: %s %s, %v", i, g.Status, g.Result, err)
		}
		if got := <-called; got != id+" COMPLETED" {
			t.Fatalf("called %q", got)
		}
	}
	stop2()
	stop()
	clean(t, keeper)
}

// A process that is not the keeper sends few calls to the store, and does the keeper's work when it becomes the keeper.
func TestKeeper_OthersAskLittle(t *testing.T) {
	m := newMemory()
	m.follows = true
	bubble(t, m, Options{Worker: WorkerOptions{Count: NoWorkers}}, nil, func(t *testing.T, _ *Engine, _ *journal, _ func()) {
		time.Sleep(time.Second)
		count := func() string {
			return fmt.Sprint(m.count("Dispatch"), " rounds, ", m.count("Snapshot"), " snapshots, ", m.count("Depths"), " readings")
		}
		before := m.count("Dispatch") + m.count("Snapshot") + m.count("Depths")
		time.Sleep(time.Minute)
		if n := m.count("Dispatch") + m.count("Snapshot") + m.count("Depths") - before; n < 30 || n > 42 { // one of each in five seconds
			t.Errorf("%d calls in a minute, in all %s", n, count())
		}
		m.mu.Lock()
		m.follows = false
		m.mu.Unlock()
		rounds, snapshots := m.count("Dispatch"), m.count("Snapshot")
		time.Sleep(10 * time.Second)
		if m.count("Dispatch")-rounds < 80 || m.count("Snapshot")-snapshots < 8 {
			t.Errorf("the keeper, in ten seconds: %s", count())
		}
	})
}

// All processes that wait for the global rate together pull as often as one process alone, and the full rate is used.
func TestGathering_PullsDoNotGrowWithProcesses(t *testing.T) {
	const rate, seconds = 1000.0, 60
	for _, processes := range []int{1, 5, 40} {
		type puller struct {
			gathering
			at float64 // s
		}
		all := make([]*puller, processes)
		for i := range all {
			g := newGathering(rate/10, rate)
			g.processes = func() int64 { return int64(processes) }
			all[i] = &puller{g, float64(i) / 1000}
		}
		pulls, started, last := 0, 0.0, 0.0
		for {
			next := all[0]
			for _, p := range all {
				if p.at < next.at {
					next = p
				}
			}
			if next.at > seconds {
				break
			}
			jobs := int(min(rate/10, rate*(next.at-last)))
			last = next.at - (min(rate/10, rate*(next.at-last))-float64(jobs))/rate
			pulls, started = pulls+1, started+float64(jobs)
			p := store.Pulled{Jobs: make([]store.Leased, jobs), Limited: true, Next: time.Millisecond}
			next.pulled(&p)
			next.turn = time.Time{} // it comes at its turn
			next.at += next.least(&p).Seconds()
		}
		if perSecond := float64(pulls) / seconds; perSecond > 130 {
			t.Errorf("%d processes: %.0f pulls a second", processes, perSecond)
		}
		if share := started / (rate * seconds); share < 0.97 {
			t.Errorf("%d processes start %.3f of the rate", processes, share)
		}
	}
}

// A process that is woken before its turn keeps its turn: otherwise all processes woken by one wakeup would pull together.
func TestGathering_KeepsItsTurn(t *testing.T) {
	g := newGathering(100, 1000)
	g.processes = func() int64 { return 40 }
	p := store.Pulled{Limited: true}
	first := g.least(&p)
	if second := g.least(&p); second > first || first-second > first/2 {
		t.Errorf("waits %v and then, at once, %v", first, second)
	}
}

// When gates open for fewer jobs than there are processes, a process that finds none pulls less and less often, down to every 50 ms.
func TestGathering_OfGates(t *testing.T) {
	g := newGathering(100, 1000)
	none, one := store.Pulled{Next: time.Millisecond}, store.Pulled{Jobs: make([]store.Leased, 1), Next: time.Millisecond}
	for range 10 {
		g.least(&none)
	}
	if d := g.least(&none); d != mostGated {
		t.Errorf("after pulls that found nothing it waits %v", d)
	}
	g.pulled(&one)
	if d := g.least(&one); d != shortestWait {
		t.Errorf("after one that found a job it waits %v", d)
	}
}

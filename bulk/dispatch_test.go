package bulk

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestDispatcher_LooksAsOftenAsItIsTold(t *testing.T) {
	m := newMemory()
	bubble(t, m, Options{Worker: WorkerOptions{Count: NoWorkers, Lease: 6 * time.Second}, DispatchInterval: 500 * time.Millisecond}, nil,
		func(t *testing.T, e *Engine, _ *journal, _ func()) {
			rounds := func() int {
				before := m.count("Dispatch")
				time.Sleep(10 * time.Second)
				return m.count("Dispatch") - before
			}
			time.Sleep(time.Second)
			if n := rounds(); n < 19 || n > 21 {
				t.Errorf("%d rounds in ten seconds, one each 500 ms", n)
			}
			for _, row := range []struct {
				d        time.Duration
				from, to int
			}{{50 * time.Millisecond, 195, 201}, {10 * time.Second, 9, 11}} { // that is more than a sixth of the lease
				if err := e.SetDispatchInterval(row.d); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if n := rounds(); n < row.from || n > row.to {
					t.Errorf("%d rounds in ten seconds, one each %s", n, row.d)
				}
			}
		})
	for _, d := range []time.Duration{-1, time.Millisecond, time.Minute} {
		if _, err := newEngine(Options{DispatchInterval: d}, m.stores(), store.Defaults()); err == nil || !strings.Contains(err.Error(), "dispatch.interval") {
			t.Errorf("%s: %v", d, err)
		}
	}
}

// Rounds are frequent enough that the store does not take the time between two for an outage, during which no lease ends.
func TestDispatcher_EndsShortLeases(t *testing.T) {
	t.Parallel()
	s := openStore(t, redistest.Client(t), redistest.Prefix(t), func(set *store.Settings) { set.Lease = 100 * time.Millisecond })
	id := submit(t, s, store.GroupSpec{Tenant: "acme"}, 1, number)
	if p, err := s.Pull(t.Context(), 1); err != nil || len(p.Jobs) != 1 { // by a process that dies
		t.Fatal(p, err)
	}
	engine(t, s, Options{}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(context.Context, *Job) ([]byte, error) { return nil, nil }))
	})
	if g := ended(t, s, id); g.Succeeded != 1 {
		t.Errorf("%+v", g)
	}
}

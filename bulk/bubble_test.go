package bulk

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// names are job ids: j0, j1, …
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = "j" + strconv.Itoa(i)
	}
	return all
}

// journal keeps what is logged.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.b.String(), text)
}

// bubble runs an Engine on a memory in a synctest bubble: test is called while it runs. When it returns, the engine shuts down.
func bubble(t *testing.T, m *memory, o Options, handlers map[string]Handler, test func(t *testing.T, e *Engine, log *journal, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m.event = make(chan struct{}, 1) // of this bubble
		log := &journal{}
		o.Log = slog.New(slog.NewTextHandler(log, nil))
		e, err := newEngine(o, m.stores(), store.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		for name, h := range handlers {
			if b, batched := h.(batchTest); batched {
				if err := e.RegisterBatch(name, b.h, b.Batching); err != nil {
					t.Fatal(err)
				}
				continue
			}
			e.Register(name, h)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		stop := sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		defer stop() // also when the test fails: otherwise the bubble's clock would run for ever
		test(t, e, log, stop)
	})
}

// until lets the bubble's time pass until the condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Hour)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("after an hour: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// manyGroups only have a callback to send, except for the group "quick".
type manyGroups struct {
	mu     sync.Mutex
	tended map[string]int
}

func (m *manyGroups) count(group string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tended[group]
}

func (m *manyGroups) Lock(context.Context, string, time.Duration) (func(), bool, error) {
	return func() {}, true, nil
}

func (m *manyGroups) Tend(_ context.Context, group string) (store.Tended, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tended[group]++
	return store.Tended{Callback: group != "quick"}, nil
}

func (m *manyGroups) Offer(context.Context, string, string) (bool, error) { return false, nil }

func (m *manyGroups) Group(_ context.Context, group string) (store.Group, error) {
	return store.Group{GroupSpec: store.GroupSpec{ID: group}, FinishedAt: time.Now()}, nil
}

func (m *manyGroups) CallbackDone(context.Context, string, bool, bool, time.Duration) error {
	return nil
}

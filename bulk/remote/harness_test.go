package remote

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/store"
)

// memory is a queue in memory that behaves like the store's: a call takes a millisecond, an event wakes one that listens, and events
// are lost at the caller's will.
type memory struct {
	mu      sync.Mutex
	pending []string // types
	given   map[string]time.Time
	leased  map[string][]store.Leased // by owner
	fence   int64
	bell    chan struct{}
	rings   int
	slot    time.Duration // shortest time between two starts; 0: none
	lag     time.Duration // how late replies to pulls come
	next    time.Time
	fail    func(call string) (before, after error)
	acks    []store.Ack
	at      map[string]time.Time // when jobs were submitted, by key
	served  map[string]bool
	noted   [][]store.Puller
}

func newMemory() *memory {
	return &memory{given: map[string]time.Time{}, leased: map[string][]store.Leased{}, bell: make(chan struct{}, 1), at: map[string]time.Time{},
		served: map[string]bool{}, fail: func(string) (error, error) { return nil, nil }}
}

// submit adds n jobs of a type; heard is false if the event is lost.
func (m *memory) submit(jobType string, n int, heard bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range n {
		key := jobType + "/" + strconv.Itoa(len(m.at))
		m.at[key] = time.Now()
		m.pending = append(m.pending, key)
	}
	if heard {
		m.ring()
	}
}

// under calls f while nothing else uses the memory.
func (m *memory) under(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// fails sets the errors of calls from now on, before and after they take effect.
func (m *memory) fails(f func(call string) (before, after error)) {
	m.under(func() { m.fail = f })
}

func (m *memory) heal() { m.fails(func(string) (error, error) { return nil, nil }) }

func (m *memory) ring() {
	select {
	case m.bell <- struct{}{}:
	default:
	}
}

func typeOf(key string) string {
	for i := range key {
		if key[i] == '/' {
			return key[:i]
		}
	}
	return key
}

func (m *memory) PullFor(_ context.Context, owner string, want int, types ...string) (store.Pulled, error) {
	<-time.After(time.Millisecond)
	p, err := m.pull(owner, want, types)
	time.Sleep(m.lag)
	return p, err
}

func (m *memory) pull(owner string, want int, types []string) (store.Pulled, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, after := m.fail("PullFor")
	if before != nil {
		return store.Pulled{}, before
	}
	var p store.Pulled
	now := time.Now()
	for len(p.Jobs) < want {
		i := slices.IndexFunc(m.pending, func(key string) bool { return slices.Contains(types, typeOf(key)) })
		if i < 0 {
			break
		}
		if m.slot > 0 {
			if now.Before(m.next) {
				p.Next = m.next.Sub(now)
				break
			}
			m.next = now.Add(m.slot)
		}
		key := m.pending[i]
		m.pending = slices.Delete(m.pending, i, i+1)
		m.fence++
		m.given[key] = now
		p.Jobs = append(p.Jobs, store.Leased{Key: key, Type: typeOf(key), Attempt: 1, Fence: m.fence})
	}
	if len(p.Jobs) == want && len(m.pending) > 0 {
		p.More = true
		m.ring()
	}
	m.leased[owner] = append(m.leased[owner], p.Jobs...)
	return p, after
}

func (m *memory) ReclaimFrom(_ context.Context, owner string, _ []int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, after := m.fail("ReclaimFrom")
	if before != nil {
		return 0, before
	}
	n := len(m.leased[owner])
	for _, j := range m.leased[owner] {
		m.back(j.Key)
	}
	delete(m.leased, owner)
	return int64(n), after
}

func (m *memory) back(key string) {
	m.pending = append([]string{key}, m.pending...)
	delete(m.given, key)
	m.ring()
}

func (m *memory) Listen(ctx context.Context, d time.Duration) (bool, error) {
	select {
	case <-m.bell:
		return true, nil
	case <-time.After(min(d, 500*time.Millisecond)):
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (m *memory) Ring(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rings++
	m.ring()
	return nil
}

func (m *memory) Ack(_ context.Context, acks []store.Ack) ([]store.AckState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, after := m.fail("Ack")
	if before != nil {
		return nil, before
	}
	states := make([]store.AckState, len(acks))
	for i, a := range acks {
		m.acks = append(m.acks, a)
		states[i] = store.AckDone
		if a.Verdict == store.Returned {
			states[i] = store.AckReturned
			m.back(a.Key)
		}
	}
	return states, after
}

func (m *memory) Renew(context.Context, []store.Lease) ([]store.LeaseState, error) { return nil, nil }

func (m *memory) Types(context.Context, []string) ([]string, error) { return nil, nil }

func (m *memory) Serve(types []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range types {
		m.served[t] = true
	}
}

func (m *memory) NotePullers(_ context.Context, all []store.Puller) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noted = append(m.noted, all)
	return nil
}

// counting is an Engine that keeps what ended.
type counting struct {
	mu     sync.Mutex
	pulled int
	ended  map[store.AckState]int
}

func (c *counting) Policy(string) bulk.Policy {
	return bulk.Policy{Retry: bulk.Retry{Max: 5, Base: time.Second, Most: time.Minute}, Breaker: store.Breaker{Ratio: 0.5}}
}

func (c *counting) Pulled(p store.Pulled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulled += len(p.Jobs)
}

func (c *counting) Ended(_ string, _ *store.Ack, effect store.AckState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = map[store.AckState]int{}
	}
	c.ended[effect]++
}

func (c *counting) count(effect store.AckState) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[effect]
}

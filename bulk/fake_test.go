package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk/schedule"
	"github.com/anteroom/anteroom/bulk/store"
)

// memory is a store of one group in memory that behaves like the real one: leases end, fences grow, jobs are refused, and calls
// fail before or after they took effect.
type memory struct {
	calledOff bool // every job that runs
	lease     time.Duration
	event     chan struct{} // holds one

	mu       sync.Mutex
	pending  []*memJob
	later    []*memJob // until due
	leases   map[int64]*memJob
	fence    int64
	outcomes []store.Outcome
	starts   map[string][]time.Time
	acks     []store.Ack
	calls    map[string]int
	fault    func(call string) (before, after error)
	rate     time.Duration // between two starts; 0: none
	slot     time.Time
	most     int // in flight; 0: any number
	tend     []string

	group     store.Group
	reducer   int64
	state     []byte
	cursor    string
	locked    bool
	gaps      []time.Duration
	beat      time.Time // the last dispatch
	callbacks []string

	follows   bool // another process is the keeper
	processes int
}

type memJob struct {
	store.Leased
	due, until time.Time
}

var errAway = fmt.Errorf("%w: connection refused", store.ErrStore)

func newMemory(jobs ...string) *memory {
	m := &memory{lease: 30 * time.Second, event: make(chan struct{}, 1), leases: map[int64]*memJob{}, starts: map[string][]time.Time{},
		calls: map[string]int{}, fault: func(string) (error, error) { return nil, nil }}
	m.group = store.Group{GroupSpec: store.GroupSpec{ID: "g", Tenant: "acme", Aggregate: `{"op":"count"}`}, Status: store.Running}
	m.submit("t", jobs...)
	return m
}

func (m *memory) stores() loopStores {
	return loopStores{jobs: m, acks: m, leases: m, due: m, groups: m, reductions: m, callbacks: m, history: m, rate: m, keeper: m, schedules: m}
}

func (m *memory) submit(jobType string, ids ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		m.pending = append(m.pending, &memJob{Leased: store.Leased{Key: "g/" + id, ID: id, Group: "g", Tenant: "acme", Type: jobType,
			Payload: []byte(`{}`), Cost: 1, Attempt: 1}})
	}
	m.group.Total += int64(len(ids))
	m.tell()
}

func (m *memory) tell() {
	select {
	case m.event <- struct{}{}:
	default:
	}
}

// call counts a call, draws its faults at random and takes a millisecond.
func (m *memory) call(name string) (before, after error) {
	<-time.After(time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[name]++
	return m.fault(name)
}

// fail makes calls fail from now on: those named, or all.
func (m *memory) fail(after bool, names ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = func(call string) (error, error) {
		if len(names) > 0 && !slices.Contains(names, call) {
			return nil, nil
		}
		if after {
			return nil, errAway
		}
		return errAway, nil
	}
}

func (m *memory) heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = func(string) (error, error) { return nil, nil }
}

func (m *memory) Pull(_ context.Context, want int, types ...string) (store.Pulled, error) {
	before, after := m.call("Pull")
	if before != nil {
		return store.Pulled{}, before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var p store.Pulled
	now := time.Now()
	for len(p.Jobs) < want && (m.most == 0 || len(m.leases) < m.most) {
		i := slices.IndexFunc(m.pending, func(j *memJob) bool { return slices.Contains(types, j.Type) })
		if i < 0 {
			break
		}
		if m.rate > 0 {
			if now.Before(m.slot) {
				p.Next, p.Limited = m.slot.Sub(now), true
				break
			}
			m.slot = m.slot.Add(m.rate)
			if m.slot.Before(now) {
				m.slot = now.Add(m.rate)
			}
		}
		j := m.pending[i]
		m.pending = slices.Delete(m.pending, i, i+1)
		m.fence++
		j.Fence, j.until = m.fence, now.Add(m.lease)
		m.leases[j.Fence] = j
		m.starts[j.ID] = append(m.starts[j.ID], now)
		p.Jobs = append(p.Jobs, j.Leased)
	}
	p.Fetched, p.ToReady = int64(len(p.Jobs)), int64(len(p.Jobs))
	full := m.most > 0 && len(m.leases) >= m.most
	if full {
		p.Held = []store.Hold{{Group: "g", For: store.UntilEvent}}
	}
	p.More = len(m.pending) > 0 && p.Next == 0 && !full
	return p, after
}

func (m *memory) AckPull(ctx context.Context, acks []store.Ack, want int, types ...string) ([]store.AckState, store.Pulled, error) {
	if len(acks) == 0 {
		p, err := m.Pull(ctx, want, types...)
		return nil, p, err
	}
	before, after := m.call("AckPull")
	if before != nil {
		return nil, store.Pulled{}, before
	}
	states, err := m.Ack(ctx, acks)
	if err != nil {
		return nil, store.Pulled{}, err
	}
	p, err := m.Pull(ctx, want, types...)
	if err = errors.Join(err, after); err != nil {
		return nil, store.Pulled{}, err
	}
	return states, p, nil
}

func (m *memory) Steer(context.Context, string, int64, int64, string) (store.Steering, error) {
	before, after := m.call("Steer")
	return store.Steering{}, errors.Join(before, after)
}

func (m *memory) Reclaim(_ context.Context, known []int64) (int64, error) {
	before, after := m.call("Reclaim")
	if before != nil {
		return 0, before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var n int64
	for fence, j := range m.leases {
		if !slices.Contains(known, fence) {
			delete(m.leases, fence)
			m.pending = append([]*memJob{j}, m.pending...)
			n++
		}
	}
	return n, after
}

func (m *memory) Wait(ctx context.Context, d time.Duration) error {
	if before, _ := m.call("Wait"); before != nil {
		return before
	}
	select {
	case <-m.event:
	case <-time.After(d):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (m *memory) Ring(context.Context) error {
	before, _ := m.call("Ring")
	if before == nil {
		select {
		case m.event <- struct{}{}:
		default:
		}
	}
	return before
}

func (m *memory) Ack(_ context.Context, acks []store.Ack) ([]store.AckState, error) {
	before, after := m.call("Ack")
	if before != nil {
		return nil, before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range acks {
		if a.Code == "refuse_me" {
			return nil, &store.Refusal{Code: store.CodeInvalid, Detail: "refuse_me"}
		}
	}
	if m.most > 0 {
		m.tell()
	}
	states := make([]store.AckState, len(acks))
	for i, a := range acks {
		m.acks = append(m.acks, a)
		j := m.leases[a.Fence]
		if j == nil || j.Key != a.Key {
			states[i] = store.AckStale
			continue
		}
		delete(m.leases, a.Fence)
		o := store.Outcome{ID: j.ID, Attempts: j.Attempt, Result: a.Result, Code: a.Code, Error: a.Error}
		switch a.Verdict {
		case store.Done:
			states[i], o.Status = store.AckDone, "succeeded"
			m.group.Succeeded++
		case store.Rejected:
			states[i], o.Status = store.AckFailed, "failed"
			m.group.Failed++
		case store.Buried:
			states[i], o.Status = store.AckDead, "dead"
			m.group.Dead++
		case store.Retry:
			states[i] = store.AckRetry
			if j.Attempt++; j.Attempt > 4 {
				states[i], o.Status = store.AckDead, "dead"
				m.group.Dead++
			}
		case store.Throttled, store.Held:
			states[i] = store.AckThrottled
		case store.Returned:
			states[i] = store.AckReturned
		}
		if o.Status != "" {
			m.outcomes = append(m.outcomes, o)
			if g := m.group; g.Succeeded+g.Failed+g.Dead == g.Total {
				m.group.Status = store.Aggregating
			}
			continue
		}
		if states[i] == store.AckReturned {
			m.pending = append([]*memJob{j}, m.pending...)
			m.tell()
			continue
		}
		j.due = time.Now().Add(max(a.After, 10*time.Millisecond))
		m.later = append(m.later, j)
	}
	return states, after
}

func (m *memory) Renew(_ context.Context, leases []store.Lease) ([]store.LeaseState, error) {
	before, after := m.call("Renew")
	if before != nil {
		return nil, before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	held := make([]store.LeaseState, len(leases))
	for i, l := range leases {
		if j := m.leases[l.Fence]; j != nil {
			held[i], j.until = store.LeaseHeld, time.Now().Add(m.lease)
			if m.calledOff {
				held[i] = store.LeaseCalled
			}
		}
	}
	return held, after
}

func (m *memory) Dispatch(context.Context) (store.Dispatch, error) {
	before, after := m.call("Dispatch")
	if before != nil {
		return store.Dispatch{}, before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	gap := time.Duration(0)
	if !m.beat.IsZero() && now.Sub(m.beat) >= m.lease/3 {
		gap = now.Sub(m.beat)
		m.gaps = append(m.gaps, gap)
	}
	m.beat = now
	var d store.Dispatch
	for fence, j := range m.leases {
		if gap > 0 {
			j.until = now.Add(m.lease)
		} else if now.After(j.until) {
			delete(m.leases, fence)
			j.Crashes++
			m.pending = append(m.pending, j)
			d.Recovered++
			m.tell()
		}
	}
	m.later = slices.DeleteFunc(m.later, func(j *memJob) bool {
		if now.Before(j.due) {
			return false
		}
		m.pending = append([]*memJob{j}, m.pending...)
		d.Moved++
		m.tell()
		return true
	})
	d.Tend = slices.Clone(m.tend)
	return d, after
}

func (m *memory) Lock(context.Context, string, time.Duration) (func(), bool, error) {
	before, _ := m.call("Lock")
	if before != nil {
		return nil, false, before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked {
		return nil, false, nil
	}
	m.locked = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.locked = false
	}, true, nil
}

func (m *memory) Tend(context.Context, string) (store.Tended, error) {
	before, after := m.call("Tend")
	if before != nil {
		return store.Tended{}, before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return store.Tended{
		Reduce:   m.group.Status == store.Aggregating || int64(len(m.outcomes)) > m.group.Reduced,
		Callback: m.group.CallbackState == "pending",
	}, after
}

func (m *memory) BeginReduce(context.Context, string) (store.Reduction, error) {
	before, after := m.call("BeginReduce")
	if before != nil {
		return store.Reduction{}, before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reducer++
	return store.Reduction{Group: m.group, Fence: m.reducer, Cursor: m.cursor, State: m.state}, after
}

func (m *memory) Results(_ context.Context, _, cursor string, limit int) (store.Page, error) {
	before, after := m.call("Results")
	if before != nil {
		return store.Page{}, before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	from, _ := strconv.Atoi(cursor)
	to := min(from+limit, len(m.outcomes))
	return store.Page{Outcomes: slices.Clone(m.outcomes[from:to]), Next: strconv.Itoa(to)}, after
}

func (m *memory) Outcomes(ctx context.Context, at *store.Reduction, cursor string, limit int) (store.Page, error) {
	return m.Results(ctx, at.Group.ID, cursor, limit)
}

func (m *memory) CommitReduce(_ context.Context, _ string, fence int64, cursor string, n int64, state []byte) (bool, error) {
	before, after := m.call("CommitReduce")
	if before != nil {
		return false, before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if fence != m.reducer {
		return false, after
	}
	m.cursor, m.state = cursor, state
	m.group.Reduced += n
	return true, after
}

func (m *memory) Finish(_ context.Context, _ string, fence int64, result []byte) (store.Group, bool, error) {
	before, after := m.call("Finish")
	if before != nil {
		return store.Group{}, false, before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	g := &m.group
	if fence != m.reducer || (g.Status != store.Aggregating && g.Status != store.Cancelled) || g.Reduced != int64(len(m.outcomes)) {
		return *g, false, after
	}
	g.Result = result
	if g.Status == store.Cancelled {
		return *g, true, after
	}
	g.Status, g.FinishedAt = store.Completed, time.Now()
	if g.CallbackURL != "" {
		g.CallbackState = "pending"
	}
	return *g, true, after
}

func (m *memory) Group(context.Context, string) (store.Group, error) {
	before, after := m.call("Group")
	if before != nil {
		return store.Group{}, before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.group, after
}

func (m *memory) CallbackDone(_ context.Context, _ string, ok, last bool, again time.Duration) error {
	before, after := m.call("CallbackDone")
	if before != nil {
		return before
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ok:
		m.group.CallbackState = "done"
	case last:
		m.group.CallbackState = "failed"
	default:
		m.group.CallbackState = "waits"
		time.AfterFunc(again, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.group.CallbackState = "pending"
		})
	}
	m.group.CallbackTries++
	m.callbacks = append(m.callbacks, fmt.Sprintf("ok=%t last=%t again=%s", ok, last, again.Round(time.Second)))
	return after
}

func (m *memory) Snapshot(context.Context) error {
	before, after := m.call("Snapshot")
	return errors.Join(before, after)
}

func (m *memory) Depths(context.Context) (store.Depths, error) {
	before, after := m.call("Depths")
	if err := errors.Join(before, after); err != nil {
		return store.Depths{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return store.Depths{Groups: map[store.Level]int64{store.Normal: 1}, Pending: int64(len(m.pending)), NonReady: int64(len(m.later)),
		InFlight: int64(len(m.leases)), ActiveTenants: 1, Jain: 1, MaxCongestion: "low", MaxBackoff: 2 * time.Second}, nil
}

// done returns the jobs that have an outcome, each with its status, sorted.
func (m *memory) done() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, o := range m.outcomes {
		all = append(all, o.ID+" "+o.Status)
	}
	slices.Sort(all)
	return all
}

func (m *memory) count(call string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[call]
}

// under calls f with the lock held.
func (m *memory) under(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *memory) status() (s store.Status) {
	m.under(func() { s = m.group.Status })
	return s
}

func (m *memory) finished() (n int) {
	m.under(func() { n = len(m.outcomes) })
	return n
}

func (m *memory) KeepEvery() time.Duration { return 300 * time.Millisecond }

func (m *memory) Keep(context.Context, store.ProcessStatus, ...string) (store.Kept, error) {
	before, after := m.call("Keep")
	m.mu.Lock()
	defer m.mu.Unlock()
	return store.Kept{Keeper: !m.follows, Processes: max(1, m.processes)}, errors.Join(before, after)
}

// Offer reports that the group is on offer from the second call on: no other process takes it.
func (m *memory) Offer(context.Context, string, string) (bool, error) {
	before, after := m.call("Offer")
	return m.count("Offer") > 1, errors.Join(before, after)
}

func (m *memory) Unkeep(context.Context) error { return nil }

func (m *memory) Round(context.Context) (schedule.Counts, error) {
	before, after := m.call("Round")
	return schedule.Counts{}, cmp.Or(before, after)
}

package bulktest

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/congestion"
	"github.com/anteroom/anteroom/bulk/store"
)

// longest is the most that a downstream's Retry-After counts for.
const longest = time.Hour

func (m *Model) leased(key string, fence int64) *job {
	group, id, _ := strings.Cut(key, "/")
	if g := m.groups[group]; g != nil {
		if j := g.jobs[id]; j != nil && j.state == inFlight && j.fence == fence {
			return j
		}
	}
	return nil
}

// Ack ends runs.
func (m *Model) Ack(_ context.Context, acks []store.Ack) ([]store.AckState, error) {
	states := make([]store.AckState, len(acks))
	for i, a := range acks {
		states[i] = m.ack(a)
	}
	return states, nil
}

func (m *Model) ack(a store.Ack) store.AckState {
	j := m.leased(a.Key, a.Fence)
	if j == nil {
		return store.AckStale
	}
	g, now := j.g, m.Now()
	delete(g.runs, j)
	defer m.enqueued(g)
	if g.Status == store.Cancelled && (a.Verdict == store.Retry || a.Verdict == store.Throttled || a.Verdict == store.Returned) {
		m.outcome(j, cancelled, "cancelled", nil, a.Code, a.Error)
		return store.AckCancelled
	}
	switch a.Verdict {
	case store.Done:
		g.Succeeded++
		m.outcome(j, succeeded, "succeeded", a.Result, "", "")
		return store.AckDone
	case store.Rejected:
		j.tries++
		g.Failed++
		m.outcome(j, failed, "failed", nil, a.Code, a.Error)
		return store.AckFailed
	case store.Buried:
		m.bury(j, a.Code, a.Error)
		return store.AckDead
	case store.Returned:
		m.giveBack(j)
		return store.AckReturned
	case store.Throttled:
		g.Throttles++
		j.throttles++
		if j.refused == 0 {
			j.refused = now
		}
		if now-j.refused > m.S.MaxAge.Microseconds() {
			m.bury(j, a.Code, a.Error)
			return store.AckDead
		}
		d := min(a.After, longest)
		if d <= 0 {
			d = m.backoff(j)
		}
		if m.S.Gating {
			g.gate = max(g.gate, now+d.Microseconds())
		}
		m.wait(j, now+d.Microseconds())
		return store.AckThrottled
	}
	if j.tries++; j.tries > m.S.MaxRetries {
		m.bury(j, a.Code, a.Error)
		return store.AckDead
	}
	m.wait(j, now+max(a.After, m.backoff(j)).Microseconds())
	return store.AckRetry
}

// giveBack puts a job back to the front of its group.
func (m *Model) giveBack(j *job) {
	j.state = pending
	i, _ := slices.BinarySearchFunc(j.g.front, j, func(a, b *job) int { return cmp.Compare(a.ID, b.ID) })
	j.g.front = slices.Insert(j.g.front, i, j)
}

func (m *Model) bury(j *job, code, text string) {
	j.g.Dead++
	m.outcome(j, dead, "dead", nil, code, text)
}

// outcome ends a job.
func (m *Model) outcome(j *job, s state, status string, result []byte, code, text string) {
	g := j.g
	j.state = s
	o := store.Outcome{ID: j.ID, Status: status, Attempts: j.tries, Result: result, Code: code, Error: text, At: at(m.Now())}
	switch s {
	case succeeded:
		o.Attempts++
	case dead:
		o.Payload, o.Type, o.Cost = j.Payload, j.Type, j.Cost
	case cancelled:
		g.Cancelled++
	}
	g.outcomes = append(g.outcomes, o)
	t := g.t
	t.open--
	if t.finished++; t.open == 0 {
		t.finished, t.throttled, t.backoff = 0, 0, 0 // its figures begin anew
	} else if s != cancelled {
		t.throttled = congestion.Mean(t.throttled, t.finished, float64(j.throttles))
	}
	m.settle(g)
}

// Renew extends leases.
func (m *Model) Renew(_ context.Context, leases []store.Lease) ([]bool, error) {
	kept := make([]bool, len(leases))
	for i, l := range leases {
		if j := m.leased(l.Key, l.Fence); j != nil {
			kept[i] = true
			j.until = m.Now() + m.S.Lease.Microseconds()
		}
	}
	return kept, nil
}

// Dispatch returns due jobs, recovers orphans and opens gates, all there are.
func (m *Model) Dispatch(_ context.Context, gap time.Duration) (d store.Dispatch, _ error) {
	now := m.Now()
	if gap > 0 {
		m.hold = max(m.hold, now+m.S.Lease.Microseconds())
	}
	next := int64(0)
	soon := func(us int64) {
		if next == 0 || us < next {
			next = us
		}
	}
	for len(m.waits) > 0 {
		first := m.waits[0]
		if !first.stale() && first.due > now {
			soon(first.due)
			break
		}
		if j := heap.Pop(&m.waits).(wait).job; !first.stale() {
			m.unwait(j)
			m.giveBack(j)
			m.enqueued(j.g)
			d.Moved++
		}
	}
	for _, g := range m.list {
		var lost []*job
		for j := range g.runs {
			if until := max(j.until, m.hold); until <= now {
				lost = append(lost, j)
			} else {
				soon(until)
			}
		}
		slices.SortFunc(lost, func(a, b *job) int { return cmp.Compare(a.fence, b.fence) })
		for _, j := range lost {
			m.recover(j, &d)
			soon(j.due)
		}
		if g.gate != 0 && g.gate <= now {
			g.gate = 0
			d.Woken++
		}
		if len(lost) > 0 {
			m.enqueued(g)
		}
		if g.Status == store.Aggregating {
			d.Tend = append(d.Tend, g.ID)
		}
	}
	if next > 0 {
		d.Next = time.Duration(next-now) * time.Microsecond
	}
	return d, nil
}

// recover is what follows the end of a lease: a crash, not a failed try.
func (m *Model) recover(j *job, d *store.Dispatch) {
	delete(j.g.runs, j)
	d.Recovered++
	j.crashes++
	switch {
	case j.g.Status == store.Cancelled:
		m.outcome(j, cancelled, "cancelled", nil, "", "")
	case j.crashes > m.S.MaxCrashes:
		d.Dead++
		m.bury(j, "crashed", "")
	default:
		m.wait(j, m.Now()+congestion.Crash(m.S.MaxBackoff, j.crashes, m.Chance()).Microseconds())
	}
}

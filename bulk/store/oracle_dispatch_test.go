package store_test

import (
	"cmp"
	"container/heap"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/anteroom/anteroom/bulk/congestion/congestiontest"
	"github.com/anteroom/anteroom/bulk/store"
)

// Dispatch recovers orphans and returns due jobs, all there are.
func (m *Model) Dispatch(context.Context) (d store.Dispatch, _ error) {
	now := m.Now()
	if m.beat > 0 && now-m.beat >= m.S.Lease.Microseconds()/3 {
		m.hold = now + m.S.Lease.Microseconds()
	}
	m.beat = now
	if now >= m.hold {
		lost := slices.DeleteFunc(slices.Collect(maps.Values(m.runs)), func(j *job) bool { return j.until > now })
		slices.SortFunc(lost, func(a, b *job) int { return cmp.Or(cmp.Compare(a.until, b.until), cmp.Compare(a.lease, b.lease)) })
		for _, j := range lost {
			m.recover(j, &d)
		}
	}
	for len(m.waits) > 0 && (m.waits[0].stale() || m.waits[0].due <= now) {
		if w := heap.Pop(&m.waits).(wait); !w.stale() {
			m.unwait(w.job)
			m.giveBack(w.job, w.due)
			d.Moved++
		}
	}
	next := never
	soon := func(at int64) { next = min(next, time.Duration(at-now)*time.Microsecond) }
	if len(m.waits) > 0 {
		soon(m.waits[0].due)
	}
	for _, j := range m.runs {
		soon(max(j.until, m.hold))
	}
	for _, g := range m.list {
		if g.Status == store.Aggregating {
			d.Tend = append(d.Tend, g.ID)
		}
	}
	if next != never {
		d.Next = next
	}
	d.Woken = m.woken(now)
	return d, nil
}

// woken opens the gates that are due.
func (m *Model) woken(now int64) (n int64) {
	for _, g := range m.list {
		if g.gate > 0 && g.gate <= now {
			g.gate = 0
			n++
		}
	}
	return n
}

// recover ends a run whose lease has ended: that counts as a crash, not as a failed try.
func (m *Model) recover(j *job, d *store.Dispatch) {
	m.unlease(j)
	d.Recovered++
	j.crashes++
	j.refused = 0
	switch {
	case j.off():
		m.cancelled(j)
	case j.crashes > m.S.MaxCrashes:
		d.Dead++
		m.bury(j, "crashed", "")
	default:
		m.wait(j, m.Now()+congestiontest.Crash(m.S.MaxBackoff, j.crashes, m.Chance(j.fence)).Microseconds())
	}
}

// wait is a job that is not ready, in a heap by when it is due. One that has left in another way stays until its time.
type wait struct {
	due int64
	job *job
}

func (w wait) stale() bool { return w.job.state != nonReady || w.job.due != w.due }

type waits []wait

func (w waits) Len() int           { return len(w) }
func (w waits) Less(i, k int) bool { return w[i].due < w[k].due }
func (w waits) Swap(i, k int)      { w[i], w[k] = w[k], w[i] }
func (w *waits) Push(x any)        { *w = append(*w, x.(wait)) }
func (w *waits) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	*w = (*w)[:last]
	return x
}

// wait puts a job among the non-ready.
func (m *Model) wait(j *job, due int64) {
	j.state, j.due = nonReady, due
	j.g.waits++
	if !j.scheduled {
		j.g.t.refused++
	}
	heap.Push(&m.waits, wait{due, j})
}

func (m *Model) unwait(j *job) {
	j.g.waits--
	if !j.scheduled {
		j.g.t.refused--
	}
}

package bulktest

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/anteroom/anteroom/bulk/congestion"
	"github.com/anteroom/anteroom/bulk/store"
)

// Pull takes up to want jobs.
func (m *Model) Pull(_ context.Context, want int) (store.Pulled, error) {
	if m.S.Gating {
		return m.pullGated(want), nil
	}
	return m.pullClassic(want), nil
}

// refill brings a group's limiters, its tenant's and the global one to now.
func (m *Model) refill(g *group) {
	now := m.Now()
	m.global.Refill(now)
	g.meter.Refill(now)
	if rate, limited := m.limit(g.t); limited {
		if g.t.meter == nil {
			g.t.meter = m.newMeter(rate, 0)
		}
		g.t.meter.Refill(now)
		g.t.meter.Rerate(milli(rate), m.burst(rate, 0))
	}
}

// limit is the tenant's own rate, or its part of the global one where that caps.
func (m *Model) limit(t *tenant) (rate float64, limited bool) {
	switch {
	case t.Rate > 0:
		return t.Rate, true
	case m.S.PerTenant > 0:
		return m.S.PerTenant, true
	case !m.S.Gating:
		return congestion.TenantRate(m.S.Global, m.active(), 0), true
	}
	return 0, false
}

// active counts the tenants that have work to do.
func (m *Model) active() (n int64) {
	for _, t := range m.tenants {
		if t.open > 0 {
			n++
		}
	}
	return n
}

// gates says how long the limiters hold a job of that group: the global one, and the nearest of the group's and its tenant's.
func (m *Model) gates(g *group, cost int64) (global, own time.Duration) {
	m.refill(g)
	if _, limited := m.limit(g.t); limited {
		own = never(g.t.meter.Wait(cost))
	}
	if g.Rate > 0 {
		own = max(own, never(g.meter.Wait(cost)))
	}
	return never(m.global.Wait(cost)), own
}

func never(d time.Duration) time.Duration {
	if d < 0 {
		return math.MaxInt64
	}
	return d
}

func (m *Model) take(g *group, cost int64) {
	m.global.Take(cost)
	if _, limited := m.limit(g.t); limited {
		g.t.meter.Take(cost)
	}
	if g.Rate > 0 {
		g.meter.Take(cost)
	}
}

func (m *Model) pullGated(want int) (p store.Pulled) {
	var next time.Duration = math.MaxInt64
	for len(p.Jobs) < want {
		held := time.Duration(math.MaxInt64)
		g := m.pick(func(g *group) bool {
			_, own := m.gates(g, g.head().Cost)
			if own > 0 {
				held = min(held, own)
			}
			return own == 0
		})
		if g == nil {
			next = min(next, held)
			break
		}
		j := g.head()
		if global, _ := m.gates(g, j.Cost); global > 0 {
			next = min(next, global)
			break
		}
		g.pop()
		m.take(g, j.Cost)
		m.served(g, j.Cost)
		p.Jobs = append(p.Jobs, m.start(j))
		p.Fetched++
	}
	if len(p.Jobs) == want && m.pick(func(*group) bool { return true }) != nil {
		p.More = true
	}
	for _, g := range m.list {
		if g.gate > m.Now() && g.pending() > 0 {
			next = min(next, time.Duration(g.gate-m.Now())*time.Microsecond)
		}
	}
	if next != math.MaxInt64 {
		p.Next = next
	}
	return p
}

// pullClassic fetches want jobs and checks each: those that may start go to READY, the others wait one by one.
func (m *Model) pullClassic(want int) (p store.Pulled) {
	for ; p.Fetched < int64(want) && len(m.ready) < want && int64(len(m.ready)) < max(1, m.S.ReadyMax); p.Fetched++ {
		g := m.pick(func(*group) bool { return true })
		if g == nil {
			break
		}
		j := g.pop()
		m.served(g, j.Cost)
		if g.t.row++; g.t.row >= m.SharedCount {
			g.t.row, g.t.counted = 0, g.t.nonReady
		}
		if global, own := m.gates(g, j.Cost); global+own > 0 {
			p.ToNonReady++
			j.throttles++
			g.Throttles++
			m.wait(j, m.Now()+m.backoff(j).Microseconds())
			continue
		}
		p.ToReady++
		m.take(g, j.Cost)
		j.state = ready
		m.ready = append(m.ready, j)
	}
	n := min(want, len(m.ready))
	for _, j := range m.ready[:n] {
		p.Jobs = append(p.Jobs, m.start(j))
	}
	m.ready = slices.Clone(m.ready[n:])
	p.More = len(m.ready) > 0 || m.pick(func(*group) bool { return true }) != nil
	return p
}

// backoff is how long a refused job waits.
func (m *Model) backoff(j *job) time.Duration {
	t := j.g.t
	if !m.S.Congestion {
		return m.S.BaseBackoff
	}
	waiting := t.nonReady
	if m.SharedCount > 1 {
		waiting = t.counted
	}
	rate, _ := m.limit(t)
	rate = congestion.TenantRate(m.S.Global, m.active(), rate)
	t.backoff = congestion.Backoff(m.S.BaseBackoff, m.S.MaxBackoff, waiting, rate)
	return t.backoff
}

// start leases a job.
func (m *Model) start(j *job) store.Leased {
	g, now := j.g, m.Now()
	m.fence++
	j.state, j.fence, j.until = inFlight, m.fence, now+m.S.Lease.Microseconds()
	g.runs[j] = true
	g.t.Served += j.Cost
	if g.StartedAt.IsZero() {
		g.StartedAt = at(now)
	}
	if g.Status == store.Dispatched {
		m.status(g, store.Running)
	}
	return store.Leased{
		Key: j.key(), ID: j.ID, Group: g.ID, Tenant: g.Tenant, Type: j.Type, Payload: j.Payload, Cost: j.Cost,
		Attempt: j.tries + 1, Crashes: j.crashes, Fence: j.fence, Until: at(j.until),
	}
}

func (g *group) pending() int64 { return int64(len(g.front) + len(g.order)) }

// head is the job of the group that goes next.
func (g *group) head() *job {
	if len(g.front) > 0 {
		return g.front[0]
	}
	return g.order[0]
}

func (g *group) pop() *job {
	j := g.head()
	if len(g.front) > 0 {
		g.front = g.front[1:]
	} else {
		g.order = g.order[1:]
	}
	return j
}

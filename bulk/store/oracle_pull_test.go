package store_test

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/anteroom/anteroom/bulk/congestion/congestiontest"
	"github.com/anteroom/anteroom/bulk/store"
)

const never = time.Duration(math.MaxInt64)

// Pull takes up to want jobs of any type. For processes that run some types only there is Follow.
func (m *Model) Pull(_ context.Context, want int, _ ...string) (store.Pulled, error) {
	if m.S.Gating {
		return m.pullGated(want), nil
	}
	return m.pullClassic(want), nil
}

// tenantRate returns how many jobs a tenant may start in a second: its limit, or its share.
func (m *Model) tenantRate(t *tenant) float64 {
	own := t.Rate
	if own == 0 {
		own = m.S.PerTenant
	}
	active := int64(0)
	for _, t := range m.tenants {
		if t.open > 0 {
			active++
		}
	}
	return congestiontest.TenantRate(m.S.Global, active, own)
}

// limited returns the limiter of a tenant, refilled to now; nil where nothing limits it. The share is a limit in the classic pipeline only.
func (m *Model) limited(t *tenant) interface {
	Wait(cost int64) time.Duration
	Take(n int64)
} {
	if t.Rate == 0 && m.S.PerTenant == 0 && m.S.Gating {
		return nil
	}
	rate := m.tenantRate(t)
	if t.meter == nil {
		t.meter = m.meter(rate, m.S.Burst)
	}
	t.meter.Rerate(milli(rate), tolerance(rate, m.S.Burst))
	t.meter.Refill(m.Now())
	return t.meter
}

// waitsFor returns how long the limiters hold a job of that cost and group: the global limiter, the tenant's and the group's.
func (m *Model) waitsFor(g *group, cost int64) (global, tenant, own time.Duration) {
	m.global.Refill(m.Now())
	global = positive(m.global.Wait(cost))
	if t := m.limited(g.t); t != nil {
		tenant = positive(t.Wait(cost))
	}
	if g.Rate > 0 {
		g.meter.Refill(m.Now())
		own = positive(g.meter.Wait(cost))
	}
	return global, tenant, own
}

func positive(d time.Duration) time.Duration {
	if d < 0 {
		return never
	}
	return d
}

func (m *Model) take(g *group, cost int64) {
	m.global.Take(cost)
	if t := m.limited(g.t); t != nil {
		t.Take(cost)
	}
	if g.Rate > 0 {
		g.meter.Take(cost)
	}
}

func (m *Model) pullGated(want int) (p store.Pulled) {
	next := never
	for len(p.Jobs) < want {
		g := m.pick(func(g *group) bool {
			_, tenant, own := m.waitsFor(g, g.head().Cost)
			if tenant+own > 0 {
				next = min(next, max(tenant, own))
			}
			return tenant+own == 0
		})
		if g == nil {
			break
		}
		cost := g.head().Cost
		if global, _, _ := m.waitsFor(g, cost); global > 0 {
			next = global
			break
		}
		m.take(g, cost)
		m.served(g, g.head())
		p.Jobs = append(p.Jobs, m.start(g.pop()))
		p.Fetched++
	}
	p.More = len(p.Jobs) == want && m.pick(func(*group) bool { return true }) != nil
	for _, g := range m.list {
		if g.gate > m.Now() && g.pending() > 0 {
			next = min(next, time.Duration(g.gate-m.Now())*time.Microsecond)
		}
	}
	if next != never {
		p.Next = next
	}
	return p
}

// pullClassic fetches want jobs and checks each: those that may start go to READY, the others wait one by one.
func (m *Model) pullClassic(want int) (p store.Pulled) {
	any := func(*group) bool { return true }
	for ; p.Fetched < int64(want) && int64(len(m.ready)) < m.S.ReadyMax; p.Fetched++ {
		g := m.pick(any)
		if g == nil {
			break
		}
		j := g.pop()
		m.served(g, j)
		if g.t.row++; g.t.row >= m.SharedCount {
			g.t.row, g.t.counted = 0, g.t.refused
		}
		if global, tenant, _ := m.waitsFor(g, j.Cost); global+tenant > 0 {
			p.ToNonReady++
			m.refuse(j, 0, false)
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
	p.More = p.Fetched > 0 || len(m.ready) > 0
	return p
}

// backoff returns how long a refused job of the tenant waits.
func (m *Model) backoff(t *tenant) time.Duration {
	t.backoff = m.S.BaseBackoff
	if m.S.Congestion {
		waiting := t.refused
		if m.SharedCount > 1 {
			waiting = t.counted
		}
		t.backoff = congestiontest.Backoff(m.S.BaseBackoff, m.S.MaxBackoff, waiting, m.tenantRate(t))
	}
	return t.backoff
}

// start leases a job.
func (m *Model) start(j *job) store.Leased {
	g, now := j.g, m.Now()
	m.fence++
	j.state, j.fence, j.until, j.lease = inFlight, m.fence, now+m.S.Lease.Microseconds(), g.ID+"/"+j.ID
	m.runs[j.lease] = j
	g.runs[j] = true
	g.t.Served++
	if g.StartedAt.IsZero() {
		g.StartedAt = at(now)
	}
	if g.Status == store.Dispatched {
		m.move(g, store.Running)
	}
	m.scored(g)
	return store.Leased{
		Key: j.lease, ID: j.ID, Root: j.g.root, Group: g.ID, Tenant: g.Tenant, Type: j.kind(), Payload: j.Payload, Cost: j.Cost,
		Attempt: j.tries + 1, Crashes: j.crashes, Fence: j.fence, Until: at(j.until),
		Level: g.turn(), Waited: j.waited(),
	}
}

// waited returns how long a job that starts has waited for its first run: from the millisecond of its acceptance to its fence.
func (j *job) waited() time.Duration {
	if j.tries+j.crashes+j.throttles > 0 {
		return -1
	}
	return max(0, time.Duration(j.fence-j.accepted/1000*1000)*time.Microsecond)
}

func (j *job) kind() string {
	if j.Type != "" {
		return j.Type
	}
	return j.g.Type
}

package bulktest

import (
	"math"

	"github.com/anteroom/anteroom/bulk/store"
)

// The numbers of lua/lib/fair.lua.
const unit = 65536

var levels = map[store.Level]float64{store.High: 16, store.Normal: 4, store.Low: 1}

// flow is who shares: a tenant in a level, or a group in its tenant.
type flow struct {
	tag    int64
	v      int64 // groups: the virtual time of the tenant's, kept in its flow
	active bool
}

// enter brings an idle flow back, without the credit of its idle time.
func (f *flow) enter(v int64) {
	if !f.active {
		f.active, f.tag = true, max(f.tag, v)
	}
}

func (f *flow) advance(cost int64, weight float64) {
	f.tag += int64(math.Ceil(float64(cost) * unit * 1000 / math.Round(weight*1000)))
}

// boost makes what is nearly done go first: 1 up to the half, 2 at the end.
func boost(total, done int64) float64 {
	if total <= 0 || 2*done <= total {
		return 1
	}
	return min(2, 2*float64(done)/float64(total))
}

// score is the priority of the score policy, in milliseconds.
func score(nowMS, base, alpha, total, done int64) int64 {
	part := -1 + float64(total)/float64(max(1, total-done))
	return -nowMS + base + int64(math.Floor(float64(alpha)*part))
}

func (t *tenant) flow(l store.Level) *flow {
	f := t.flows[l]
	if f == nil {
		f = &flow{}
		t.flows[l] = f
	}
	return f
}

// enqueued tells the fair queue that a group has work, or has it on other terms.
func (m *Model) enqueued(g *group) {
	g.score = score(m.Now()/1000, g.BasePriority, m.S.Alpha, g.Total, g.done())
	if !m.runnable(g) {
		g.flow.active = false
		return
	}
	f := g.t.flow(g.Level)
	f.enter(m.v)
	g.flow.enter(f.v)
}

func (g *group) done() int64 { return g.Succeeded + g.Failed + g.Dead }

// runnable says that a group has a job that could start now but for rate.
func (m *Model) runnable(g *group) bool {
	return len(g.queue) > 0 && !g.Paused && !g.Status.Ended() && (g.Sealed || !g.StartSealed) &&
		(g.Concurrency == 0 || int64(len(g.runs)) < g.Concurrency) && g.gate <= m.Now()
}

// pick gives the group whose turn it is, of those for which ok holds.
func (m *Model) pick(ok func(*group) bool) (best *group) {
	if m.S.Policy == "score" {
		for _, id := range m.ids {
			if g := m.groups[id]; m.runnable(g) && ok(g) && (best == nil || m.before(g, best)) {
				best = g
			}
		}
		return best
	}
	live := map[*flow]bool{}
	for _, id := range m.ids {
		g := m.groups[id]
		if !m.runnable(g) {
			g.flow.active = false
			continue
		}
		f := g.t.flow(g.Level)
		live[f] = true
		f.enter(m.v)
		g.flow.enter(f.v)
		if ok(g) && (best == nil || m.before(g, best)) {
			best = g
		}
	}
	for _, t := range m.tenants {
		for _, f := range t.flows {
			f.active = live[f]
		}
	}
	return best
}

func (m *Model) before(a, b *group) bool {
	if a.Level != b.Level && (m.S.Strict || m.S.Policy == "score") {
		return levels[a.Level] > levels[b.Level]
	}
	if m.S.Policy == "score" {
		return a.score > b.score
	}
	fa, fb := a.t.flow(a.Level), b.t.flow(b.Level)
	if fa != fb {
		return fa.tag < fb.tag
	}
	return a.flow.tag < b.flow.tag
}

// served charges a start to the group and its tenant.
func (m *Model) served(g *group, cost int64) {
	f := g.t.flow(g.Level)
	m.v, f.v = max(m.v, f.tag), max(f.v, g.flow.tag)
	f.advance(cost, g.t.Weight*levels[g.Level]*g.Weight)
	g.flow.advance(cost, g.Weight*boost(g.Total, g.done()))
	g.score = score(m.Now()/1000, g.BasePriority, m.S.Alpha, g.Total, g.done())
}

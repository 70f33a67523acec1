package store_test

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/anteroom/anteroom/admission/admissiontest"
	"github.com/anteroom/anteroom/bulk/calendar"
	"github.com/anteroom/anteroom/bulk/store"
)

var levels = []store.Level{store.High, store.Normal, store.Low}

// flow is a member of the fair queue: a tenant at a level, or a group of its tenant.
type flow struct {
	tag    int64
	v      int64 // a tenant's: the virtual time among its groups
	active bool
	seen   int64 // the last turn in which it had something to give
}

// enter brings an idle flow back, without the credit of its idle time.
func (f *flow) enter(v int64) {
	if !f.active {
		f.active, f.tag = true, max(f.tag, v)
	}
}

// scored computes a group's priority again, as each enqueue and dequeue does.
func (m *Model) scored(g *group) {
	base := g.BasePriority
	if g.inside.base {
		base = 0
	}
	g.score = admissiontest.ScorePriority(m.Now()/1000, base, m.S.Alpha, g.Total, g.ended())
}

// runnable reports whether a group has a job that could start now, apart from rates.
func (m *Model) runnable(g *group) bool {
	return g.pending() > 0 && !g.Paused && !g.Status.Ended() && (g.Sealed || !g.StartSealed) &&
		(g.Concurrency == 0 || int64(len(g.runs)) < g.Concurrency) && (g.t.Concurrency == 0 || m.inFlight(g.t) < g.t.Concurrency) && g.gate <= m.Now() &&
		!g.StartAt.After(at(m.Now())) && !m.expired(g) && !g.held && !quiet(g, at(m.Now()))
}

// quiet reports whether it is a group's quiet hours.
func quiet(g *group, t time.Time) bool { return g.Quiet != (calendar.Quiet{}) && g.Quiet.At(t) }

// loud returns how long a group's quiet hours last.
func (m *Model) loud(g *group) (wait time.Duration) {
	now := at(m.Now())
	for t := now; quiet(g, t); wait = t.Sub(now) {
		t = t.Truncate(time.Minute).Add(time.Minute)
	}
	return wait
}

// expired reports whether a group's ExpiresAt has passed.
func (m *Model) expired(g *group) bool {
	return !g.ExpiresAt.IsZero() && !g.ExpiresAt.After(at(m.Now()))
}

// pick returns the group whose turn it is, of those for which ok returns true.
func (m *Model) pick(ok func(*group) bool) (best *group) {
	m.turn++
	for _, g := range m.list {
		if !m.runnable(g) {
			g.flow.active = false
			continue
		}
		f := g.t.flows[g.turn()]
		f.seen = m.turn
		f.enter(m.v)
		g.flow.enter(f.v)
		if ok(g) && (best == nil || m.before(g, best)) {
			best = g
		}
	}
	for _, f := range m.flows {
		f.active = f.seen == m.turn
	}
	return best
}

func (m *Model) before(a, b *group) bool {
	if a.turn() != b.turn() && (m.S.Strict || m.S.Policy == "score") {
		return slices.Index(levels, a.turn()) < slices.Index(levels, b.turn())
	}
	if m.S.Policy == "score" {
		return a.score > b.score
	}
	fa, fb := a.t.flows[a.turn()], b.t.flows[b.turn()]
	if fa != fb {
		return fa.tag < fb.tag
	}
	return a.flow.tag < b.flow.tag
}

// served charges a start to the group and its tenant: by starts its cost, by time what it is expected to run.
func (m *Model) served(g *group, j *job) {
	f := g.t.flows[g.turn()]
	m.v, f.v = max(m.v, f.tag), max(f.v, g.flow.tag)
	if j.charge = 0; m.byTime() {
		j.charge = cmp.Or(g.expect, g.t.expect, firstExpect)
		m.charge(g, j.charge, workUnit)
	} else {
		m.charge(g, j.Cost, 1)
	}
	m.scored(g)
}

// What lua/lib/bulkjobs.lua expects of the first run, and how many µs move a tag as a cost of 1 does.
const firstExpect, workUnit = 10_000, 8_000

func (m *Model) byTime() bool { return !m.S.ByStarts && m.S.Gating && m.S.Policy == "fair" }

// charge moves group and tenant on by amount, of which per are worth a cost of 1; back where it is below 0.
func (m *Model) charge(g *group, amount int64, per float64) {
	factor := func(l store.Level) float64 { return float64(admissiontest.FairLevels[slices.Index(levels, l)]) }
	weight, share := float64(milli(g.Weight)), float64(milli(g.Weight))
	if g.inside.weight {
		share = 1000
	}
	if g.inside.level {
		weight *= factor(g.Level) / factor(store.Normal)
	}
	f := g.t.flows[g.turn()]
	f.tag = max(0, f.tag+admissiontest.FairCharge(amount, per*g.t.Weight*share*factor(g.turn())))
	g.flow.tag = max(0, g.flow.tag+admissiontest.FairCharge(amount, per*weight*admissiontest.FairBoost(g.Total, g.ended()+int64(len(g.runs)))))
}

// worked corrects the charge of a run and adds its time to the expected ones; took is 0 where the time is unknown.
func (m *Model) worked(j *job, verdict store.Verdict, took time.Duration) {
	g, us := j.g, took.Microseconds()
	if m.byTime() && (us > 0 || verdict == store.Returned) {
		m.charge(g, us-j.charge, workUnit)
	}
	if us > 0 {
		for e, part := range map[*int64]float64{&g.expect: 8, &g.t.expect: 32} {
			if *e == 0 {
				*e = us
			} else {
				*e = max(1, *e+int64(math.Floor(float64(us-*e)/part+0.5)))
			}
		}
	}
}

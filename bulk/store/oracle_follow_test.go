package store_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/anteroom/anteroom/bulk/calendar"
	"github.com/anteroom/anteroom/bulk/store"
)

// Follow repeats in the model what a store did in a pull of the default engine. It returns an error if the store was not allowed to
// do it, or could have done more. The model accepts the store's choice of the group whose turn it was, and nothing else. types are those
// of the process that pulled; none: all.
func (m *Model) Follow(p store.Pulled, want int, types ...string) error {
	if len(p.Jobs) > want {
		return fmt.Errorf("%d jobs pulled, %d wanted", len(p.Jobs), want)
	}
	m.woken(m.Now())
	for _, l := range p.Jobs {
		if err := m.follow(l, types); err != nil {
			return fmt.Errorf("pull of job %s of group %s: %w", l.ID, l.Group, err)
		}
	}
	return m.idle(p, want, types)
}

func (m *Model) follow(l store.Leased, types []string) error {
	g := m.groups[l.Group]
	if g == nil || g.jobs[l.ID] == nil {
		return fmt.Errorf("nobody has submitted it")
	}
	j := g.jobs[l.ID]
	switch {
	case j.state != pending:
		return fmt.Errorf("it is in state %d", j.state)
	case !m.runnable(g):
		return fmt.Errorf("its group may not start jobs: %s, paused %t, gated for %d µs, %d run, concurrency %d",
			g.Status, g.Paused, max(0, g.gate-m.Now()), len(g.runs), g.Concurrency)
	case !runs(types, j):
		return fmt.Errorf("the process runs %v, it is of type %s", types, j.kind())
	case m.full(j.kind()):
		return fmt.Errorf("as many of type %s run as may", j.kind())
	case g.head() != j && !m.Pools && len(m.types) == 0:
		return fmt.Errorf("it was the turn of job %s", g.head().ID)
	case l.Fence <= m.fence:
		return fmt.Errorf("fence %d after %d", l.Fence, m.fence)
	}
	if global, tenant, own := m.waitsFor(g, j.Cost); max(global, tenant, own) > 0 && !m.Rerated {
		return fmt.Errorf("over a limit: to wait are globally %v, for the tenant %v, for the group %v", global, tenant, own)
	}
	if wait := m.typeWaits(j); wait > 0 && !m.Rerated {
		return fmt.Errorf("over the rate of type %s: to wait are %v", j.kind(), wait)
	}
	m.take(g, j.Cost)
	m.takeType(j)
	g.remove(j)
	m.fence = l.Fence - 1
	mine := m.start(j)
	m.Rename(mine.Key, l.Key)
	l.Until, mine.Until, mine.Key = time.Time{}, time.Time{}, l.Key
	if j.returned && l.Waited < 0 { // whether a returned job has a record of runs depends on its lease
		mine.Waited = l.Waited
	}
	if have, want := fmt.Sprintf("%+v", l), fmt.Sprintf("%+v", mine); have != want {
		return fmt.Errorf("leased as %s, want %s", have, want)
	}
	return nil
}

// Rename changes the name of a running job to that under which a store has leased it.
func (m *Model) Rename(from, to string) {
	j := m.runs[from]
	delete(m.runs, from)
	j.lease = to
	m.runs[to] = j
}

// idle checks that a pull did not leave a worker without a job that could run, nor let it sleep too long.
func (m *Model) idle(p store.Pulled, want int, types []string) error {
	if m.uneven || m.Rerated {
		return nil // a dear job at the head holds cheap ones behind it
	}
	soonest, what := never, ""
	for _, g := range m.list {
		if !m.startable(g) {
			continue
		}
		own := never
		for _, j := range slices.Concat(g.front, g.order) {
			if runs(types, j) && !m.full(j.kind()) {
				own = min(own, m.typeWaits(j))
			}
		}
		if own == never {
			continue
		}
		wait := max(time.Duration(max(0, g.gate-m.Now()))*time.Microsecond, g.StartAt.Sub(at(m.Now())), m.loud(g))
		global, tenant, ofGroup := m.waitsFor(g, g.head().Cost)
		if wait = max(wait, global, tenant, ofGroup, own); wait < soonest {
			soonest, what = wait, g.ID
		}
	}
	switch {
	case len(p.Jobs) == want && soonest == 0 && !p.More:
		return fmt.Errorf("no word that there is more, and a job of group %s could start", what)
	case len(p.Jobs) < want && soonest == 0 && (!m.Pools && len(m.types) == 0 || !p.More): // with pools it may have begun to look through a group
		return fmt.Errorf("%d of %d workers got a job, and one of group %s could start", len(p.Jobs), want, what)
	case !p.More && soonest < never && (p.Next == 0 || p.Next > soonest):
		return fmt.Errorf("to sleep for %v (0: until an event), and a job of group %s can start in %v", p.Next, what, soonest)
	}
	return nil
}

// runs reports whether a process with these types runs the job; without any it runs every type.
func runs(types []string, j *job) bool { return len(types) == 0 || slices.Contains(types, j.kind()) }

// startable reports whether a group has a job that may start once its gate opens and its limits allow it.
func (m *Model) startable(g *group) bool {
	gate, start, hours := g.gate, g.StartAt, g.Quiet
	g.gate, g.StartAt, g.Quiet = 0, time.Time{}, calendar.Quiet{}
	defer func() { g.gate, g.StartAt, g.Quiet = gate, start, hours }()
	return m.runnable(g)
}

// FollowClassic does in the model what a store did in a pull of the classic pipeline, which does not say what it refused: a job
// may start whenever it has not ended, and it is only counted.
func (m *Model) FollowClassic(p store.Pulled, types ...string) error {
	for _, l := range p.Jobs {
		g := m.groups[l.Group]
		if g == nil || g.jobs[l.ID] == nil {
			return fmt.Errorf("pull of job %s of group %s: nobody has submitted it", l.ID, l.Group)
		}
		j := g.jobs[l.ID]
		switch {
		case j.state == nonReady && !j.scheduled:
			m.unwait(j)
		case j.state == pending:
			g.remove(j)
		default:
			return fmt.Errorf("pull of job %s of group %s: it is in state %d", l.ID, l.Group, j.state)
		}
		if !runs(types, j) {
			return fmt.Errorf("pull of job %s of type %s: the process runs %v", l.ID, j.kind(), types)
		}
		if g.Paused || g.Status.Ended() || g.StartSealed && !g.Sealed || g.StartAt.After(at(m.Now())) || quiet(g, at(m.Now())) {
			return fmt.Errorf("pull of job %s: its group may not start jobs: %s, paused %t", l.ID, g.Status, g.Paused)
		}
		m.fence = l.Fence - 1
		if m.full(j.kind()) {
			return fmt.Errorf("pull of job %s: as many of type %s run as may", l.ID, j.kind())
		}
		m.takeType(j)
		m.Rename(m.start(j).Key, l.Key)
	}
	return nil
}

package bulktest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/anteroom/anteroom/bulk/store"
)

// Redrive makes a new group of the dead jobs of a group.
func (m *Model) Redrive(ctx context.Context, id string, rate float64) (store.Group, error) {
	g, err := m.find(id)
	if err != nil {
		return store.Group{}, err
	}
	var dead []*job
	for _, o := range g.outcomes {
		if o.Status == "dead" && !g.redriven[o.ID] {
			dead = append(dead, g.jobs[o.ID])
			g.redriven[o.ID] = true
		}
	}
	if len(dead) == 0 {
		return store.Group{}, refuse(store.CodeState, "group %q has no dead letters", id)
	}
	g.redrives++
	spec := g.GroupSpec
	spec.ID, spec.RedriveOf, spec.CallbackURL = fmt.Sprintf("%s-r%d", id, g.redrives), id, ""
	if rate > 0 {
		spec.Rate = rate
	}
	if _, _, err := m.CreateGroup(ctx, spec); err != nil {
		return store.Group{}, err
	}
	slices.SortFunc(dead, byID)
	for _, j := range dead {
		m.add(m.groups[spec.ID], store.Job{ID: j.ID, Type: j.Type, Payload: j.Payload, Cost: j.Cost})
	}
	return m.Seal(ctx, spec.ID)
}

// BeginReduce takes over the reduction of a group.
func (m *Model) BeginReduce(_ context.Context, id string) (store.Reduction, error) {
	g, err := m.find(id)
	if err != nil {
		return store.Reduction{}, err
	}
	g.reducer++
	return store.Reduction{Group: m.view(g), Fence: g.reducer, Cursor: g.cursor, State: g.state()}, nil
}

// state is the reducer's, or the result once the group is finished.
func (g *group) state() []byte {
	if g.finished {
		return g.Result
	}
	return g.sum
}

// CommitReduce writes (state, cursor) together.
func (m *Model) CommitReduce(_ context.Context, id string, fence int64, cursor string, n int64, state []byte) (bool, error) {
	g, err := m.find(id)
	if err != nil || g.reducer != fence || g.finished {
		return false, err
	}
	g.cursor, g.sum = cursor, state
	g.Reduced += n
	return true, nil
}

// Finish ends a group whose outcomes are all reduced.
func (m *Model) Finish(_ context.Context, id string, fence int64, result []byte) (store.Group, bool, error) {
	g, err := m.find(id)
	if err != nil {
		return store.Group{}, false, err
	}
	if g.reducer != fence || g.finished || g.Reduced != g.Total || g.ended() != g.Total || g.Status != store.Aggregating && g.Status != store.Cancelled {
		return m.view(g), false, nil
	}
	if g.Status == store.Aggregating {
		g.FinishedAt = at(m.Now())
		if g.Tolerance.Exceeded(g.Failed+g.Dead, g.Total) {
			m.move(g, store.Failed)
		} else {
			m.move(g, store.Completed)
		}
	}
	g.Result, g.finished = result, true
	return m.view(g), true, nil
}

// Outcomes gives what became of a group's jobs, by id.
func (m *Model) Outcomes(id string) map[string]store.Outcome {
	all := map[string]store.Outcome{}
	for _, o := range m.groups[id].outcomes {
		all[o.ID] = o
	}
	return all
}

// Groups gives the ids of all groups in the order in which they were made.
func (m *Model) Groups() []string {
	ids := make([]string, len(m.list))
	for i, g := range m.list {
		ids[i] = g.ID
	}
	return ids
}

// Tenants gives the names of all tenants.
func (m *Model) Tenants() []string { return slices.Sorted(maps.Keys(m.tenants)) }

// Rates gives the rates in force, 0 where there is no limit, of each "tenant x" and "group y".
func (m *Model) Rates() map[string]float64 {
	all := map[string]float64{}
	for name, t := range m.tenants {
		if all["tenant "+name] = t.Rate; t.Rate == 0 {
			all["tenant "+name] = m.S.PerTenant
		}
	}
	for id, g := range m.groups {
		all["group "+id] = g.Rate
	}
	return all
}

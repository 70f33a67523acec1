package store_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// RedriveJobs makes a new group of dead and failed jobs of a group.
func (m *Model) RedriveJobs(ctx context.Context, id string, opts store.RedriveOptions) (store.Group, error) {
	g, err := m.find(id)
	if err != nil {
		return store.Group{}, err
	}
	statuses := opts.Statuses
	switch {
	case len(statuses) == 0 && (len(opts.Codes) > 0 || opts.Job != ""):
		statuses = []string{"dead", "failed"}
	case len(statuses) == 0:
		statuses = []string{"dead"}
	}
	var jobs []*job
	for _, o := range g.outcomes {
		if opts.Job != "" && o.ID != opts.Job {
			continue
		}
		if slices.Contains(statuses, o.Status) && (len(opts.Codes) == 0 || slices.Contains(opts.Codes, o.Code)) && !g.redriven[o.ID] {
			jobs = append(jobs, g.jobs[o.ID])
			g.redriven[o.ID] = true
			if g.Results == store.NoResults && (g.Counts() || g.cleared == len(g.outcomes)) {
				if j := g.jobs[o.ID]; g.Sealed || g.Status.Ended() {
					g.forget(j)
				} else {
					j.short = true // or it could be added again
				}
			}
			if o.Status == "dead" {
				g.Redriven++
			}
		}
	}
	if len(jobs) == 0 {
		return store.Group{}, refuse(store.CodeState, "group %q has no such jobs", id)
	}
	g.redrives++
	spec := g.GroupSpec
	spec.Own, spec.MaxGroups = g.inside != inside{}, opts.MaxGroups
	n := g.redrives
	if g.RedriveOf != "" {
		last, _ := strconv.Atoi(strings.TrimPrefix(id, g.root+"-r"))
		n = max(n, last+1)
	}
	for ; ; n++ {
		spec.ID = fmt.Sprintf("%s-r%d", g.root, n)
		if _, taken := m.groups[spec.ID]; !taken {
			break
		}
	}
	spec.RedriveOf, spec.StartAt, spec.ExpiresAt, spec.After, spec.When = id, time.Time{}, time.Time{}, "", ""
	if opts.Rate > 0 {
		spec.Rate = opts.Rate
	}
	if _, _, err := m.CreateGroup(ctx, spec); err != nil {
		return store.Group{}, err
	}
	m.groups[spec.ID].root = g.root
	slices.SortFunc(jobs, func(a, b *job) int { // the dead ones first
		return cmp.Or(cmp.Compare(g.status(a), g.status(b)), byID(a, b))
	})
	for _, j := range jobs {
		m.add(m.groups[spec.ID], store.Job{ID: j.ID, Type: j.Type, Payload: j.Payload, Cost: j.Cost})
	}
	return m.Seal(ctx, spec.ID)
}

// status returns what became of an ended job.
func (g *group) status(j *job) string {
	for _, o := range g.outcomes {
		if o.ID == j.ID {
			return o.Status
		}
	}
	return ""
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
	if (g.Status == store.Aggregating || g.Status == store.Cancelled) && g.Reduced == g.ended() {
		g.clear()
	}
	return true, nil
}

// drops reports whether the group does not keep outcomes of that status.
func (g *group) drops(status string) bool {
	return g.Results != store.AllResults && status == "succeeded" || g.Results == store.NoResults && status == "cancelled"
}

// clear forgets the outcomes that the group does not keep and that its reducer has taken in.
func (g *group) clear() {
	for ; g.cleared < int(g.Reduced); g.cleared++ {
		o := g.outcomes[g.cleared]
		if g.drops(o.Status) || g.Results == store.NoResults && g.redriven[o.ID] {
			g.forget(g.jobs[o.ID])
		}
	}
}

// Delete marks an ended group as deleted; Removed then removes it.
func (m *Model) Delete(_ context.Context, id string) error {
	if m.Deleted(id) {
		return nil
	}
	g, err := m.find(id)
	switch {
	case err != nil:
		return err
	case !g.Status.Ended():
		return refuse(store.CodeState, "group %q is %s", id, g.Status)
	case g.Reduced < g.ended() || !g.finished:
		return refuse(store.CodeState, "group %q has no result yet", id)
	}
	g.deleted = true
	return nil
}

// Deleted reports whether a group is being deleted.
func (m *Model) Deleted(id string) bool { return m.groups[id] != nil && m.groups[id].deleted }

// GroupsOf counts the groups of the tenant that a group belongs to.
func (m *Model) GroupsOf(id string) int {
	if g := m.groups[id]; g != nil {
		return int(g.t.Groups)
	}
	return 0
}

// Removed notes that the store no longer has a group, which is an error unless the group was deleted. A tenant without settings is removed with
// its last group.
func (m *Model) Removed(id string) error {
	g := m.groups[id]
	switch {
	case g == nil:
		return nil
	case !g.deleted:
		return fmt.Errorf("group %q is gone and was not deleted", id)
	}
	delete(m.groups, id)
	m.list = slices.DeleteFunc(m.list, func(other *group) bool { return other == g })
	t := g.t
	if t.Groups--; t.Groups > 0 {
		return nil
	}
	for _, f := range t.flows {
		f.tag = 0
	}
	m.forget(t)
	return nil
}

// Tended notes that the housekeeping of a group was done.
func (m *Model) Tended(id string) {
	g := m.groups[id]
	if g == nil {
		return
	}
	m.expire(g)
	g.swept = g.swept || g.Status == store.Cancelled && len(g.runs) == 0
	if g.finished && !g.Counts() {
		g.clear()
	}
	for _, j := range g.jobs {
		if j.short && g.finished {
			j.short = false
			g.forget(j)
		}
	}
}

// expire ends the jobs of an expired group that do not run, and seals it.
func (m *Model) expire(g *group) {
	if !m.expired(g) || g.Status.Ended() || g.Status == store.Aggregating {
		return
	}
	g.held = false
	for _, id := range slices.Sorted(maps.Keys(g.jobs)) {
		j := g.jobs[id]
		switch j.state {
		case nonReady:
			m.unwait(j)
		case pending:
			is := func(other *job) bool { return other == j }
			g.order, g.front = slices.DeleteFunc(g.order, is), slices.DeleteFunc(g.front, is)
		default:
			continue
		}
		m.bury(j, "expired", "")
	}
	if !g.Sealed {
		_, _ = m.seal(g.ID, true)
	}
	m.settle(g) // all its jobs may have been cancelled while it waited for others
}

func (g *group) forget(j *job) {
	j.gone = true
	g.Gone++
}

// Kept returns the ids of a group's jobs whose outcomes are kept, in the order in which they ended.
func (m *Model) Kept(id string) (ids []string) {
	g := m.groups[id]
	for _, o := range g.outcomes {
		if !g.jobs[o.ID].gone {
			ids = append(ids, o.ID)
		}
	}
	return ids
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
		m.end(g)
	}
	g.Result, g.finished = result, true
	return m.view(g), true, nil
}

func (m *Model) end(g *group) {
	g.FinishedAt = at(m.Now())
	if g.Tolerance.Exceeded(g.Failed+g.Dead, g.Total) {
		m.move(g, store.Failed)
	} else {
		m.move(g, store.Completed)
	}
}

// Outcomes returns the outcomes of a group's jobs, by id.
func (m *Model) Outcomes(id string) map[string]store.Outcome {
	all := map[string]store.Outcome{}
	for _, o := range m.groups[id].outcomes {
		all[o.ID] = o
	}
	return all
}

// Jobs returns the ids of a group's jobs, without the ended ones of a group that does not keep all outcomes.
func (m *Model) Jobs(id string) (ids []string) {
	g := m.groups[id]
	for _, id := range slices.Sorted(maps.Keys(g.jobs)) {
		if g.jobs[id].state != ended || g.Results == store.AllResults {
			ids = append(ids, id)
		}
	}
	return ids
}

// Groups returns the ids of all groups in the order of their creation.
func (m *Model) Groups() []string {
	ids := make([]string, len(m.list))
	for i, g := range m.list {
		ids[i] = g.ID
	}
	return ids
}

// Tenants returns the names of all tenants.
func (m *Model) Tenants() []string { return slices.Sorted(maps.Keys(m.tenants)) }

// Rates returns the rates in force, 0 where there is no limit, of each "tenant x" and "group y".
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
	for kind, l := range m.types {
		all["type "+kind] = l.Rate
	}
	return all
}

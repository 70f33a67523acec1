package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/anteroom/anteroom/bulk/store"
)

// CreateGroup makes a group.
func (m *Model) CreateGroup(_ context.Context, spec store.GroupSpec) (store.Group, bool, error) {
	if spec.ID == "" {
		m.serial++
		spec.ID = fmt.Sprintf("g%d", m.serial)
	}
	if spec.Weight == 0 {
		spec.Weight = 1
	}
	if spec.Level == "" {
		spec.Level = store.Normal
	}
	if !spec.ExpiresAt.IsZero() && !spec.ExpiresAt.After(spec.StartAt) {
		return store.Group{}, false, refuse(store.CodeInvalid, "group %q expires before its start", spec.ID)
	}
	if m.Deleted(spec.ID) {
		return store.Group{}, false, refuse(store.CodeExists, "group %q is being deleted", spec.ID)
	}
	if g := m.groups[spec.ID]; g != nil {
		spec.Own, spec.MaxGroups = g.spec.Own, g.spec.MaxGroups
		if g.spec != spec {
			return store.Group{}, false, refuse(store.CodeExists, "group %q is there with other content", spec.ID)
		}
		return m.view(g), false, nil
	}
	if !spec.ExpiresAt.IsZero() && !spec.ExpiresAt.After(at(m.Now())) {
		return store.Group{}, false, refuse(store.CodeInvalid, "group %q has expired", spec.ID)
	}
	before, held, err := m.predecessors(spec)
	if err != nil {
		return store.Group{}, false, err
	}
	t := m.tenant(spec.Tenant)
	if spec.MaxGroups > 0 && t.Groups >= spec.MaxGroups {
		return store.Group{}, false, refuse(store.CodeQuota, "tenant %q has %d groups", spec.Tenant, t.Groups)
	}
	t.Groups++
	g := &group{
		inside: inside{spec.Own, spec.Own, spec.Own},
		Group:  store.Group{GroupSpec: spec, Status: store.Created, CreatedAt: at(m.Now()), LastAddedAt: at(m.Now())},
		spec:   spec, t: t, jobs: map[string]*job{}, runs: map[*job]bool{}, chunks: map[string]*chunk{}, redriven: map[string]bool{}, root: spec.ID,
		before: before, held: held,
	}
	g.meter = m.meter(spec.Rate, 0)
	m.groups[spec.ID] = g
	m.list = append(m.list, g)
	return m.view(g), true, nil
}

// AddJobs puts jobs into a group.
func (m *Model) AddJobs(_ context.Context, id string, c store.Chunk, jobs []store.Job) (store.Added, error) {
	g, err := m.find(id)
	if err != nil {
		return store.Added{}, err
	}
	k := g.chunks[c.Key]
	if k != nil && k.done {
		return store.Added{}, &store.ChunkDone{Answer: k.answer}
	}
	a := store.Added{Duplicate: make([]bool, len(jobs))}
	fresh := map[string]bool{}
	for i, j := range jobs {
		if a.Duplicate[i] = g.jobs[j.ID] != nil && !g.jobs[j.ID].gone || fresh[j.ID]; a.Duplicate[i] {
			a.Duplicates++
		} else {
			fresh[j.ID] = true
			a.Accepted++
		}
	}
	closed := g.Sealed || g.Status.Ended()
	switch {
	case closed && (a.Accepted > 0 || c.Key != "" && k == nil):
		return store.Added{}, refuse(store.CodeSealed, "group %q is sealed", id)
	case a.Accepted > 0 && c.MaxPending > 0 && g.t.open+a.Accepted > c.MaxPending:
		return store.Added{}, refuse(store.CodeQuota, "tenant %q has %d jobs to do", g.Tenant, g.t.open)
	case a.Accepted > 0 && m.S.PendingPerTenant > 0 && g.t.open+a.Accepted > m.S.PendingPerTenant:
		return store.Added{}, refuse(store.CodeQuota, "tenant %q has %d jobs to do", g.Tenant, g.t.open)
	}
	for i, in := range jobs {
		if !a.Duplicate[i] {
			m.add(g, in)
		}
	}
	if c.Key != "" {
		if k == nil {
			k = &chunk{}
			g.chunks[c.Key] = k
		}
		a.Before = k.accepted
		k.accepted += a.Accepted
		a.Done = c.Last && (c.Whole == 0 || c.Whole == k.accepted)
		k.done, k.answer = a.Done, c.Answer
	}
	g.LastAddedAt = at(m.Now())
	return a, nil
}

func (m *Model) add(g *group, in store.Job) {
	in.Cost = max(1, in.Cost)
	m.uneven = m.uneven || in.Cost > 1
	j := &job{Job: in, g: g, accepted: m.Now()}
	g.jobs[in.ID] = j
	g.Total++
	g.t.open++
	if !in.RunAt.IsZero() && in.RunAt.UnixMicro() > m.Now() {
		j.scheduled = true
		m.wait(j, in.RunAt.UnixMicro())
		return
	}
	g.order = append(g.order, j)
	m.scored(g)
}

// Seal ends the submission.
func (m *Model) Seal(_ context.Context, id string) (store.Group, error) { return m.seal(id, false) }

// SealAbandoning is Seal for a group that may have incomplete chunks.
func (m *Model) SealAbandoning(_ context.Context, id string) (store.Group, error) {
	return m.seal(id, true)
}

func (m *Model) seal(id string, abandon bool) (store.Group, error) {
	g, err := m.find(id)
	switch {
	case err != nil:
		return store.Group{}, err
	case g.Sealed:
		return m.view(g), nil
	case g.Status != store.Created:
		return store.Group{}, refuse(store.CodeState, "group %q is %s", id, g.Status)
	}
	for key, c := range g.chunks {
		if !c.done && !abandon {
			return store.Group{}, refuse(store.CodeHalfIn, "chunk %q of group %q is half in", key, id)
		}
	}
	g.Sealed, g.SealedAt = true, at(m.Now())
	if g.StartedAt.IsZero() {
		m.move(g, store.Dispatched)
	} else {
		m.move(g, store.Running)
	}
	m.settle(g)
	if (g.Status == store.Dispatched || g.Status == store.Running) && !m.expired(g) {
		g.stop()
	}
	return m.view(g), nil
}

func (m *Model) move(g *group, s store.Status) { g.Status, g.Epoch = s, g.Epoch+1 }

// settle ends the running of a group whose jobs all have their outcomes.
func (m *Model) settle(g *group) {
	if g.Status != store.Dispatched && g.Status != store.Running || g.ended() != g.Total || g.held {
		return
	}
	if !g.Counts() {
		m.move(g, store.Aggregating)
		return
	}
	m.end(g)
	g.count()
}

// count sets the result of a group that only counts.
func (g *group) count() {
	var t store.Tally
	for i := range g.outcomes {
		t.Add(&g.outcomes[i])
	}
	g.Result, _ = t.Result(map[string]string{`{"op":"concat"}`: "concat"}[g.Aggregate], g.ID)
	g.Reduced, g.finished = g.Total, true
}

// Swept notes that every job of a cancelled group has its outcome.
func (m *Model) Swept(id string) {
	if g := m.groups[id]; g.Status == store.Cancelled && g.Counts() {
		g.count()
	}
}

// Group reads a group.
func (m *Model) Group(_ context.Context, id string) (store.Group, error) {
	g, err := m.find(id)
	if err != nil {
		return store.Group{}, err
	}
	return m.view(g), nil
}

// Patch changes a group.
func (m *Model) Patch(_ context.Context, id string, p store.Patch) (store.Group, error) {
	g, err := m.find(id)
	if err != nil {
		return store.Group{}, err
	}
	if g.Status.Ended() {
		return store.Group{}, refuse(store.CodeState, "group %q is %s", id, g.Status)
	}
	start, expires := g.StartAt, g.ExpiresAt
	set(&start, p.StartAt)
	set(&expires, p.ExpiresAt)
	switch {
	case p.ExpiresAt != nil && m.expired(g):
		return store.Group{}, refuse(store.CodeState, "group %q has expired", id)
	case expires != g.ExpiresAt && !expires.IsZero() && !expires.After(at(m.Now())), !expires.IsZero() && !expires.After(start):
		return store.Group{}, refuse(store.CodeInvalid, "group %q would expire before it starts", id)
	}
	if p.Own && (p.Weight != nil && !g.inside.weight && g.Weight != 1 || p.Level != nil && !g.inside.level && g.Level != store.Normal ||
		p.BasePriority != nil && !g.inside.base && g.BasePriority != 0) {
		return store.Group{}, refuse(store.CodeOperators, "an operator has set it for group %q", id)
	}
	if p.Weight != nil {
		g.inside.weight = p.Own
	}
	if p.BasePriority != nil {
		g.inside.base = p.Own
	}
	turn := g.turn()
	set(&g.Weight, p.Weight)
	set(&g.Concurrency, p.Concurrency)
	set(&g.BasePriority, p.BasePriority)
	g.StartAt, g.ExpiresAt = start, expires
	set(&g.Quiet, p.Quiet)
	if p.StopAt != nil {
		g.StopAt, g.lifted = *p.StopAt, false
	}
	if p.Paused != nil {
		if !*p.Paused && (g.Stopped || p.StopAt != nil) {
			g.lifted = g.tooMany()
		}
		g.Paused, g.Stopped = *p.Paused, *p.Paused && g.Stopped
	}
	if p.StopAt != nil && p.Paused == nil && !m.expired(g) {
		g.stop()
	}
	if p.Level != nil {
		if g.Level, g.inside.level = *p.Level, p.Own; g.turn() != turn {
			g.flow = flow{}
		}
	}
	if p.Rate != nil {
		g.Rate = *p.Rate
		g.meter.Rerate(milli(g.Rate), tolerance(g.Rate, 0))
	}
	m.scored(g)
	return m.view(g), nil
}

func set[T any](to *T, v *T) {
	if v != nil {
		*to = *v
	}
}

// Cancel ends a group.
func (m *Model) Cancel(_ context.Context, id string) (store.Group, error) {
	g, err := m.find(id)
	switch {
	case err != nil:
		return store.Group{}, err
	case g.Status == store.Cancelled:
		return m.view(g), nil
	case g.Status.Ended():
		return store.Group{}, refuse(store.CodeState, "group %q is %s", id, g.Status)
	}
	m.move(g, store.Cancelled)
	g.FinishedAt = at(m.Now())
	for _, id := range slices.Sorted(maps.Keys(g.jobs)) {
		switch j := g.jobs[id]; j.state {
		case nonReady:
			m.unwait(j)
			m.cancelled(j)
		case pending, ready:
			m.cancelled(j)
		}
	}
	g.order, g.front = nil, nil
	m.ready = slices.DeleteFunc(m.ready, func(j *job) bool { return j.g == g })
	return m.view(g), nil
}

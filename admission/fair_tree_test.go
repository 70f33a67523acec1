package admission_test

import (
	"cmp"
	"maps"
	"slices"

	"github.com/anteroom/anteroom/admission/admissiontest"
)

// Fair is a model of lua/lib/fair.lua: start-time fair queuing over one set of flows. Tags and V are virtual times in units of
// FairUnit.
type Fair struct {
	V      int64            // the tag of the flow served last
	Active map[string]int64 // tags of the flows that have work
	Idle   map[string]int64 // last tags of flows without work, while they are ahead of V
}

// NewFair returns a queue without flows.
func NewFair() *Fair { return &Fair{Active: map[string]int64{}, Idle: map[string]int64{}} }

// Enter makes a flow active, at max(V, its last tag).
func (f *Fair) Enter(flow string) {
	tag := max(f.V, f.Idle[flow])
	delete(f.Idle, flow)
	if _, there := f.Active[flow]; !there {
		f.Active[flow] = tag
	}
}

// Leave makes a flow idle.
func (f *Fair) Leave(flow string) {
	tag, there := f.Active[flow]
	delete(f.Active, flow)
	if there && tag > f.V {
		f.Idle[flow] = tag
	}
}

// First returns the active flow with the smallest tag; ties go by name.
func (f *Fair) First() (flow string, ok bool) {
	for id, tag := range f.Active {
		if !ok || cmp.Or(cmp.Compare(tag, f.Active[flow]), cmp.Compare(id, flow)) < 0 {
			flow, ok = id, true
		}
	}
	return flow, ok
}

// Serve sets V to a flow's tag, and adds the charge of a cost to the tag. It returns the charge.
func (f *Fair) Serve(flow string, cost int64, weight float64) int64 {
	f.V = max(f.V, f.Active[flow])
	charge := admissiontest.FairCharge(cost, weight)
	f.Active[flow] += charge
	return charge
}

// Forget drops the last tags that are not ahead of V.
func (f *Fair) Forget() {
	maps.DeleteFunc(f.Idle, func(_ string, tag int64) bool { return tag <= f.V })
}

// FairGroup is one group of a FairTree. Weight is in thousandths.
type FairGroup struct {
	ID, Tenant string
	Level      int // 0 high, 1 normal, 2 low
	Weight     int64
	Costs      []int64 // of its remaining jobs, in order
	Total      int64   // of its jobs, for the boost; 0: not known yet
	Done       int64
	Gated      bool

	tag    int64
	queued bool
}

// FairTenant is a tenant of a FairTree.
type FairTenant struct {
	Weight int64 // thousandths
	Gated  bool

	v      [3]int64
	queued [3]int // of its groups, by level
}

// FairTree is the bulk engine's fair queue: three levels of tenants, and in each tenant its groups. A level multiplies the
// weights of its tenants; with Strict it goes before all lower levels. A group's weight counts among its tenant's groups, with its
// boost, and also among tenants for the jobs of that group.
type FairTree struct {
	Strict  bool
	Tenants map[string]*FairTenant
	Groups  map[string]*FairGroup

	levels [3]*Fair
	v      [3]int64
}

// Visit is one turn of a group: the jobs taken, and the charges of the tenant and the group.
type Visit struct {
	Level                     int
	Tenant, Group             string
	Jobs, Cost                int64
	TenantCharge, GroupCharge int64
}

// NewFairTree returns a queue without groups.
func NewFairTree(strict bool) *FairTree {
	t := &FairTree{Strict: strict, Tenants: map[string]*FairTenant{}, Groups: map[string]*FairGroup{}}
	for i := range t.levels {
		t.levels[i] = NewFair()
	}
	return t
}

// virtual returns the virtual time of a level: one for all levels unless they are strict.
func (t *FairTree) virtual(level int) *int64 {
	if t.Strict {
		return &t.v[level]
	}
	return &t.v[0]
}

func (t *FairTree) level(level int) *Fair {
	t.levels[level].V = *t.virtual(level)
	return t.levels[level]
}

// Tenant returns the tenant of that name. A new one has weight 1.
func (t *FairTree) Tenant(name string) *FairTenant {
	if t.Tenants[name] == nil {
		t.Tenants[name] = &FairTenant{Weight: 1000}
	}
	return t.Tenants[name]
}

// Place updates the place of a group from its fields. Call it for a new group and after every change of one.
func (t *FairTree) Place(g *FairGroup) {
	t.Groups[g.ID] = g
	tenant := t.Tenant(g.Tenant)
	want := len(g.Costs) > 0 && !g.Gated
	switch {
	case want && !g.queued:
		g.queued = true
		g.tag = max(g.tag, tenant.v[g.Level])
		if tenant.queued[g.Level]++; tenant.queued[g.Level] == 1 && !tenant.Gated {
			t.level(g.Level).Enter(g.Tenant)
		}
	case !want && g.queued:
		g.queued = false
		if tenant.queued[g.Level]--; tenant.queued[g.Level] == 0 && !tenant.Gated {
			t.level(g.Level).Leave(g.Tenant)
		}
	}
}

// Gate takes all groups of a tenant out of the queue, or puts them back.
func (t *FairTree) Gate(name string, gated bool) {
	tenant := t.Tenant(name)
	if tenant.Gated == gated {
		return
	}
	tenant.Gated = gated
	for level, n := range tenant.queued {
		switch {
		case n > 0 && gated:
			t.level(level).Leave(name)
		case n > 0:
			t.level(level).Enter(name)
		}
	}
}

// Waiting reports whether a tenant has a place in a level now.
func (t *FairTree) Waiting(level int, tenant string) bool {
	_, ok := t.levels[level].Active[tenant]
	return ok
}

// Flows returns the number of tenants with a place now, counted once in each level.
func (t *FairTree) Flows() (n int) {
	for _, f := range t.levels {
		n += len(f.Active)
	}
	return n
}

// first returns the group whose turn it is, with its level and tenant.
func (t *FairTree) first() (level int, tenant string, group *FairGroup) {
	level = -1
	for l, f := range t.levels {
		if name, ok := f.First(); ok && (level < 0 || f.Active[name] < t.levels[level].Active[tenant]) {
			level, tenant = l, name
		}
		if level >= 0 && t.Strict {
			break
		}
	}
	if level < 0 {
		return level, "", nil
	}
	for _, g := range t.Groups {
		if g.queued && g.Tenant == tenant && g.Level == level &&
			(group == nil || cmp.Or(cmp.Compare(g.tag, group.tag), cmp.Compare(g.ID, group.ID)) < 0) {
			group = g
		}
	}
	return level, tenant, group
}

// Visit takes up to n jobs of the group whose turn it is.
func (t *FairTree) Visit(n int) (visit Visit, ok bool) {
	level, name, g := t.first()
	if g == nil {
		return visit, false
	}
	n = min(n, len(g.Costs))
	visit = Visit{Level: level, Tenant: name, Group: g.ID, Jobs: int64(n)}
	for _, cost := range g.Costs[:n] {
		visit.Cost += cost
	}
	g.Costs = slices.Clone(g.Costs[n:])
	g.Done += int64(n)
	tenant, f := t.Tenants[name], t.level(level)
	visit.TenantCharge = f.Serve(name, visit.Cost, max(10, float64(tenant.Weight*g.Weight)/1000)*float64(admissiontest.FairLevels[level]))
	*t.virtual(level) = f.V
	tenant.v[level] = max(tenant.v[level], g.tag)
	visit.GroupCharge = admissiontest.FairCharge(visit.Cost, float64(g.Weight)*admissiontest.FairBoost(g.Total, g.Done))
	g.tag += visit.GroupCharge
	t.Place(g)
	return visit, true
}

// Pull takes up to want jobs, up to batch of them from a group before the next one's turn.
func (t *FairTree) Pull(want, batch int) (visits []Visit) {
	for want > 0 {
		visit, ok := t.Visit(min(want, batch))
		if !ok {
			break
		}
		want -= int(visit.Jobs)
		visits = append(visits, visit)
	}
	for level := range t.levels {
		t.level(level).Forget()
	}
	return visits
}

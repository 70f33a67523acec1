package bulktest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/bulk/store"
)

// Model is a store.Store for one goroutine: same calls, same answers, no Redis. What the store draws by chance (the jitter of
// a wait) is Chance's here. It keeps everything for ever.
type Model struct {
	S      store.Settings
	Now    func() int64   // µs
	Chance func() float64 // 0 ≤ x < 1
	// SharedCount is a fault that the figures of the published pipeline show: who refuses a job asks how many wait before others
	// have added theirs, so that so many checks in a row of a tenant see the same number. 0 and 1: none, as in the store.
	SharedCount int64

	groups  map[string]*group
	list    []*group // in the order in which they were made
	waits   waits
	tenants map[string]*tenant
	global  admission.Meter
	flows   []*flow // of tenants
	v       int64   // virtual time of the fair queue
	turn    int64
	fence   int64
	serial  int64
	ready   []*job
	hold    int64 // no lease ends before
}

type tenant struct {
	store.Tenant
	flows     map[store.Level]*flow
	all       *[]*flow // the model's
	meter     admission.Meter
	nonReady  int64
	finished  int64
	throttled float64 // mean throttles a finished job
	backoff   time.Duration
	open      int64 // jobs without an outcome
	counted   int64 // SharedCount: what the checks of this row see
	row       int64
}

type state int

const (
	pending state = iota
	ready
	nonReady
	inFlight
	succeeded
	failed
	dead
	cancelled
)

type job struct {
	store.Job
	g         *group
	state     state
	tries     int64 // failed
	crashes   int64
	throttles int64
	refused   int64 // since when it is refused, 0: it is not
	fence     int64
	due       int64 // nonReady: goes back then
	until     int64 // inFlight: the lease
}

// key names a job in the model.
func (j *job) key() string { return j.g.ID + "/" + j.ID }

type group struct {
	store.Group
	t        *tenant
	flow     flow
	jobs     map[string]*job
	order    []*job // pending, as they were submitted
	front    []*job // pending, given back, by id: these go first
	waits    int64
	runs     map[*job]bool
	outcomes []store.Outcome
	chunks   map[string]*chunk
	meter    admission.Meter
	gate     int64 // the downstream asked to wait until then
	score    int64
	reducer  int64
	cursor   int
	state    []byte
	redriven int
}

type chunk struct {
	accepted int64
	done     bool
	answer   []byte
}

// New is an empty model.
func New(s store.Settings, now func() int64, chance func() float64) *Model {
	m := &Model{S: s, Now: now, Chance: chance, groups: map[string]*group{}, tenants: map[string]*tenant{}}
	m.global = m.newMeter(s.Global, s.Burst)
	return m
}

func milli(rate float64) int64 { return int64(math.Round(rate * 1000)) }

func (m *Model) newMeter(rate, burst float64) admission.Meter {
	return admission.NewMeter(admission.Strategy(m.S.Limiter), milli(rate), m.burst(rate, burst))
}

func (m *Model) burst(rate, burst float64) int64 {
	if burst > 0 {
		return milli(burst)
	}
	return admission.DefaultBurst(milli(rate))
}

func refuse(code store.Code, format string, args ...any) error {
	return &store.Refusal{Code: code, Detail: fmt.Sprintf(format, args...)}
}

func at(us int64) time.Time { return time.UnixMicro(us).UTC() }

func (m *Model) tenant(name string) *tenant {
	t := m.tenants[name]
	if t == nil {
		t = &tenant{Tenant: store.Tenant{Name: name, Weight: 1}, flows: map[store.Level]*flow{}, all: &m.flows}
		m.tenants[name] = t
	}
	return t
}

func (m *Model) find(id string) (*group, error) {
	if g := m.groups[id]; g != nil {
		return g, nil
	}
	return nil, refuse(store.CodeNotFound, "no group %q", id)
}

// CreateGroup makes a group, as store.Store's.
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
	if g := m.groups[spec.ID]; g != nil {
		if g.GroupSpec != spec {
			return store.Group{}, false, refuse(store.CodeExists, "group %q is there with other content", spec.ID)
		}
		return m.view(g), false, nil
	}
	g := &group{
		Group: store.Group{GroupSpec: spec, Status: store.Created, CreatedAt: at(m.Now()), LastAddedAt: at(m.Now())},
		t:     m.tenant(spec.Tenant), jobs: map[string]*job{}, runs: map[*job]bool{}, chunks: map[string]*chunk{},
	}
	g.meter = m.newMeter(spec.Rate, 0)
	m.groups[spec.ID] = g
	m.list = append(m.list, g)
	return m.view(g), true, nil
}

// ChunkState looks a chunk up.
func (m *Model) ChunkState(_ context.Context, id, key string) (store.ChunkState, error) {
	g, err := m.find(id)
	if err != nil {
		return store.ChunkState{}, err
	}
	if c := g.chunks[key]; c != nil && c.done {
		return store.ChunkState{Done: true, Answer: c.answer}, nil
	}
	return store.ChunkState{}, nil
}

// AddJobs puts jobs into a group.
func (m *Model) AddJobs(_ context.Context, id string, c store.Chunk, jobs []store.Job) (store.Added, error) {
	g, err := m.find(id)
	if err != nil {
		return store.Added{}, err
	}
	fresh := int64(0)
	for _, j := range jobs {
		if g.jobs[j.ID] == nil {
			fresh++
		}
	}
	switch {
	case g.Sealed && fresh > 0 || g.Status.Ended():
		return store.Added{}, refuse(store.CodeSealed, "group %q is sealed", id)
	case m.S.PendingPerTenant > 0 && g.t.open+fresh > m.S.PendingPerTenant:
		return store.Added{}, refuse(store.CodeQuota, "tenant %q has %d jobs to do", g.Tenant, g.t.open)
	}
	now := m.Now()
	a := store.Added{Duplicate: make([]bool, len(jobs))}
	for i, in := range jobs {
		if g.jobs[in.ID] != nil {
			a.Duplicates++
			a.Duplicate[i] = true
			continue
		}
		a.Accepted++
		in.Cost = max(1, in.Cost)
		if in.Type == "" {
			in.Type = g.Type
		}
		j := &job{Job: in, g: g}
		g.jobs[in.ID] = j
		g.Total++
		g.t.open++
		if due := in.RunAt; !due.IsZero() && due.UnixMicro() > now {
			m.wait(j, due.UnixMicro())
			continue
		}
		g.order = append(g.order, j)
		m.enqueued(g)
	}
	if c.Key != "" {
		k := g.chunks[c.Key]
		if k == nil {
			k = &chunk{}
			g.chunks[c.Key] = k
		}
		if c.Offset == 0 {
			a.Before = k.accepted
		}
		k.accepted += a.Accepted
		if k.done = c.Last; c.Last {
			k.answer = c.Answer
		}
	}
	g.LastAddedAt = at(now)
	return a, nil
}

// Seal ends the submission.
func (m *Model) Seal(_ context.Context, id string) (store.Group, error) {
	g, err := m.find(id)
	switch {
	case err != nil:
		return store.Group{}, err
	case g.Sealed:
		return m.view(g), nil
	case g.Status.Ended():
		return store.Group{}, refuse(store.CodeState, "group %q is %s", id, g.Status)
	}
	for key, c := range g.chunks {
		if !c.done {
			return store.Group{}, refuse(store.CodeHalfIn, "chunk %q of group %q is half in", key, id)
		}
	}
	g.Sealed, g.SealedAt = true, at(m.Now())
	m.status(g, store.Dispatched)
	if !g.StartedAt.IsZero() {
		m.status(g, store.Running)
	}
	m.enqueued(g)
	m.settle(g)
	return m.view(g), nil
}

func (m *Model) status(g *group, s store.Status) { g.Status, g.Epoch = s, g.Epoch+1 }

// settle ends the running of a group whose jobs all have their outcomes.
func (m *Model) settle(g *group) {
	if (g.Status == store.Dispatched || g.Status == store.Running) && g.ended() == g.Total {
		m.status(g, store.Aggregating)
	}
}

func (g *group) ended() int64 { return g.Succeeded + g.Failed + g.Dead + g.Cancelled }

// Group reads a group.
func (m *Model) Group(_ context.Context, id string) (store.Group, error) {
	g, err := m.find(id)
	if err != nil {
		return store.Group{}, err
	}
	return m.view(g), nil
}

func (m *Model) view(g *group) store.Group {
	v := g.Group
	v.Pending, v.NonReady, v.InFlight = g.pending(), g.waits, int64(len(g.runs))
	for _, j := range m.ready {
		if j.g == g {
			v.Ready++
		}
	}
	if g.Status == store.Cancelled {
		v.Cancelled, v.Pending, v.Ready, v.NonReady = g.Total-g.Succeeded-g.Failed-g.Dead-v.InFlight, 0, 0, 0
	}
	v.Gated = g.gate > m.Now()
	return v
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
	m.refill(g)
	set(&g.Weight, p.Weight)
	set(&g.Concurrency, p.Concurrency)
	set(&g.Level, p.Level)
	set(&g.BasePriority, p.BasePriority)
	set(&g.Paused, p.Paused)
	if p.Rate != nil {
		g.Rate = *p.Rate
		g.meter.Rerate(milli(g.Rate), m.burst(g.Rate, 0))
	}
	m.enqueued(g)
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
	m.status(g, store.Cancelled)
	g.FinishedAt = at(m.Now())
	for _, id := range slices.Sorted(maps.Keys(g.jobs)) {
		switch j := g.jobs[id]; j.state {
		case nonReady:
			m.unwait(j)
			fallthrough
		case pending, ready:
			m.outcome(j, cancelled, "cancelled", nil, "", "")
		}
	}
	g.order, g.front = nil, nil
	m.ready = slices.DeleteFunc(m.ready, func(j *job) bool { return j.g == g })
	return m.view(g), nil
}

// SetLimits changes the rates live; the settings are the model's own, so there is nothing to go back to but them.
func (m *Model) SetLimits(_ context.Context, global, perTenant *float64) (store.Limits, error) {
	m.global.Refill(m.Now())
	set(&m.S.Global, global)
	set(&m.S.PerTenant, perTenant)
	m.global.Rerate(milli(m.S.Global), m.burst(m.S.Global, m.S.Burst))
	return store.Limits{Global: m.S.Global, PerTenant: m.S.PerTenant, Live: true}, nil
}

// SetTenant changes a tenant's weight and rate live.
func (m *Model) SetTenant(_ context.Context, in store.Tenant) (store.Tenant, error) {
	t := m.tenant(in.Name)
	if t.Weight = in.Weight; t.Weight == 0 {
		t.Weight = 1
	}
	t.Rate = in.Rate
	return t.Tenant, nil
}

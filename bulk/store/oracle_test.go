package store_test

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/admissiontest"
	"github.com/anteroom/anteroom/admission/limiter"
	"github.com/anteroom/anteroom/bulk/congestion"
	"github.com/anteroom/anteroom/bulk/store"
)

// Model is a store.Store for one goroutine: the same calls and answers, no Redis. It sweeps a cancelled group at once, keeps
// everything for ever, and has no bounds but those of the settings.
type Model struct {
	S   store.Settings
	Now func() int64 // µs
	// Chance is what the store draws by chance after the run with that fence was lost, 0 ≤ x < 1.
	Chance func(fence int64) float64
	// SharedCount is a fault that the figures of the published pipeline show: the number of waiting jobs is read before other refusals
	// are added to it, so that this many checks in a row of a tenant read the same number. 0 and 1: no fault, as in the store.
	SharedCount int64
	// Rerated is for runs in which rates change. The model does not know when a limiter of the store adopts a change, so Follow leaves
	// the limits to the test, which has the starts.
	Rerated bool
	// Pools is for runs in which some processes run some types only: which of a group's jobs is next depends on who has pulled
	// before, so Follow accepts any of the process's types.
	Pools bool

	groups  map[string]*group
	list    []*group // in the order in which they were made
	tenants map[string]*tenant
	runs    map[string]*job // in flight, by the name that Leased gave them
	waits   waits
	ready   []*job
	types   map[string]*typeLimit
	global  admissiontest.Meter
	flows   []*flow // of tenants
	v       int64   // virtual time of the fair queue
	turn    int64
	fence   int64
	serial  int64
	hold    int64 // no lease ends before
	beat    int64 // the last dispatch
	uneven  bool  // some job costs more than 1
}

type tenant struct {
	store.Tenant
	flows     map[store.Level]*flow
	meter     admissiontest.Meter
	refused   int64 // jobs that wait after a refusal, a failed try or a crash
	open      int64 // jobs without an outcome
	finished  int64
	throttles float64 // mean of the finished
	backoff   time.Duration
	counted   int64 // SharedCount: what the checks of this row see
	row       int64
	expect    int64 // as a group's
}

type state int

const (
	pending state = iota
	ready
	nonReady
	inFlight
	ended
)

type job struct {
	store.Job
	g         *group
	state     state
	tries     int64 // failed
	crashes   int64
	throttles int64
	refused   int64 // when it was refused first
	fence     int64
	until     int64 // in flight: the end of the lease
	due       int64 // not ready: goes back then
	since     int64 // in the front: when it was due, or came back
	scheduled bool  // not ready because of its run_at
	lease     string
	charge    int64 // µs, by time
	gone      bool  // ended, and its outcome is not kept
	short     bool  // gone as soon as its group has ended
	calledOff bool  // in flight: is to be cancelled
	marked    bool  // in flight: counts towards the concurrency of its type
	accepted  int64 // when it was added
	returned  bool  // at least once, from a run that did not count
}

type group struct {
	store.Group
	spec     store.GroupSpec // as it was made
	t        *tenant
	flow     flow
	jobs     map[string]*job
	order    []*job // pending, as they were submitted
	front    []*job // pending, given back, by since and id
	given    int    // of the front's turn, then of the others'
	waits    int64
	runs     map[*job]bool
	outcomes []store.Outcome
	chunks   map[string]*chunk
	meter    admissiontest.Meter
	gate     int64 // the downstream asked to wait until then
	score    int64
	reducer  int64
	cursor   string
	sum      []byte
	finished bool // has its result
	redriven map[string]bool
	root     string // the group that its jobs were submitted to
	inside   inside
	expect   int64 // µs that a run takes, lately
	redrives int
	cleared  int      // of outcomes, those that were kept or went
	lifted   bool     // resumed beyond StopAt
	deleted  bool     // goes with its next housekeeping
	before   []*group // predecessors
	swept    bool     // cancelled, and none of its jobs runs any more
	held     bool     // until it is decided whether it starts
}

// inside marks what of a group a tenant's token has set: that counts inside the tenant only.
type inside struct{ level, weight, base bool }

// turn is the level at which the group stands among tenants.
func (g *group) turn() store.Level {
	if g.inside.level {
		return store.Normal
	}
	return g.Level
}

type chunk struct {
	accepted int64
	done     bool
	answer   []byte
}

// newModel returns an empty model.
func newModel(s store.Settings, now func() int64, chance func(fence int64) float64) *Model {
	m := &Model{S: s, Now: now, Chance: chance, groups: map[string]*group{}, tenants: map[string]*tenant{}, runs: map[string]*job{}}
	m.global = m.meter(s.Global, s.Burst)
	m.types = map[string]*typeLimit{}
	for kind, l := range s.Types {
		m.SetType(kind, l)
	}
	return m
}

func milli(rate float64) int64 { return int64(math.Round(rate * 1000)) }

func (m *Model) meter(rate, burst float64) admissiontest.Meter {
	meter := admissiontest.NewMeter(admission.Strategy(m.S.Limiter), milli(rate), tolerance(rate, burst))
	if w, is := meter.(*limiter.FixedWindow); is {
		w.Window = m.S.Window.Microseconds()
	}
	return meter
}

func tolerance(rate, burst float64) int64 {
	if burst > 0 {
		return milli(burst)
	}
	return admissiontest.DefaultBurst(milli(rate))
}

func refuse(code store.Code, format string, args ...any) error {
	return &store.Refusal{Code: code, Detail: fmt.Sprintf(format, args...)}
}

func at(us int64) time.Time { return time.UnixMicro(us).UTC() }

func (m *Model) tenant(name string) *tenant {
	t := m.tenants[name]
	if t == nil {
		t = &tenant{Tenant: store.Tenant{Name: name, Weight: 1}, flows: map[store.Level]*flow{}}
		for _, l := range levels {
			t.flows[l] = &flow{}
			m.flows = append(m.flows, t.flows[l])
		}
		m.tenants[name] = t
	}
	return t
}

// find returns a group that is not being deleted.
func (m *Model) find(id string) (*group, error) {
	if g := m.groups[id]; g != nil && !g.deleted {
		return g, nil
	}
	return nil, refuse(store.CodeNotFound, "no group %q", id)
}

// ended counts the outcomes.
func (g *group) ended() int64 { return g.Succeeded + g.Failed + g.Dead + g.Cancelled }

func (g *group) pending() int64 { return int64(len(g.front) + len(g.order)) }

// head is the job of the group that goes next.
func (g *group) head() *job {
	if g.fronts() {
		return g.front[0]
	}
	return g.order[0]
}

// While a group has both, turnFront jobs that came back go and then turnOrder of the others.
const turnFront, turnOrder = 48, 16

func (g *group) fronts() bool {
	return len(g.front) > 0 && (len(g.order) == 0 || g.given < turnFront)
}

// remove takes a pending job out of its group, wherever it stands.
func (g *group) remove(j *job) {
	other := func(o *job) bool { return o == j }
	if slices.Contains(g.front, j) {
		if g.front = slices.DeleteFunc(g.front, other); len(g.order) > 0 {
			g.given++
		}
		return
	}
	g.order = slices.DeleteFunc(g.order, other)
	if g.given++; len(g.front) == 0 || g.given >= turnFront+turnOrder {
		g.given = 0
	}
}

func (g *group) pop() *job {
	j := g.head()
	g.remove(j)
	return j
}

// view is the group as the store shows it.
func (m *Model) view(g *group) store.Group {
	v := g.Group
	v.Pending, v.NonReady, v.InFlight = g.pending(), g.waits, int64(len(g.runs))
	for _, j := range m.ready {
		if j.g == g {
			v.Ready++
		}
	}
	return v
}

// Tenant returns a tenant's state of congestion.
func (m *Model) Tenant(name string) store.Congestion {
	t := m.tenant(name)
	c := store.Congestion{Tenant: name, NonReady: t.refused, Rate: m.tenantRate(t), AvgThrottles: t.throttles, Finished: t.finished}
	if t.refused > 0 {
		c.Backoff = t.backoff
	}
	c.InFlight, c.Concurrency = m.inFlight(t), t.Concurrency
	c.Pending = t.open - c.NonReady - c.InFlight
	c.Level = congestion.Level(c.Backoff, m.S.BaseBackoff)
	c.Estimate = congestion.Estimate(c.NonReady, c.Rate)
	return c
}

func (m *Model) inFlight(t *tenant) (n int64) {
	for _, j := range m.runs {
		if j.g.t == t {
			n++
		}
	}
	return n
}

// SetLimits changes the rates live.
func (m *Model) SetLimits(global, perTenant float64) {
	m.S.Global, m.S.PerTenant = global, perTenant
	m.global.Rerate(milli(global), tolerance(global, m.S.Burst))
}

// SetTenant changes a tenant's weight and rate live.
func (m *Model) SetTenant(in store.Tenant) {
	t := m.tenant(in.Name)
	t.Weight, t.Rate, t.Concurrency = in.Weight, in.Rate, in.Concurrency
	m.forget(t)
}

// forget drops a tenant that has neither groups nor settings.
func (m *Model) forget(t *tenant) {
	if t.Groups > 0 || t.Weight != 1 || t.Rate != 0 || t.Concurrency != 0 {
		return
	}
	delete(m.tenants, t.Name)
	for _, f := range t.flows {
		m.flows = slices.DeleteFunc(m.flows, func(other *flow) bool { return other == f })
	}
}

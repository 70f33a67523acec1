package bulk

import (
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/bulk/schedule"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/refusal"
)

const namespace = "bulk_action"

// otherType is the label of jobs without a handler or policy: submitters choose types freely.
const otherType = "other"

// Metrics are the bulk worker's metrics, see docs/metrics.md. Labels come from the configuration or from fixed sets.
type Metrics struct {
	enqueued, dequeued                prometheus.Counter
	fetched, emptyPolls               prometheus.Counter
	admitted                          map[string]prometheus.Counter
	moved, skipped, recovered, woken  prometheus.Counter
	dispatchDead, deadExpired, silent prometheus.Counter
	leasesLost, reduced, reduceErrors prometheus.Counter
	uncertain                         prometheus.Counter
	abandoned                         prometheus.Gauge
	storeUp                           prometheus.Gauge
	storeFull                         prometheus.Counter
	storeRefused                      map[string]prometheus.Counter // writes, by reason
	storeSeconds                      *prometheus.HistogramVec
	storeErrors                       *prometheus.CounterVec
	jobSeconds, queueSeconds          *prometheus.HistogramVec
	waits                             prometheus.Histogram
	jobs                              *prometheus.CounterVec
	jobTimeouts, jobPanics            *prometheus.CounterVec
	groups, callbacks, schedules      *prometheus.CounterVec
	// Leases are set by package remote.
	Leases LeaseMetrics
	types  atomic.Pointer[map[string]*typeMetrics] // of types with a handler or a policy, and of otherType

	collectors []prometheus.Collector

	mu    sync.Mutex
	last  map[int]shardDepths // by shard
	down  map[int]bool        // shards that do not reply
	steer *steered            // nil: the rate is as configured
	pool  *pool
}

// LeaseMetrics are the metrics of requests for jobs by workers outside the process, see package remote.
type LeaseMetrics struct {
	Waiting, Most prometheus.Gauge
	Refused       prometheus.Counter
}

// typeMetrics are the metrics of one job type.
type typeMetrics struct {
	seconds          prometheus.Observer
	waited           map[store.Level]prometheus.Observer
	states           map[store.AckState]prometheus.Counter
	timeouts, panics prometheus.Counter
}

// ackLabels are the labels of the outcomes of runs.
var ackLabels = map[store.AckState]string{
	store.AckDone: "success", store.AckFailed: "failed", store.AckRetry: "retry", store.AckThrottled: "throttled",
	store.AckReturned: "returned", store.AckDead: "dead", store.AckCancelled: "cancelled", store.AckStale: "stale",
}

// NewMetrics returns metrics, registered unless reg is nil.
func NewMetrics(reg prometheus.Registerer, version string) *Metrics {
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
		all = append(all, c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
		all = append(all, g)
		return g
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
		all = append(all, c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
		all = append(all, h)
		return h
	}
	m := &Metrics{
		last: map[int]shardDepths{}, down: map[int]bool{},
		enqueued:     counter("enqueued_total", "Jobs accepted."),
		dequeued:     counter("dequeued_total", "Jobs leased to start."),
		fetched:      counter("fetched_total", "Jobs taken out of the fair queue."),
		emptyPolls:   counter("fetch_empty_total", "Pulls that returned no job."),
		admitted:     map[string]prometheus.Counter{},
		moved:        counter("dispatch_moved_total", "Due jobs returned to the front of their group."),
		skipped:      counter("dispatch_skipped_total", "Due jobs that could not be returned to their group yet."),
		recovered:    counter("dispatch_recovered_total", "Jobs whose lease had ended, returned to their group."),
		dispatchDead: counter("dispatch_dead_total", "Jobs that became dead letters after too many crashes or too long a wait."),
		woken:        counter("dispatch_woken_total", "Gates that opened."),
		silent:       counter("groups_sealed_total", "Groups sealed after unsealed_after without a new job or outcome."),
		deadExpired:  counter("dead_expired_total", "Dead letters dropped after retention.dead."),
		leasesLost:   counter("leases_lost_total", "Leases that this process lost while their job ran."),
		reduced:      counter("reduced_total", "Outcomes that a reducer added to the aggregate of their group; groups with count or concat need no reducer."),
		reduceErrors: counter("reduce_errors_total", "Failures of reducers."),
		uncertain:    counter("acks_uncertain_total", "Repeated acks of runs that had ended already."),
		abandoned:    gauge("handlers_abandoned", "Abandoned handlers that have not returned yet."),
		storeUp:      gauge("store_up", "1 while the store replies."),
		storeFull:    counter("store_full_total", "Calls that the store refused because its memory is full."),
		storeSeconds: histogram("store_script_seconds", "Duration of calls to the store.",
			[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}, "script"),
		storeErrors: counters("store_errors_total", "Calls to the store that failed.", "script"),
		jobSeconds: histogram("job_seconds", "Run time of handlers.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}, "type"),
		queueSeconds: histogram("queue_seconds", "Time from the acceptance of a job until it is leased for its first run.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}, "level", "type"),
		jobs:        counters("job_runs_total", "Runs of jobs by outcome.", "type", "verdict"),
		jobTimeouts: counters("job_timeouts_total", "Runs that took longer than worker.job_timeout.", "type"),
		jobPanics:   counters("job_panics_total", "Runs in which the handler panicked.", "type"),
		groups:      counters("groups_ended_total", "Groups that completed or failed.", "status"),
		callbacks:   counters("callbacks_total", "Attempts of callbacks by outcome.", "verdict"),
		schedules:   counters("schedule_runs_total", "Runs of schedules by what became of them.", "verdict"),
	}
	admitted := counters("fetch_admitted_total", "Fetched jobs by how they were admitted.", "verdict")
	for _, v := range []string{"ready", "non_ready", "rejected"} {
		m.admitted[v] = admitted.WithLabelValues(v)
	}
	refusedWrites := counters("store_refused_writes_total", "Calls that the store refused because it accepts no writes.", "reason")
	m.storeRefused = map[string]prometheus.Counter{}
	for _, reason := range refusal.Reasons() {
		m.storeRefused[reason] = refusedWrites.WithLabelValues(reason)
	}
	for _, s := range []store.Status{store.Completed, store.Failed} {
		m.groups.WithLabelValues(statusLabel(s))
	}
	for _, v := range []string{"done", "retry", "failed"} {
		m.callbacks.WithLabelValues(v)
	}
	m.scheduled(schedule.Counts{})
	m.Leases = LeaseMetrics{
		Waiting: gauge("leases_waiting", "Requests of workers that wait for jobs."),
		Most:    gauge("leases_waiting_limit", "Most requests of workers that may wait for jobs."),
		Refused: counter("leases_refused_total", "Requests of workers that were refused because too many waited for jobs."),
	}
	m.waits = prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "refused_wait_seconds",
		Help: "Time that refused jobs had to wait.", Buckets: []float64{.1, .5, 1, 2, 5, 10, 30, 60, 120, 300, 900, 3600}})
	all = append(all, m.waits)
	m.know(nil)
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "build_info", Help: "1, with the version."},
		[]string{"version", "go"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.collectors = append(all, build, newDepthsCollector(m))
	if reg != nil {
		reg.MustRegister(m.collectors...)
	}
	return m
}

func (m *Metrics) newType(name string) *typeMetrics {
	t := &typeMetrics{seconds: m.jobSeconds.WithLabelValues(name), waited: map[store.Level]prometheus.Observer{}, states: map[store.AckState]prometheus.Counter{},
		timeouts: m.jobTimeouts.WithLabelValues(name), panics: m.jobPanics.WithLabelValues(name)}
	for _, level := range []store.Level{store.High, store.Normal, store.Low} {
		t.waited[level] = m.queueSeconds.WithLabelValues(string(level), name)
	}
	for s, label := range ackLabels {
		t.states[s] = m.jobs.WithLabelValues(name, label)
	}
	return t
}

// know adds types with a handler or a policy.
func (m *Metrics) know(types []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]*typeMetrics{otherType: m.newType(otherType)}
	if known := m.types.Load(); known != nil {
		maps.Copy(all, *known)
	}
	for _, t := range types {
		all[t] = m.newType(t)
	}
	m.types.Store(&all)
}

// of returns a type's metrics.
func (m *Metrics) of(jobType string) *typeMetrics {
	types := *m.types.Load()
	if t := types[jobType]; t != nil {
		return t
	}
	return types[otherType]
}

// ObserveStore records a call of the store. It fits store.Options.Observe.
func (m *Metrics) ObserveStore(script string, took time.Duration, err error) {
	m.storeSeconds.WithLabelValues(script).Observe(took.Seconds())
	errs := m.storeErrors.WithLabelValues(script) // exists before the first error
	if err != nil {
		errs.Inc()
	}
	if store.IsFull(err) {
		m.storeFull.Inc()
	}
	if why, refused := refusal.Of(err); refused {
		m.storeRefused[why.Reason].Inc()
	}
}

// Refused records the wait of a refused job. It fits store.Options.Refused.
func (m *Metrics) Refused(wait time.Duration) { m.waits.Observe(wait.Seconds()) }

// Concluded counts groups that have ended in the store. It fits store.Options.Concluded.
func (m *Metrics) Concluded(s store.Status, n int64) {
	m.groups.WithLabelValues(statusLabel(s)).Add(float64(n))
}

// Enqueued counts jobs that the store accepted.
func (m *Metrics) Enqueued(jobs int64) { m.enqueued.Add(float64(jobs)) }

func (m *Metrics) pulled(p store.Pulled) {
	m.dequeued.Add(float64(len(p.Jobs)))
	m.fetched.Add(float64(p.Fetched))
	if len(p.Jobs) == 0 {
		m.emptyPolls.Inc()
	}
	for i := range p.Jobs {
		if j := &p.Jobs[i]; j.Waited >= 0 {
			if o := m.of(j.Type).waited[j.Level]; o != nil {
				o.Observe(j.Waited.Seconds())
			}
		}
	}
	m.admitted["ready"].Add(float64(p.ToReady))
	m.admitted["non_ready"].Add(float64(p.ToNonReady))
	m.admitted["rejected"].Add(float64(p.Dropped))
}

// ran records the end of a handler. The outcome of the run is recorded with its ack.
// ran counts a run. trace is the id of its trace, which becomes the exemplar of its time; empty: none.
func (m *Metrics) ran(jobType string, a *store.Ack, trace string) {
	t := m.of(jobType)
	if e, ok := t.seconds.(prometheus.ExemplarObserver); ok && trace != "" {
		e.ObserveWithExemplar(a.Took.Seconds(), prometheus.Labels{"trace_id": trace})
	} else {
		t.seconds.Observe(a.Took.Seconds())
	}
	if a.Code == "timeout" {
		t.timeouts.Inc()
	}
}

func (m *Metrics) acked(jobType string, s store.AckState) {
	if c := m.of(jobType).states[s]; c != nil {
		c.Inc()
	}
}

func (m *Metrics) dispatched(d store.Dispatch) {
	m.moved.Add(float64(d.Moved))
	m.skipped.Add(float64(d.Skipped))
	m.recovered.Add(float64(d.Recovered))
	m.dispatchDead.Add(float64(d.Dead))
	m.woken.Add(float64(d.Woken))
}

// scheduled counts runs of schedules.
func (m *Metrics) scheduled(did schedule.Counts) {
	for verdict, n := range map[string]int64{"started": did.Started, "skipped": did.Skipped, "missed": did.Missed, "failed": did.Failed} {
		m.schedules.WithLabelValues(verdict).Add(float64(n))
	}
}

func statusLabel(s store.Status) string {
	if s == store.Failed {
		return "failed"
	}
	return "completed"
}

func (m *Metrics) callback(verdict string) { m.callbacks.WithLabelValues(verdict).Inc() }

// up records whether a shard replies. The store is up while all do.
func (m *Metrics) up(shard int, up bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down[shard] = !up
	v := 1.0
	for _, down := range m.down {
		if down {
			v = 0
		}
	}
	m.storeUp.Set(v)
}

// shardDepths are the counts of a shard and when they were read.
type shardDepths struct {
	store.Depths
	at time.Time
}

func (m *Metrics) depths(shard int, d store.Depths, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[shard] = shardDepths{d, now}
}

// steered is the state of rate control.
type steered struct {
	jobs   adaptive.Health
	people admission.OriginHealth
	found  int64
	leader bool
	pinned bool
}

func (m *Metrics) steered(s *steered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steer = s
}

func (m *Metrics) attach(p *pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pool = p
}

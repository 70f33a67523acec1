package gateway

import (
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/token"
)

// outcome is what became of a request, for the metrics and the access log.
type outcome uint8

const (
	proxied outcome = iota // with a pass, or where no room holds it up
	letIn                  // it got its session by this request
	waiting                // it has to wait, or asks how long
	bypassed
	refused // bad request, no such room, closed
	failed  // the gateway or something behind it is broken
	outcomes
)

var outcomeNames = [outcomes]string{"proxied", "let_in", "waiting", "bypass", "refused", "error"}

// rangeNames are the labels of forecast.Range.
var rangeNames = [3]string{forecast.Below: "below", forecast.Within: "within", forecast.Above: "above"}

// Metrics are the request path's. Names and labels are those of docs/metrics.md.
type Metrics struct {
	requests       *prometheus.CounterVec
	requestSeconds *prometheus.HistogramVec
	upstream       *prometheus.HistogramVec
	upstreamErrors *prometheus.CounterVec
	waitSeconds    *prometheus.HistogramVec
	etaError       *prometheus.HistogramVec
	ranges         *prometheus.CounterVec
	joinsRefused   *prometheus.CounterVec
	challenges     *prometheus.CounterVec
	proofs         *prometheus.CounterVec
	captcha        *prometheus.CounterVec
	rejected       map[string]prometheus.Counter
	storeSeconds   *prometheus.HistogramVec
	storeErrors    *prometheus.CounterVec
	overQuota      *prometheus.CounterVec
	streams        prometheus.Gauge
	streamsLimit   prometheus.Gauge
	streamsRefused prometheus.Counter
	accounts       map[string]prometheus.Counter // refused JWTs, by reason
	keyFetches     map[bool]prometheus.Counter
	panics         prometheus.Counter
	acceptErrors   prometheus.Counter
	prefaces       map[string]prometheus.Counter // refused, by reason
	none           *roomMetrics                  // of requests outside all rooms

	mu    sync.Mutex
	rooms map[string]*roomMetrics
}

// roomMetrics are a room's, resolved once.
type roomMetrics struct {
	requests  [outcomes]prometheus.Counter
	seconds   [outcomes]prometheus.Observer
	wait      prometheus.Observer
	etaError  prometheus.Observer
	ranges    [3]prometheus.Counter         // by forecast.Range
	refused   map[string]prometheus.Counter // joins, by reason
	overQuota prometheus.Counter            // requests of sessions beyond SessionRequests

	challenges prometheus.Counter
	proofs     map[string]prometheus.Counter // by outcome
	captcha    map[string]prometheus.Counter // by outcome
}

// originMetrics are an origin's, resolved once.
type originMetrics struct {
	seconds prometheus.Observer
	errors  map[string]prometheus.Counter
}

const namespace = "anteroom"

// NewMetrics makes the metrics and registers them, if reg is not nil.
func NewMetrics(reg prometheus.Registerer, version string) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	}
	fast := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	m := &Metrics{
		requests:       counter("requests_total", "Requests by room and outcome.", "room", "outcome"),
		requestSeconds: histogram("request_seconds", "Time from a request's header to the end of its answer.", fast, "room", "outcome"),
		upstream:       histogram("upstream_seconds", "Time from sending a request to the first byte of the origin's answer.", fast, "origin"),
		upstreamErrors: counter("upstream_errors_total", "Requests that an origin did not answer properly.", "origin", "kind"),
		waitSeconds: histogram("wait_seconds", "Real waits, from joining to being let in.",
			[]float64{1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400}, "room"),
		etaError: histogram("eta_error_ratio", "Promised wait over real wait, of waits of a second or more.",
			[]float64{.1, .25, .5, .75, .9, .95, 1, 1.05, 1.1, 1.25, 1.5, 2, 4, 10}, "room"),
		ranges: counter("eta_promises_total", "Waits of a second or more, by where they lay in the range that was promised on joining.", "room", "wait"),
		storeSeconds: histogram("store_command_seconds", "Time of calls to the store.",
			[]float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}, "script"),
		joinsRefused:   counter("joins_refused_total", "Joins that were given no place.", "room", "reason"),
		challenges:     counter("proof_challenges_total", "Challenges given.", "room"),
		proofs:         counter("proofs_total", "Proofs of work that came with joins.", "room", "outcome"),
		captcha:        counter("captcha_total", "CAPTCHA answers that came with joins.", "room", "outcome"),
		storeErrors:    counter("store_errors_total", "Calls to the store that failed.", "script"),
		streams:        prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "event_streams", Help: "Event streams that are open."}),
		streamsLimit:   prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "event_streams_limit", Help: "Event streams that may be open at once."}),
		streamsRefused: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "event_streams_refused_total", Help: "Event streams refused over the limit."}),
		panics:         prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "panics_total", Help: "Requests that ended in a fault of the program."}),
		acceptErrors:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "accept_errors_total", Help: "Times that no connection could be accepted, as when file descriptors run out."}),
		prefaces:       map[string]prometheus.Counter{},
		rejected:       map[string]prometheus.Counter{},
		accounts:       map[string]prometheus.Counter{},
		rooms:          map[string]*roomMetrics{},
	}
	rejected := counter("tokens_rejected_total", "Tokens that did not verify.", "reason")
	for _, reason := range append([]string{"bind"}, token.Reasons...) {
		m.rejected[reason] = rejected.WithLabelValues(reason)
	}
	m.overQuota = counter("session_requests_refused_total", "Requests of sessions beyond guard.requests_per_session.", "room")
	accounts := counter("accounts_rejected_total", "JWTs of the site that name no account.", "reason")
	for _, reason := range append([]string{"no_keys", "forger"}, token.Reasons...) {
		m.accounts[reason] = accounts.WithLabelValues(reason)
	}
	fetches := counter("account_keys_fetches_total", "Fetches of a jwks_url.", "result")
	m.keyFetches = map[bool]prometheus.Counter{true: fetches.WithLabelValues("ok"), false: fetches.WithLabelValues("failed")}
	prefaces := counter("proxy_protocol_errors_total", "Connections closed for their PROXY header.", "reason")
	for _, reason := range wire.ProxyHeaderErrors() {
		m.prefaces[reason] = prefaces.WithLabelValues(reason)
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "build_info", Help: "1, with the version."},
		[]string{"version", "go"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.none = m.newRoom("")
	if reg != nil {
		reg.MustRegister(m.requests, m.requestSeconds, m.upstream, m.upstreamErrors, m.waitSeconds, m.etaError, m.ranges, m.joinsRefused, m.challenges, m.proofs, m.captcha,
			m.overQuota, m.storeSeconds, m.storeErrors, m.streams, m.streamsLimit, m.streamsRefused, m.panics, m.acceptErrors, prefaces,
			rejected, accounts, fetches, build)
	}
	return m
}

// room returns the metrics of a room.
func (m *Metrics) room(id string) *roomMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rooms[id]
	if r == nil {
		r = m.newRoom(id)
		m.rooms[id] = r
	}
	return r
}

func (m *Metrics) newRoom(id string) *roomMetrics {
	r := &roomMetrics{overQuota: m.overQuota.WithLabelValues(id), wait: m.waitSeconds.WithLabelValues(id), etaError: m.etaError.WithLabelValues(id)}
	for i, name := range rangeNames {
		r.ranges[i] = m.ranges.WithLabelValues(id, name)
	}
	r.refused = make(map[string]prometheus.Counter, len(refusals))
	for _, reason := range refusals {
		r.refused[reason] = m.joinsRefused.WithLabelValues(id, reason)
	}
	r.challenges, r.proofs, r.captcha = m.challenges.WithLabelValues(id), map[string]prometheus.Counter{}, map[string]prometheus.Counter{}
	for _, outcome := range proofOutcomes {
		r.proofs[outcome] = m.proofs.WithLabelValues(id, outcome)
	}
	for _, outcome := range captchaOutcomes {
		r.captcha[outcome] = m.captcha.WithLabelValues(id, outcome)
	}
	for i, name := range outcomeNames {
		r.requests[i] = m.requests.WithLabelValues(id, name)
		r.seconds[i] = m.requestSeconds.WithLabelValues(id, name)
	}
	return r
}

func (m *Metrics) origin(id string) originMetrics {
	o := originMetrics{seconds: m.upstream.WithLabelValues(id), errors: map[string]prometheus.Counter{}}
	for _, kind := range proxy.Kinds() {
		o.errors[kind] = m.upstreamErrors.WithLabelValues(id, kind)
	}
	return o
}

func (m *Metrics) reject(reason string) { m.rejected[reason].Inc() }

func (m *Metrics) rejectAccount(reason string) { m.accounts[reason].Inc() }

func (m *Metrics) fetchedKeys(ok bool) { m.keyFetches[ok].Inc() }

// ObserveStore observes a call to the store; it is meant for admission.Options.Observe.
func (m *Metrics) ObserveStore(script string, took time.Duration, err error) {
	m.storeSeconds.WithLabelValues(script).Observe(took.Seconds())
	errs := m.storeErrors.WithLabelValues(script) // there, and 0, before the first error
	if err != nil {
		errs.Inc()
	}
}

// collector reads the rooms' figures from their snapshots when they are asked for.
type collector struct {
	g                                                        *Gateway
	waiting, parked, active, admitted, rate, limit, age, up  *prometheus.Desc
	joins, admissions, claims, lapsed, abandoned, gatewaysIn *prometheus.Desc
	gathered, conflict                                       *prometheus.Desc
	target, adaptiveP95, adaptiveErrors, adaptiveHealth      *prometheus.Desc
	adaptiveAtMin                                            *prometheus.Desc
	coverage, fallback                                       *prometheus.Desc

	serverUp, conns, connsLimit, queued, queuedLimit *prometheus.Desc

	budgetRate, budgetSpare, budgetGranted, budgetShort, budgetLines *prometheus.Desc
	number                                                           *prometheus.Desc
}

func newCollector(g *Gateway) *collector {
	d := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_"+name, help, []string{"room"}, nil)
	}
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_upstream_"+name, help, append([]string{"origin"}, labels...), nil)
	}
	budget := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_origin_budget_"+name, help, []string{"origin"}, nil)
	}
	return &collector{
		budgetRate:    budget("rate", "Admissions a second that all rooms of the origin may make together."),
		budgetSpare:   budget("spare", "Visitors that rooms of the origin could be granted at this moment."),
		budgetGranted: budget("granted_total", "Admissions granted to rooms of the origin, since the store began."),
		budgetShort:   budget("short_total", "Times that a room was granted less than its line could have used, since the store began."),
		budgetLines:   budget("rooms_waiting", "Rooms of the origin that have a line."),

		serverUp:    of("server_up", "1 while the server is among those that are chosen.", "server"),
		conns:       of("connections", "Connections to a server.", "server", "state"),
		connsLimit:  of("connections_limit", "Connections in use that an origin may have at once."),
		queued:      of("queue", "Requests that wait for a connection to the origin."),
		queuedLimit: of("queue_limit", "Requests that may wait at once."),
		g:           g,
		waiting:     d("waiting", "People in line."),
		parked:      d("parked", "Places whose holders were not heard of when their turn neared."),
		active:      d("active", "Sessions."),
		gathered:    d("gathered", "Tickets that were confirmed before the opening of the newest lottery."),
		conflict:    d("draw_conflict", "1 while another gateway draws the room's lottery by another secret."),
		admitted:    d("admitted_unclaimed", "Tickets that were let in and not claimed yet."),
		rate:        d("rate", "Admissions per second over the last ten seconds."),
		limit:       d("rate_limit", "Admissions per second that the room allows."),
		target:      d("rate_target", "Admissions per second that the controller of an adaptive room has come to."),

		adaptiveP95:    d("adaptive_latency_seconds", "The origin's time to first byte that an adaptive room goes by."),
		adaptiveErrors: d("adaptive_error_ratio", "The origin's share of failed requests that an adaptive room goes by."),
		adaptiveAtMin:  d("adaptive_at_min_seconds", "For how long the rate of an adaptive room has been at min_rate and its origin no better for it."),
		adaptiveHealth: d("adaptive_health", "What an adaptive room makes of it: 1 healthy, 0.5 strained, 0 unhealthy; absent while it cannot tell."),
		age:            d("snapshot_age_seconds", "Age of what this gateway knows of the room."),
		joins:          d("joins_total", "Places taken, those let in at once included, since the store began."),
		admissions:     d("admissions_total", "Visitors let in, those let in at once included, since the store began."),
		claims:         d("claims_total", "Admissions claimed, since the store began."),
		lapsed:         d("lapsed_total", "Admissions not claimed in time, since the store began."),
		abandoned:      d("abandoned_total", "Places given up or lost by absence, since the store began."),
		gatewaysIn:     d("gateways", "Gateways that serve the room."),
		number:         d("proof_number", "Tries that a proof of work takes at most; 0 while none is asked for."),
		coverage:       d("eta_coverage", "Share of the last 1024 ranges, of places followed through the line, that held."),
		fallback:       prometheus.NewDesc(namespace+"_eta_fallback", "1 while the model is not used for estimates, for that reason.", []string{"room", "reason"}, nil),
		up:             prometheus.NewDesc(namespace+"_store_up", "1 while the store answers.", nil, nil),
	}
}

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.waiting, c.gathered, c.conflict, c.parked, c.active, c.admitted, c.rate, c.limit, c.age, c.joins,
		c.admissions, c.claims, c.lapsed, c.abandoned, c.gatewaysIn, c.number, c.target, c.adaptiveP95, c.adaptiveErrors, c.adaptiveHealth, c.adaptiveAtMin, c.coverage, c.fallback, c.up, c.serverUp, c.conns, c.connsLimit, c.queued,
		c.queuedLimit, c.budgetRate, c.budgetSpare, c.budgetGranted, c.budgetShort, c.budgetLines} {
		out <- d
	}
}

func (c *collector) collectOrigin(out chan<- prometheus.Metric, id string, s proxy.Stats) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), append([]string{id}, labels...)...)
	}
	gauge(c.connsLimit, s.MaxConns)
	gauge(c.queued, s.Waiting)
	gauge(c.queuedLimit, s.MaxWaiting)
	for _, server := range s.Servers {
		up := 0
		if server.Up {
			up = 1
		}
		gauge(c.serverUp, up, server.Server)
		gauge(c.conns, server.InUse, server.Server, "in_use")
		gauge(c.conns, server.Idle, server.Server, "idle")
	}
}

func (c *collector) collectEstimates(out chan<- prometheus.Metric, r *room) {
	held, all, why := r.forecaster.Model()
	if all > 0 {
		out <- prometheus.MustNewConstMetric(c.coverage, prometheus.GaugeValue, float64(held)/float64(all), r.id)
	}
	if r.options.Estimator != "model" {
		return
	}
	for _, reason := range eta.Fallbacks() {
		on := 0.0
		if reason == why {
			on = 1
		}
		out <- prometheus.MustNewConstMetric(c.fallback, prometheus.GaugeValue, on, r.id, reason)
	}
}

// collectBudget shows what the store last said of an origin's budget.
func (c *collector) collectBudget(out chan<- prometheus.Metric, origin string, u admission.BudgetUse) {
	put := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		out <- prometheus.MustNewConstMetric(d, kind, v, origin)
	}
	put(c.budgetRate, prometheus.GaugeValue, float64(u.Rate)/1000)
	put(c.budgetSpare, prometheus.GaugeValue, float64(u.Spare))
	put(c.budgetGranted, prometheus.CounterValue, float64(u.Granted))
	put(c.budgetShort, prometheus.CounterValue, float64(u.Short))
	put(c.budgetLines, prometheus.GaugeValue, float64(u.Lines))
}

func (c *collector) collectAdaptive(gauge func(*prometheus.Desc, float64), r *room, s *admission.Snapshot) {
	at := r.queue.Steering()
	if at == nil {
		return
	}
	if s.Target > 0 {
		gauge(c.target, float64(s.Target)/1000)
	}
	if at.Origin.Gateways > 0 {
		gauge(c.adaptiveP95, at.Origin.P95.Seconds())
		gauge(c.adaptiveErrors, at.Origin.ErrorRate())
	}
	gauge(c.adaptiveAtMin, at.AtMin.Seconds())
	if at.Level != adaptive.Unknown {
		gauge(c.adaptiveHealth, float64(adaptive.Unhealthy-at.Level)/2)
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	up := 0.0
	if c.g.core.Up() {
		up = 1
	}
	out <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, up)
	for id, u := range c.g.state.Load().origins {
		c.collectOrigin(out, id, u.Stats())
	}
	told := map[string]bool{}
	for _, r := range c.g.state.Load().rooms {
		if b := r.options.Policy.Budget; r.options.Policy.Budgeted && !told[b.Origin] {
			told[b.Origin] = true
			if use, ok := c.g.core.BudgetUse(b.Origin); ok {
				c.collectBudget(out, b.Origin, use)
			}
		}
		s := r.queue.Snapshot()
		gauge := func(d *prometheus.Desc, v float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, r.id)
		}
		total := func(d *prometheus.Desc, v int64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), r.id)
		}
		gauge(c.limit, float64(s.Policy.Rate)/1000)
		gauge(c.number, float64(r.proofEffort()))
		c.collectEstimates(out, r)
		if !s.Known {
			continue
		}
		gauge(c.waiting, float64(s.Waiting))
		c.collectAdaptive(gauge, r, s)
		gauge(c.parked, float64(s.Parked))
		gauge(c.gathered, float64(s.Prequeued))
		apart := 0.0
		if r.queue.DrawsApart() {
			apart = 1
		}
		gauge(c.conflict, apart)
		gauge(c.active, float64(s.Active))
		gauge(c.admitted, float64(s.Admitted))
		gauge(c.age, r.queue.Age().Seconds())
		gauge(c.gatewaysIn, float64(s.Gateways))
		var lately int64
		for i := len(s.Flow) - 1; i >= 0 && s.Flow[i].Second >= s.RoomTime/1e6-10; i-- {
			if s.Flow[i].Second < s.RoomTime/1e6 {
				lately += s.Flow[i].Admitted
			}
		}
		gauge(c.rate, float64(lately)/10)
		total(c.joins, s.Joins)
		total(c.admissions, s.Admissions)
		total(c.claims, s.Claims)
		total(c.lapsed, s.Lapses)
		total(c.abandoned, s.Abandons)
	}
}

// Package metrics holds the metrics of the gateway. docs/metrics.md lists their names and labels. Metrics are counted as requests are
// served (metrics.go); figures of rooms and origins are read at each scrape (collector.go).
package metrics

import (
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/refusal"
	"github.com/anteroom/anteroom/token"
)

// Outcome is the result of a request, for metrics and the access log.
type Outcome uint8

const (
	Proxied  Outcome = iota // with a pass, or because no room applies
	LetIn                   // the request started its session
	Waiting                 // the visitor waits, or asks about the queue
	Bypassed                // a bypass rule applies
	Refused                 // bad request, unknown room, closed room
	Failed                  // the gateway or a server behind it failed
	outcomes
)

var outcomeNames = [outcomes]string{"proxied", "let_in", "waiting", "bypass", "refused", "error"}

// String returns the outcome as labels and the access log have it.
func (o Outcome) String() string { return outcomeNames[o] }

// rangeNames are the labels of forecast.Range.
var rangeNames = [3]string{forecast.Below: "below", forecast.Within: "within", forecast.Above: "above"}

var (
	refusedJoins = []string{
		"closed", "draining", "full", "account", "store", admission.ReasonAddress, admission.ReasonNetwork,
		"proof_missing", "proof_invalid", "captcha_missing", "captcha_failed", "captcha_unavailable",
	}
	checkFaults     = []string{"peer", "path", "target", "method", "host", "scheme", "request"}
	proofOutcomes   = []string{"accepted", "repeated", "invalid", "expired", "spent"}
	captchaOutcomes = []string{"passed", "failed", "unavailable"}
	permitResults   = []string{"issued", "over_quota", "accepted", "missing", "invalid", "redeemed", "redeemed_before", "not_redeemed"}
)

// Metrics are the metrics of a gateway.
type Metrics struct {
	None              *Room // of requests outside all rooms
	Panics            prometheus.Counter
	AcceptErrors      prometheus.Counter
	Streams           prometheus.Gauge
	StreamsLimit      prometheus.Gauge
	StreamsRefused    prometheus.Counter
	RejectedTokens    map[string]prometheus.Counter // by reason
	RejectedAccounts  map[string]prometheus.Counter // by reason
	ProxyHeaderErrors map[string]prometheus.Counter // by reason
	ChecksRefused     map[string]prometheus.Counter // by fault

	requests       *prometheus.CounterVec
	requestSeconds *prometheus.HistogramVec
	upstream       *prometheus.HistogramVec
	upstreamErrors *prometheus.CounterVec
	waitSeconds    *prometheus.HistogramVec
	etaError       *prometheus.HistogramVec
	ranges         *prometheus.CounterVec
	joinsRefused   *prometheus.CounterVec
	arrivals       *prometheus.CounterVec
	challenges     *prometheus.CounterVec
	proofs         *prometheus.CounterVec
	captcha        *prometheus.CounterVec
	permits        *prometheus.CounterVec
	storeSeconds   *prometheus.HistogramVec
	storeErrors    *prometheus.CounterVec
	storeRefused   map[string]prometheus.Counter // writes, by reason
	responses      *prometheus.CounterVec
	overQuota      *prometheus.CounterVec
	keyFetches     map[bool]prometheus.Counter

	mu    sync.Mutex
	rooms map[string]*Room
}

// Room are the metrics of one room.
type Room struct {
	Requests  [outcomes]prometheus.Counter
	Seconds   [outcomes]prometheus.Observer
	Wait      prometheus.Observer
	ETAError  prometheus.Observer
	Ranges    [3]prometheus.Counter         // by forecast.Range
	Refused   map[string]prometheus.Counter // joins, by reason
	OverQuota prometheus.Counter            // requests beyond guard.requests_per_session

	Arrivals   prometheus.Counter // visitors without a place who asked for one
	Challenges prometheus.Counter
	Proofs     map[string]prometheus.Counter // by outcome
	Captcha    map[string]prometheus.Counter // by outcome
	Permits    map[string]prometheus.Counter // by result
}

// Origin are the metrics of one origin.
type Origin struct {
	Seconds   prometheus.Observer
	Errors    map[string]prometheus.Counter // by kind
	Responses [6]prometheus.Counter         // by the first digit of their status; 0 is not used
}

const namespace = "anteroom"

// New returns the metrics, registered with reg unless reg is nil.
func New(reg prometheus.Registerer, version string) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	}
	fast := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	m := &Metrics{
		requests:       counter("requests_total", "Requests by room and outcome.", "room", "outcome"),
		requestSeconds: histogram("request_seconds", "Time from the header of a request to the end of its response.", fast, "room", "outcome"),
		upstream:       histogram("upstream_seconds", "Time from sending a request to the first byte of the origin's response.", fast, "origin"),
		upstreamErrors: counter("upstream_errors_total", "Requests to an origin that failed.", "origin", "kind"),
		responses:      counter("upstream_responses_total", "Responses of an origin by class of status.", "origin", "class"),
		waitSeconds: histogram("wait_seconds", "Waits from join to admission.",
			[]float64{1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400}, "room"),
		etaError: histogram("eta_error_ratio", "Announced wait over actual wait, for waits of a second or more.",
			[]float64{.1, .25, .5, .75, .9, .95, 1, 1.05, 1.1, 1.25, 1.5, 2, 4, 10}, "room"),
		ranges: counter("eta_promises_total", "Waits of a second or more, by their place relative to the range announced on joining.", "room", "wait"),
		storeSeconds: histogram("store_command_seconds", "Duration of calls to the store.",
			[]float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}, "script"),
		joinsRefused:      counter("joins_refused_total", "Joins that received no ticket.", "room", "reason"),
		arrivals:          counter("arrivals_total", "Visitors without a place who asked for one; a client that keeps no cookies counts each time.", "room"),
		challenges:        counter("proof_challenges_total", "Challenges for a proof of work that were sent.", "room"),
		proofs:            counter("proofs_total", "Proofs of work in joins.", "room", "outcome"),
		captcha:           counter("captcha_total", "Solved CAPTCHAs in joins.", "room", "outcome"),
		permits:           counter("permits_total", "Permits by what became of them.", "room", "result"),
		storeErrors:       counter("store_errors_total", "Calls to the store that failed.", "script"),
		Streams:           prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "event_streams", Help: "Open event streams."}),
		storeRefused:      map[string]prometheus.Counter{},
		StreamsLimit:      prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "event_streams_limit", Help: "Highest number of open event streams."}),
		StreamsRefused:    prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "event_streams_refused_total", Help: "Event streams refused because of the limit."}),
		Panics:            prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "panics_total", Help: "Requests that ended in a panic."}),
		AcceptErrors:      prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "accept_errors_total", Help: "Failed accepts of connections, for example without file descriptors."}),
		ProxyHeaderErrors: map[string]prometheus.Counter{},
		ChecksRefused:     map[string]prometheus.Counter{},
		RejectedTokens:    map[string]prometheus.Counter{},
		RejectedAccounts:  map[string]prometheus.Counter{},
		rooms:             map[string]*Room{},
	}
	rejected := counter("tokens_rejected_total", "Tokens that failed verification.", "reason")
	for _, reason := range append([]string{"bind"}, token.Reasons...) {
		m.RejectedTokens[reason] = rejected.WithLabelValues(reason)
	}
	checks := counter("checks_refused_total", "Checks of other proxies that were refused.", "reason")
	for _, fault := range checkFaults {
		m.ChecksRefused[fault] = checks.WithLabelValues(fault)
	}
	refusedWrites := counter("store_refused_writes_total", "Calls that the store refused because it accepts no writes.", "reason")
	for _, reason := range refusal.Reasons() {
		m.storeRefused[reason] = refusedWrites.WithLabelValues(reason)
	}
	m.overQuota = counter("session_requests_refused_total", "Requests of sessions beyond guard.requests_per_session.", "room")
	accounts := counter("accounts_rejected_total", "JWTs of the site that were not accepted.", "reason")
	for _, reason := range append([]string{"no_keys", "forger"}, token.Reasons...) {
		m.RejectedAccounts[reason] = accounts.WithLabelValues(reason)
	}
	fetches := counter("account_keys_fetches_total", "Fetches of a jwks_url.", "result")
	m.keyFetches = map[bool]prometheus.Counter{true: fetches.WithLabelValues("ok"), false: fetches.WithLabelValues("failed")}
	prefaces := counter("proxy_protocol_errors_total", "Connections closed because of their PROXY header.", "reason")
	for _, reason := range wire.ProxyHeaderErrors() {
		m.ProxyHeaderErrors[reason] = prefaces.WithLabelValues(reason)
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "build_info", Help: "Version of the program; the value is 1."},
		[]string{"version", "go"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.None = m.newRoom("")
	if reg != nil {
		reg.MustRegister(m.requests, m.requestSeconds, m.upstream, m.upstreamErrors, m.responses, m.waitSeconds, m.etaError, m.ranges, m.joinsRefused, m.arrivals, m.challenges, m.proofs, m.captcha, m.permits,
			m.overQuota, m.storeSeconds, m.storeErrors, m.Streams, m.StreamsLimit, m.StreamsRefused, m.Panics, m.AcceptErrors, prefaces,
			rejected, checks, accounts, fetches, refusedWrites, build)
	}
	return m
}

// Room returns the metrics of a room.
func (m *Metrics) Room(id string) *Room {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rooms[id]
	if r == nil {
		r = m.newRoom(id)
		m.rooms[id] = r
	}
	return r
}

func (m *Metrics) newRoom(id string) *Room {
	r := &Room{OverQuota: m.overQuota.WithLabelValues(id), Wait: m.waitSeconds.WithLabelValues(id), ETAError: m.etaError.WithLabelValues(id)}
	for i, name := range rangeNames {
		r.Ranges[i] = m.ranges.WithLabelValues(id, name)
	}
	r.Refused = make(map[string]prometheus.Counter, len(refusedJoins))
	for _, reason := range refusedJoins {
		r.Refused[reason] = m.joinsRefused.WithLabelValues(id, reason)
	}
	r.Arrivals = m.arrivals.WithLabelValues(id)
	r.Challenges, r.Proofs, r.Captcha = m.challenges.WithLabelValues(id), map[string]prometheus.Counter{}, map[string]prometheus.Counter{}
	for _, outcome := range proofOutcomes {
		r.Proofs[outcome] = m.proofs.WithLabelValues(id, outcome)
	}
	for _, outcome := range captchaOutcomes {
		r.Captcha[outcome] = m.captcha.WithLabelValues(id, outcome)
	}
	r.Permits = map[string]prometheus.Counter{}
	for _, result := range permitResults {
		r.Permits[result] = m.permits.WithLabelValues(id, result)
	}
	for i, name := range outcomeNames {
		r.Requests[i] = m.requests.WithLabelValues(id, name)
		r.Seconds[i] = m.requestSeconds.WithLabelValues(id, name)
	}
	return r
}

// Origin returns the metrics of an origin.
func (m *Metrics) Origin(id string) Origin {
	o := Origin{Seconds: m.upstream.WithLabelValues(id), Errors: map[string]prometheus.Counter{}}
	for _, kind := range proxy.Kinds() {
		o.Errors[kind] = m.upstreamErrors.WithLabelValues(id, kind)
	}
	for digit := 1; digit < len(o.Responses); digit++ {
		o.Responses[digit] = m.responses.WithLabelValues(id, strconv.Itoa(digit)+"xx")
	}
	return o
}

// FetchedKeys counts a fetch of a jwks_url.
func (m *Metrics) FetchedKeys(ok bool) { m.keyFetches[ok].Inc() }

// ObserveStore records a call to the store; it is meant for admission.Options.Observe.
func (m *Metrics) ObserveStore(script string, took time.Duration, err error) {
	m.storeSeconds.WithLabelValues(script).Observe(took.Seconds())
	errs := m.storeErrors.WithLabelValues(script) // exists, as 0, before the first error
	if err != nil {
		errs.Inc()
	}
	if why, refused := refusal.Of(err); refused {
		m.storeRefused[why.Reason].Inc()
	}
}

// Observe records a duration in a histogram. The id of a trace, if there is one, becomes the exemplar of its bucket.
func Observe(o prometheus.Observer, took time.Duration, trace string) {
	if trace != "" {
		if e, ok := o.(prometheus.ExemplarObserver); ok {
			e.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": trace})
			return
		}
	}
	o.Observe(took.Seconds())
}

// Value returns the value of a counter.
func Value(c prometheus.Counter) int64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0
	}
	return int64(m.GetCounter().GetValue())
}

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/proxy"
)

// Source has the rooms and origins of the configuration in use.
type Source interface {
	EachOrigin(func(id string, stats proxy.Stats))
	EachRoom(func(*RoomFigures))
}

// RoomFigures are what the collector reads of a room.
type RoomFigures struct {
	ID          string
	Queue       *admission.Room
	Forecaster  *forecast.Forecaster
	Policy      *admission.Policy // of the configuration
	Model       bool              // the estimator is the model
	ProofEffort int64             // tries of a proof; 0: none is required
}

// collector reads the figures of rooms and origins at each scrape.
type collector struct {
	core                                                     *admission.Core
	source                                                   Source
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

// NewCollector returns the metrics that are read from core and source at each scrape.
func NewCollector(core *admission.Core, source Source) prometheus.Collector {
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
		budgetRate:    budget("rate", "Admissions per second that all rooms of the origin may make together."),
		budgetSpare:   budget("spare", "Admissions that could be granted to rooms of the origin now."),
		budgetGranted: budget("granted_total", "Admissions granted to rooms of the origin, since the store began."),
		budgetShort:   budget("short_total", "Grants smaller than the queue of the room, since the store began."),
		budgetLines:   budget("rooms_waiting", "Rooms of the origin that have a queue."),

		serverUp:    of("server_up", "1 while the server may receive requests.", "server"),
		conns:       of("connections", "Connections to a server.", "server", "state"),
		connsLimit:  of("connections_limit", "Highest number of connections to the origin in use."),
		queued:      of("queue", "Requests that wait for a connection to the origin."),
		queuedLimit: of("queue_limit", "Highest number of requests that wait for a connection to the origin."),
		core:        core,
		source:      source,
		waiting:     d("waiting", "Visitors in the queue."),
		parked:      d("parked", "Tickets whose visitors were absent at the front of the queue."),
		active:      d("active", "Sessions."),
		gathered:    d("gathered", "Tickets confirmed before the opening of the newest lottery."),
		conflict:    d("draw_conflict", "1 while another gateway uses another secret for the lottery of the room."),
		admitted:    d("admitted_unclaimed", "Tickets that are admitted and not claimed."),
		rate:        d("rate", "Admissions per second over the last ten seconds."),
		limit:       d("rate_limit", "Admissions per second that the room allows."),
		target:      d("rate_target", "Admissions per second chosen by the controller of an adaptive room."),

		adaptiveP95:    d("adaptive_latency_seconds", "Time to first byte of the origin, as the controller of an adaptive room measures it."),
		adaptiveErrors: d("adaptive_error_ratio", "Share of failed requests to the origin, as the controller of an adaptive room measures it."),
		adaptiveAtMin:  d("adaptive_at_min_seconds", "Time for which the rate of an adaptive room has been min_rate without an improvement of the origin."),
		adaptiveHealth: d("adaptive_health", "Health of the origin of an adaptive room: 1 healthy, 0.5 strained, 0 unhealthy; absent while unknown."),
		age:            d("snapshot_age_seconds", "Age of the snapshot of the room."),
		joins:          d("joins_total", "Tickets taken, including visitors admitted immediately, since the store began."),
		admissions:     d("admissions_total", "Visitors admitted, including those admitted immediately, since the store began."),
		claims:         d("claims_total", "Admissions claimed, since the store began."),
		lapsed:         d("lapsed_total", "Admissions not claimed in time, since the store began."),
		abandoned:      d("abandoned_total", "Tickets given up or expired by absence, since the store began."),
		gatewaysIn:     d("gateways", "Gateways that serve the room."),
		number:         d("proof_number", "Highest number of tries of a proof of work; 0 while no proof is required."),
		coverage:       d("eta_coverage", "Share of the last 1024 announced ranges that contained the actual wait."),
		fallback:       prometheus.NewDesc(namespace+"_eta_fallback", "1 while the model is not used for estimates, by reason.", []string{"room", "reason"}, nil),
		up:             prometheus.NewDesc(namespace+"_store_up", "1 while the store replies.", nil, nil),
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

func (c *collector) collectEstimates(out chan<- prometheus.Metric, r *RoomFigures) {
	held, all, why := r.Forecaster.Model()
	if all > 0 {
		out <- prometheus.MustNewConstMetric(c.coverage, prometheus.GaugeValue, float64(held)/float64(all), r.ID)
	}
	if !r.Model {
		return
	}
	for _, reason := range eta.Fallbacks() {
		on := 0.0
		if reason == why {
			on = 1
		}
		out <- prometheus.MustNewConstMetric(c.fallback, prometheus.GaugeValue, on, r.ID, reason)
	}
}

// collectBudget collects what the store last reported of an origin's budget.
func (c *collector) collectBudget(out chan<- prometheus.Metric, origin string, u admission.BudgetUse) {
	put := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		out <- prometheus.MustNewConstMetric(d, kind, v, origin)
	}
	put(c.budgetRate, prometheus.GaugeValue, float64(u.Rate)/1000)
	put(c.budgetSpare, prometheus.GaugeValue, float64(u.Spare))
	put(c.budgetGranted, prometheus.CounterValue, float64(u.Granted))
	put(c.budgetShort, prometheus.CounterValue, float64(u.Short))
	put(c.budgetLines, prometheus.GaugeValue, float64(u.Queues))
}

func (c *collector) collectAdaptive(gauge func(*prometheus.Desc, float64), r *RoomFigures, s *admission.Snapshot) {
	at := r.Queue.Steering()
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
	if c.core.Up() {
		up = 1
	}
	out <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, up)
	c.source.EachOrigin(func(id string, s proxy.Stats) { c.collectOrigin(out, id, s) })
	budgets := map[string]bool{} // that were collected
	c.source.EachRoom(func(r *RoomFigures) {
		if b := r.Policy.Budget; r.Policy.Budgeted && !budgets[b.Origin] {
			budgets[b.Origin] = true
			if use, ok := c.core.BudgetUse(b.Origin); ok {
				c.collectBudget(out, b.Origin, use)
			}
		}
		s := r.Queue.Snapshot()
		gauge := func(d *prometheus.Desc, v float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, r.ID)
		}
		total := func(d *prometheus.Desc, v int64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), r.ID)
		}
		gauge(c.limit, float64(s.Policy.Rate)/1000)
		gauge(c.number, float64(r.ProofEffort))
		c.collectEstimates(out, r)
		if !s.Known {
			return
		}
		gauge(c.waiting, float64(s.Waiting))
		c.collectAdaptive(gauge, r, s)
		gauge(c.parked, float64(s.Parked))
		gauge(c.gathered, float64(s.Prequeued))
		conflict := 0.0
		if r.Queue.DrawsApart() {
			conflict = 1
		}
		gauge(c.conflict, conflict)
		gauge(c.active, float64(s.Active))
		gauge(c.admitted, float64(s.Admitted))
		gauge(c.age, r.Queue.Age().Seconds())
		gauge(c.gatewaysIn, float64(s.Gateways))
		var admitted int64
		for i := len(s.Flow) - 1; i >= 0 && s.Flow[i].Second >= s.RoomTime/1e6-10; i-- {
			if s.Flow[i].Second < s.RoomTime/1e6 {
				admitted += s.Flow[i].Admitted
			}
		}
		gauge(c.rate, float64(admitted)/10)
		total(c.joins, s.Joins)
		total(c.admissions, s.Admissions)
		total(c.claims, s.Claims)
		total(c.lapsed, s.Lapses)
		total(c.abandoned, s.Abandons)
	})
}

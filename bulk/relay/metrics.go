package relay

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/bulk/client"
)

// Metrics are the metrics of a relay, see docs/metrics.md.
type Metrics struct {
	rows    *prometheus.CounterVec
	errors  *prometheus.CounterVec
	seconds prometheus.Histogram
	lag     prometheus.Gauge
	waiting prometheus.Gauge
}

var outcomes = map[verdict]string{accepted: "accepted", repeated: "duplicate", aside: "aside"}

// NewMetrics returns metrics, registered unless reg is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	name := func(n, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "bulk_relay", Name: n, Help: help}
	}
	m := &Metrics{
		rows:    prometheus.NewCounterVec(prometheus.CounterOpts(name("rows_total", "Rows that left the outbox or were set aside.")), []string{"outcome"}),
		errors:  prometheus.NewCounterVec(prometheus.CounterOpts(name("errors_total", "Batches that failed, by who failed.")), []string{"of"}),
		lag:     prometheus.NewGauge(prometheus.GaugeOpts(name("lag_seconds", "Age of the oldest row of the last batch."))),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts(name("tenants_waiting", "Tenants whose rows wait after a refusal."))),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "bulk_relay", Name: "batch_seconds", Help: "Time of a batch.", Buckets: []float64{.005, .02, .1, .5, 2, 10, 60},
		}),
	}
	for _, outcome := range outcomes {
		m.rows.WithLabelValues(outcome)
	}
	m.errors.WithLabelValues("server")
	m.errors.WithLabelValues("database")
	if reg != nil {
		reg.MustRegister(m.rows, m.errors, m.lag, m.waiting, m.seconds)
	}
	return m
}

func (m *Metrics) batch(took time.Duration, b batch, waiting int) {
	m.waiting.Set(float64(waiting))
	if b.read > 0 {
		m.seconds.Observe(took.Seconds())
	}
	if b.read > 0 || waiting == 0 {
		m.lag.Set(max(0, b.oldest.Seconds()))
	}
	for _, w := range b.rows {
		if outcome, counts := outcomes[w.verdict]; counts {
			m.rows.WithLabelValues(outcome).Inc()
		}
	}
}

func (m *Metrics) failed(err error) {
	_, unreachable := errors.AsType[*client.Unreachable](err)
	_, refused := errors.AsType[*client.Problem](err)
	of := "database"
	if unreachable || refused {
		of = "server"
	}
	m.errors.WithLabelValues(of).Inc()
}

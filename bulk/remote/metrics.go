package remote

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of a Broker, see docs/metrics.md. Jobs are counted with those of the engine.
type Metrics struct {
	waiting, most prometheus.Gauge
	refused       prometheus.Counter
}

// NewMetrics returns metrics, registered unless reg is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "bulk_action", Name: name, Help: help})
	}
	m := &Metrics{
		waiting: gauge("leases_waiting", "Requests of workers that wait for jobs."),
		most:    gauge("leases_waiting_limit", "Most requests of workers that may wait for jobs."),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "bulk_action", Name: "leases_refused_total", Help: "Requests of workers that were refused because too many waited for jobs."}),
	}
	if reg != nil {
		reg.MustRegister(m.waiting, m.most, m.refused)
	}
	return m
}

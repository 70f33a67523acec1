package webhook

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/admission/outbox"
)

// Metrics counts deliveries.
type Metrics struct {
	deliveries *prometheus.CounterVec
	pending    *prometheus.GaugeVec
	dropped    *prometheus.GaugeVec
	holder     prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "anteroom", Name: "webhook_deliveries_total", Help: "Tries to deliver an event, by outcome: delivered, retry or dead.",
		}, []string{"webhook", "outcome"}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "anteroom", Name: "webhook_pending", Help: "Events in the queue, of at most 2000 for each webhook.",
		}, []string{"webhook"}),
		dropped: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "anteroom", Name: "webhook_dropped", Help: "Events that found the queue of their webhook full since the queue began in this store.",
		}, []string{"webhook"}),
		holder: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "anteroom", Name: "webhook_sender", Help: "1 if this gateway sends the events of the fleet.",
		}),
	}
	r.MustRegister(m.deliveries, m.pending, m.dropped, m.holder)
	return m
}

// show shows the state of the queue for the configured endpoints.
func (m *Metrics) show(endpoints []Endpoint, w *outbox.Work) {
	for i := range endpoints {
		name := endpoints[i].Name
		m.pending.WithLabelValues(name).Set(float64(w.Counts[name].Pending))
		m.dropped.WithLabelValues(name).Set(float64(w.Counts[name].Dropped))
	}
	held := 0.0
	if w.Holder {
		held = 1
	}
	m.holder.Set(held)
}

// forget removes the series of an endpoint that is no longer configured.
func (m *Metrics) forget(name string) {
	m.deliveries.DeletePartialMatch(prometheus.Labels{"webhook": name})
	m.pending.DeleteLabelValues(name)
	m.dropped.DeleteLabelValues(name)
}

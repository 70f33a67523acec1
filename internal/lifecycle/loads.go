package lifecycle

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Loads are the metrics of the reloads of a configuration, as Prometheus names its own. docs/metrics.md lists them.
type Loads struct{ successful, at prometheus.Gauge }

// NewLoads returns the metrics of a program, registered with reg. The configuration that the program starts with counts as a success.
func NewLoads(reg prometheus.Registerer, namespace string) *Loads {
	l := &Loads{
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "config_last_reload_successful", Help: "1 if the last reload of the configuration succeeded, 0 while an older one is in force.",
		}),
		at: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "config_last_reload_success_timestamp_seconds", Help: "Time of the last successful load of the configuration.",
		}),
	}
	reg.MustRegister(l.successful, l.at)
	l.Record(nil)
	return l
}

// Record records the result of a reload.
func (l *Loads) Record(err error) {
	if err != nil {
		l.successful.Set(0)
		return
	}
	l.successful.Set(1)
	l.at.SetToCurrentTime()
}

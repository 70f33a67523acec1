package tracing

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Metrics count spans. docs/metrics.md lists them.
type Metrics struct{ ended, exported, failed prometheus.Counter }

// NewMetrics returns the metrics of a program, registered with reg. The difference between ended, and exported and failed, is what is
// still in the queue or was dropped from it.
func NewMetrics(reg prometheus.Registerer, namespace string) *Metrics {
	all := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "trace_spans_total", Help: "Spans of traces by what became of them.",
	}, []string{"result"})
	reg.MustRegister(all)
	return &Metrics{ended: all.WithLabelValues("ended"), exported: all.WithLabelValues("exported"), failed: all.WithLabelValues("failed")}
}

// exporter counts what it exports, and logs when exports begin to fail and when they succeed again. One goroutine uses it.
type exporter struct {
	to      sdk.SpanExporter
	log     *slog.Logger
	metrics *Metrics

	failed time.Time // when a failure was logged last; zero: the last export succeeded
}

// complainEvery is how often failures are logged while they last.
const complainEvery = time.Minute

func (e *exporter) export(ctx context.Context, spans []sdk.ReadOnlySpan) {
	err := e.to.ExportSpans(ctx, spans)
	if m := e.metrics; m != nil {
		if err != nil {
			m.failed.Add(float64(len(spans)))
		} else {
			m.exported.Add(float64(len(spans)))
		}
	}
	e.report(err)
}

func (e *exporter) report(err error) {
	now := time.Now()
	switch {
	case err == nil && !e.failed.IsZero():
		e.log.Info("traces are exported again")
		e.failed = time.Time{}
	case err != nil && now.Sub(e.failed) >= complainEvery:
		e.log.Warn("cannot export traces; their spans are dropped. Check tracing.otlp_endpoint and the collector", "error", err)
		e.failed = now
	}
}

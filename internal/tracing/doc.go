// Package tracing sends traces by OTLP: it chooses what is traced, reads and writes W3C trace contexts, and runs the exporter. Nothing is
// recorded of what is not traced, so that a caller pays a comparison for it.
//
//	t, err := tracing.New(tracing.Options{Endpoint: "http://127.0.0.1:4318", Sample: 0.01, Service: "anteroom-gateway"})
//	if t.Chance() {
//		_, span := t.Start(ctx, "GET", trace.WithSpanKind(trace.SpanKindServer))
//		defer span.End()
//	}
package tracing

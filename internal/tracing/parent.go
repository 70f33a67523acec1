package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The header fields of a W3C trace context.
const (
	ParentField = "traceparent"
	StateField  = "tracestate"
)

// parentLength is the length of the traceparent of version 00.
const parentLength = 55

var w3c propagation.TraceContext

// pair carries the two fields.
type pair struct{ parent, state string }

func (p *pair) Get(key string) string {
	switch key {
	case ParentField:
		return p.parent
	case StateField:
		return p.state
	}
	return ""
}

func (p *pair) Set(key, value string) {
	switch key {
	case ParentField:
		p.parent = value
	case StateField:
		p.state = value
	}
}

func (p *pair) Keys() []string { return []string{ParentField, StateField} }

// Parse returns the span context of a traceparent and a tracestate. ok is false where the traceparent is missing or malformed; a malformed
// tracestate is ignored, as the specification asks.
func Parse(parent, state string) (sc trace.SpanContext, ok bool) {
	if len(parent) < parentLength {
		return sc, false
	}
	sc = trace.SpanContextFromContext(w3c.Extract(context.Background(), &pair{parent, state}))
	return sc, sc.IsValid()
}

// Format returns the traceparent and the tracestate of a span context.
func Format(sc trace.SpanContext) (parent, state string) {
	var p pair
	w3c.Inject(trace.ContextWithSpanContext(context.Background(), sc), &p)
	return p.parent, p.state
}

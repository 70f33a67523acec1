package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// ids generates random ids of traces and spans, except for the span that startAs is about to start.
type ids struct{}

type rootKey struct{}

// As returns a context in which Start starts the root span of a trace with given ids, so that others can refer to the span before it
// exists.
func As(ctx context.Context, root trace.SpanContext) context.Context {
	return context.WithValue(ctx, rootKey{}, root)
}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if root, ok := ctx.Value(rootKey{}).(trace.SpanContext); ok {
		return root.TraceID(), root.SpanID()
	}
	var t trace.TraceID
	binary.BigEndian.PutUint64(t[:8], rand.Uint64())   //nolint:gosec // ids of traces are no secrets
	binary.BigEndian.PutUint64(t[8:], rand.Uint64()|1) //nolint:gosec // as above; never zero
	return t, ids{}.NewSpanID(ctx, t)
}

func (ids) NewSpanID(context.Context, trace.TraceID) (s trace.SpanID) {
	binary.BigEndian.PutUint64(s[:], rand.Uint64()|1) //nolint:gosec // as above
	return s
}

// Root returns the context of the root span of the trace that an id names: the id is that of the trace, and its second half that of the
// span.
func Root(id [16]byte) trace.SpanContext {
	if id == ([16]byte{}) {
		return trace.SpanContext{}
	}
	span := trace.SpanID(id[8:])
	if !span.IsValid() {
		span[7] = 1
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled})
}

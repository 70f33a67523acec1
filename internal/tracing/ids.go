package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// ids generates random ids of traces and spans, except for the root span whose context As or In has returned.
type ids struct{}

type rootKey struct{}

// As returns a context in which Start starts the root span of a trace with given ids, so that others can refer to the span before it
// exists.
func As(ctx context.Context, root trace.SpanContext) context.Context {
	return context.WithValue(ctx, rootKey{}, root)
}

// In returns a context in which Start starts a root span of a trace with a given id. Several spans can be roots of one trace.
func In(ctx context.Context, id [16]byte) context.Context {
	return As(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: ids{}.NewSpanID(ctx, id)}))
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

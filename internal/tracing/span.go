package tracing

import (
	"context"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Span is a span that is recorded by one allocation, for paths on which those of the SDK cost too much. A type that embeds it has the methods
// Name and Attributes, and Links or Status where the span has any: the exporter calls them in its own goroutine, after Finish.
type Span struct {
	sdk.ReadOnlySpan // a span of the SDK: the resource, the scope, and all that this span has none of
	context, parent  trace.SpanContext
	kind             trace.SpanKind
	began, ended     time.Time
}

// Begin returns a span that follows parent; a parent that is not valid is none.
func (t *Tracer) Begin(parent trace.SpanContext, kind trace.SpanKind, began time.Time) Span {
	c := trace.SpanContextConfig{TraceFlags: trace.FlagsSampled}
	if parent.IsValid() {
		c.TraceID, c.TraceState = parent.TraceID(), parent.TraceState()
		c.SpanID = ids{}.NewSpanID(context.Background(), c.TraceID)
	} else {
		c.TraceID, c.SpanID = ids{}.NewIDs(context.Background())
	}
	return Span{ReadOnlySpan: t.template, context: trace.NewSpanContext(c), parent: parent, kind: kind, began: began}
}

// Finish takes a span that End was called of. It must not change any more.
func (t *Tracer) Finish(s sdk.ReadOnlySpan) { t.queue.OnEnd(s) }

// End sets when the span ended.
func (s *Span) End(at time.Time) { s.ended = at }

// SpanContext returns the ids of the span.
func (s *Span) SpanContext() trace.SpanContext { return s.context }

// Parent returns the ids of the span's parent.
func (s *Span) Parent() trace.SpanContext { return s.parent }

// SpanKind returns the kind of the span.
func (s *Span) SpanKind() trace.SpanKind { return s.kind }

// StartTime returns when the span began.
func (s *Span) StartTime() time.Time { return s.began }

// EndTime returns when the span ended.
func (s *Span) EndTime() time.Time { return s.ended }

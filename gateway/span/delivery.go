package span

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/anteroom/anteroom/internal/tracing"
)

// Event is a try to deliver an event to a webhook.
type Event struct {
	Trace         [16]byte // of all tries of the event
	ID, Type      string
	Webhook, Room string
	Attempt       int // from 1
}

// Delivery is the span of a try. A nil *Delivery is of one that is not traced.
type Delivery struct{ span trace.Span }

// Deliver starts the span of a try, if t chooses the trace of the event, and returns the context of its request. t may be nil.
func Deliver(ctx context.Context, t *tracing.Tracer, e *Event) (context.Context, *Delivery) {
	if t == nil || e.Trace == ([16]byte{}) || !t.Chooses(e.Trace) {
		return ctx, nil
	}
	attributes := []attribute.KeyValue{
		attribute.String("anteroom.webhook", e.Webhook), attribute.String("anteroom.event.id", e.ID), attribute.String("anteroom.event.type", e.Type),
		attribute.Int("anteroom.attempt", e.Attempt),
	}
	if e.Room != "" {
		attributes = append(attributes, attribute.String("anteroom.room", e.Room))
	}
	ctx, s := t.Start(tracing.In(ctx, e.Trace), "deliver "+e.Type, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
	return ctx, &Delivery{s}
}

// End ends the span. verdict is the outcome of the try: delivered, retry, dead or interrupted. failed is why it failed, if it did.
func (d *Delivery) End(verdict string, failed error) {
	if d == nil {
		return
	}
	d.span.SetAttributes(attribute.String("anteroom.verdict", verdict))
	if failed != nil {
		d.span.SetStatus(codes.Error, failed.Error())
	}
	d.span.End()
}

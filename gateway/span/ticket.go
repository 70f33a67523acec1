package span

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/tracing"
)

// Ticket is what the trace of a ticket shows. Its id is that of the trace, so any gateway adds to it without knowing the others.
type Ticket struct {
	ID   admission.ID
	Room string
}

func (t *Ticket) attributes() trace.SpanStartEventOption {
	return trace.WithAttributes(attribute.String("anteroom.room", t.Room), attribute.String("anteroom.ticket", t.ID.String()))
}

// traces reports whether the ticket is traced.
func (r *Request) traces(t *Ticket) bool { return r.tracer != nil && r.tracer.Chooses(t.ID) }

// Joined records that the request has taken a ticket, in the state given. The span is the root of the ticket's trace.
func (r *Request) Joined(t Ticket, began time.Time, state string) {
	if !r.traces(&t) {
		return
	}
	_, s := r.tracer.Start(tracing.As(context.Background(), tracing.Root(t.ID)), "waiting_room join", trace.WithNewRoot(), trace.WithTimestamp(began),
		t.attributes(), trace.WithAttributes(attribute.String("anteroom.state", state)), r.link())
	s.End()
}

// Claimed records that the request has started the session of a ticket that was taken at joined and admitted at admitted.
func (r *Request) Claimed(t Ticket, joined, admitted time.Time) {
	if !r.traces(&t) {
		return
	}
	parent := trace.ContextWithRemoteSpanContext(context.Background(), tracing.Root(t.ID))
	_, waited := r.tracer.Start(parent, "waiting_room admission", trace.WithTimestamp(joined), t.attributes())
	waited.End(trace.WithTimestamp(admitted))
	_, claim := r.tracer.Start(parent, "waiting_room claim", trace.WithTimestamp(admitted), t.attributes(), r.link())
	claim.End()
}

// link links a span of a ticket to that of the request.
func (r *Request) link() trace.SpanStartOption {
	if r.span == nil {
		return trace.WithLinks()
	}
	return trace.WithLinks(trace.Link{SpanContext: r.span.SpanContext(), Attributes: []attribute.KeyValue{attribute.String("anteroom.link", "request")}})
}

package span

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/tracing"
)

// Request is the trace of one request. The zero value is of a request that is not traced.
type Request struct {
	tracer  *tracing.Tracer // nil: nothing is traced
	decided bool
	span    trace.Span // nil: the request is not traced
	ctx     context.Context
	linked  admission.ID // the ticket to which the span is linked
}

// New returns the trace of a request, about which Decide has to be called; t may be nil.
func New(t *tracing.Tracer) Request { return Request{tracer: t} }

// Caller is what a request continues: the trace of a trusted caller, if it has one.
type Caller struct {
	Began         time.Time
	Parent, State string // traceparent and tracestate; empty: none, or not of a trusted caller
}

// On reports whether requests are traced at all.
func (r *Request) On() bool { return r.tracer != nil }

// Traced reports whether this request is traced.
func (r *Request) Traced() bool { return r.span != nil }

// Undecided reports whether it is still open whether the request is traced.
func (r *Request) Undecided() bool { return r.tracer != nil && !r.decided }

// DecideByTicket decides whether the request is traced: if its caller's trace is, or else if its ticket's is. If both are, the span of the
// request is linked to the ticket's.
func (r *Request) DecideByTicket(c Caller, id admission.ID) {
	if r.tracer == nil {
		return
	}
	chosen := r.tracer.Chooses(id)
	r.decide(c, func() bool { return chosen })
	if r.span != nil && chosen && r.linked != id {
		r.linked = id
		r.span.AddLink(trace.Link{SpanContext: tracing.Root(id), Attributes: []attribute.KeyValue{attribute.String("anteroom.link", "ticket")}})
	}
}

// Decide decides whether a request without a ticket is traced: if its caller's trace is, or else by chance.
func (r *Request) Decide(c Caller) {
	if r.tracer != nil {
		r.decide(c, r.tracer.Chance)
	}
}

func (r *Request) decide(c Caller, chosen func() bool) {
	if r.decided {
		return
	}
	r.decided = true
	ctx := context.Background()
	if parent, ok := tracing.Parse(c.Parent, c.State); ok {
		if !parent.IsSampled() {
			return
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	} else if !chosen() {
		return
	}
	r.ctx, r.span = r.tracer.Start(ctx, "HTTP", trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.Began))
}

// TraceID returns the id of the trace for exemplars, empty if the request is not traced.
func (r *Request) TraceID() string {
	if r.span == nil {
		return ""
	}
	return r.span.SpanContext().TraceID().String()
}

// Calls returns a context for calls of a room, each batch of which becomes a span; ctx itself if the request is not traced.
func (r *Request) Calls(ctx context.Context) context.Context {
	if r.span == nil {
		return ctx
	}
	return admission.ObserveBatches(ctx, r.batch)
}

// batch records the call of a script, which has just ended.
func (r *Request) batch(b admission.BatchCall) {
	_, s := r.tracer.Start(r.ctx, "EVALSHA "+b.Script, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(b.Asked), trace.WithAttributes(
		attribute.String("db.system.name", "redis"),
		attribute.String("db.operation.name", "EVALSHA"),
		attribute.String("db.stored_procedure.name", b.Script),
		attribute.Int("db.operation.batch.size", b.Size),
		attribute.Float64("anteroom.batch.collect_seconds", max(0, b.Sent.Sub(b.Asked).Seconds()))))
	if b.Err != nil {
		s.SetAttributes(attribute.String("error.type", "store"))
		s.SetStatus(codes.Error, b.Err.Error())
	}
	s.End()
}

// Facts describe a request that has ended.
type Facts struct {
	Method, Path, Scheme, Host, Protocol string
	Route                                string // of few different values; empty: unknown
	Client, UserAgent                    string
	Room, Outcome, Decision              string
	Ticket                               string // or session
	Problem                              string // code
	Status                               int
}

// methods are those that spans name; others are _OTHER.
var methods = map[string]bool{
	"GET": true, "HEAD": true, "POST": true, "PUT": true, "DELETE": true, "CONNECT": true, "OPTIONS": true, "TRACE": true, "PATCH": true, "QUERY": true,
}

// attributesMost is more attributes than a span of a request has: they are collected first and set at once, which costs least.
const attributesMost = 20

// method returns the name of a span and the attributes of a method, with space for others.
func method(m string) (name string, attributes []attribute.KeyValue) {
	attributes = make([]attribute.KeyValue, 0, attributesMost)
	if methods[m] {
		return m, append(attributes, attribute.String("http.request.method", m))
	}
	return "HTTP", append(attributes, attribute.String("http.request.method", "_OTHER"), attribute.String("http.request.method_original", m))
}

// End ends the span of a traced request.
func (r *Request) End(f *Facts, began time.Time, took time.Duration) {
	name, attributes := method(f.Method)
	if f.Route != "" {
		name += " " + f.Route
	}
	for _, a := range [...][2]string{
		{"url.scheme", f.Scheme}, {"url.path", f.Path}, {"server.address", f.Host}, {"network.protocol.version", f.Protocol}, {"http.route", f.Route},
		{"client.address", f.Client}, {"user_agent.original", f.UserAgent},
		{"anteroom.room", f.Room}, {"anteroom.outcome", f.Outcome}, {"anteroom.decision", f.Decision}, {"anteroom.ticket", f.Ticket}, {"anteroom.problem", f.Problem},
	} {
		if a[1] != "" {
			attributes = append(attributes, attribute.String(a[0], a[1]))
		}
	}
	if f.Status > 0 {
		attributes = append(attributes, attribute.Int("http.response.status_code", f.Status))
	}
	if f.Status >= 500 {
		kind := f.Problem
		if kind == "" {
			kind = statusText(f.Status)
		}
		attributes = append(attributes, attribute.String("error.type", kind))
		r.span.SetStatus(codes.Error, "")
	}
	r.span.SetName(name)
	r.span.SetAttributes(attributes...)
	r.span.End(trace.WithTimestamp(began.Add(took)))
}

// statusText returns a status code as text.
func statusText(code int) string {
	return string([]byte{byte('0' + code/100%10), byte('0' + code/10%10), byte('0' + code%10)})
}

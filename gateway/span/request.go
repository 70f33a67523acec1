package span

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/tracing"
)

// Request is the trace of one request. The zero value is of a request that is not traced.
type Request struct {
	tracer  *tracing.Tracer // nil: nothing is traced
	span    *server         // nil: the request is not traced
	decided bool
}

// server is the span of a request.
type server struct {
	tracing.Span
	id     string         // of the trace, once it was asked for
	linked []admission.ID // tickets to which the span is linked
	facts  Facts
}

// New returns the trace of a request, about which Decide has to be called; t may be nil.
func New(t *tracing.Tracer) Request { return Request{tracer: t} }

// Caller is what a request continues: the trace of a trusted caller, if it has one.
type Caller struct {
	Began         time.Time
	Parent, State []byte // traceparent and tracestate; empty: none, or not of a trusted caller
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
	r.decide(&c, chosen)
	if r.span != nil && chosen && !slices.Contains(r.span.linked, id) {
		r.span.linked = append(r.span.linked, id)
	}
}

// Decide decides whether a request without a ticket is traced: if its caller's trace is, or else by chance.
func (r *Request) Decide(c Caller) {
	if r.tracer != nil {
		r.decide(&c, r.tracer.Chance())
	}
}

func (r *Request) decide(c *Caller, chosen bool) {
	if r.decided {
		return
	}
	r.decided = true
	var parent trace.SpanContext
	if len(c.Parent) > 0 {
		var ok bool
		if parent, ok = tracing.Parse(c.Parent, c.State); ok {
			chosen = parent.IsSampled()
		}
	}
	if chosen {
		r.span = &server{Span: r.tracer.Begin(parent, trace.SpanKindServer, c.Began)}
	}
}

// TraceID returns the id of the trace for exemplars, empty if the request is not traced.
func (r *Request) TraceID() string {
	s := r.span
	if s == nil {
		return ""
	}
	if s.id == "" {
		s.id = s.SpanContext().TraceID().String()
	}
	return s.id
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
	s := &batch{Span: r.tracer.Begin(r.span.SpanContext(), trace.SpanKindClient, b.Asked), call: b}
	s.End(time.Now())
	r.tracer.Finish(s)
}

// batch is the span of a call of a script.
type batch struct {
	tracing.Span
	call admission.BatchCall
}

func (s *batch) Name() string { return "EVALSHA " + s.call.Script }

func (s *batch) Attributes() []attribute.KeyValue {
	b := &s.call
	all := []attribute.KeyValue{
		attribute.String("db.system.name", "redis"),
		attribute.String("db.operation.name", "EVALSHA"),
		attribute.String("db.stored_procedure.name", b.Script),
		attribute.Int("db.operation.batch.size", b.Size),
		attribute.Float64("anteroom.batch.collect_seconds", max(0, b.Sent.Sub(b.Asked).Seconds())),
	}
	if b.Err != nil {
		all = append(all, attribute.String("error.type", "store"))
	}
	return all
}

func (s *batch) Status() (status sdk.Status) {
	if err := s.call.Err; err != nil {
		status = sdk.Status{Code: codes.Error, Description: err.Error()}
	}
	return status
}

// Facts describe a request that has ended.
type Facts struct {
	Method, Path, Scheme, Host, Protocol string
	Route                                string // of few different values; empty: unknown
	Client, UserAgent                    string
	Room, Outcome, Decision              string
	Ticket                               string // or session
	Problem                              string // code
	Operator                             string // of the admin API
	Status                               int
}

// methods are those that spans name; others are _OTHER.
var methods = map[string]bool{
	"GET": true, "HEAD": true, "POST": true, "PUT": true, "DELETE": true, "CONNECT": true, "OPTIONS": true, "TRACE": true, "PATCH": true, "QUERY": true,
}

// attributesMost is more attributes than a span of a request has.
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
func (r *Request) End(f *Facts, at time.Time) {
	s := r.span
	s.facts = *f
	s.End(at)
	r.tracer.Finish(s)
}

func (s *server) Name() string {
	name := s.facts.Method
	if !methods[name] {
		name = "HTTP"
	}
	if s.facts.Route != "" {
		name += " " + s.facts.Route
	}
	return name
}

func (s *server) Attributes() []attribute.KeyValue {
	f := &s.facts
	_, attributes := method(f.Method)
	for _, a := range [...][2]string{
		{"url.scheme", f.Scheme}, {"url.path", f.Path}, {"server.address", f.Host}, {"network.protocol.version", f.Protocol}, {"http.route", f.Route},
		{"client.address", f.Client}, {"user_agent.original", f.UserAgent},
		{"anteroom.room", f.Room}, {"anteroom.outcome", f.Outcome}, {"anteroom.decision", f.Decision}, {"anteroom.ticket", f.Ticket}, {"anteroom.problem", f.Problem}, {"anteroom.operator", f.Operator},
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
	}
	return attributes
}

func (s *server) Status() (status sdk.Status) {
	if s.facts.Status >= 500 {
		status.Code = codes.Error
	}
	return status
}

func (s *server) Links() (links []sdk.Link) {
	for _, id := range s.linked {
		links = append(links, sdk.Link{SpanContext: tracing.Root(id), Attributes: []attribute.KeyValue{attribute.String("anteroom.link", "ticket")}})
	}
	return links
}

// statusText returns a status code as text.
func statusText(code int) string {
	return string([]byte{byte('0' + code/100%10), byte('0' + code/10%10), byte('0' + code%10)})
}

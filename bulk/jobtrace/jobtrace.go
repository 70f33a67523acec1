package jobtrace

import (
	"context"
	"net/http"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/tracing"
)

// Tracer traces jobs. A nil *Tracer, and one without a tracer, passes trace contexts on and records nothing.
type Tracer struct {
	current atomic.Pointer[tracing.Tracer]
}

// Use sets the tracer; nil: none. Spans that have begun end in the former one.
func (t *Tracer) Use(tracer *tracing.Tracer) { t.current.Store(tracer) }

func (t *Tracer) tracer() *tracing.Tracer {
	if t == nil {
		return nil
	}
	return t.current.Load()
}

// contextOf returns the span context of a submission.
func contextOf(of store.Trace) trace.SpanContext {
	c := trace.SpanContextConfig{TraceID: of.ID, SpanID: of.Span, TraceFlags: trace.FlagsSampled, Remote: true}
	if of.State != "" {
		c.TraceState, _ = trace.ParseTraceState(of.State) // it was parsed once
	}
	return trace.NewSpanContext(c)
}

// kept returns what the store keeps of a span context.
func kept(sc trace.SpanContext) store.Trace {
	t := store.Trace{ID: sc.TraceID(), Span: sc.SpanID(), State: sc.TraceState().String()}
	if len(t.State) > store.MaxTraceState {
		t.State = ""
	}
	return t
}

// Submission is the span of a request that submits jobs.
type Submission struct {
	span  trace.Span // nil: none is recorded
	Trace store.Trace
}

// Submit begins the span of a request that submits jobs. route names the endpoint. A sampled trace of the caller is continued, one that is
// not sampled is respected, and a caller without one is traced by chance.
func (t *Tracer) Submit(r *http.Request, route string) *Submission {
	s := &Submission{}
	tracer := t.tracer()
	parent, ok := tracing.Parse(r.Header.Get(tracing.ParentField), r.Header.Get(tracing.StateField))
	switch {
	case ok && !parent.IsSampled(), !ok && (tracer == nil || !tracer.Chance()):
		return s
	case tracer == nil:
		s.Trace = kept(parent)
		return s
	}
	ctx := context.Background()
	if ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	_, s.span = tracer.Start(ctx, r.Method+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", r.Method), attribute.String("http.route", route), attribute.String("url.path", r.URL.Path)))
	s.Trace = kept(s.span.SpanContext())
	return s
}

// End ends the span. group is that of the jobs, and may be empty; n is how many were accepted.
func (s *Submission) End(group string, n int64, err error) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(attribute.String("messaging.system", system), attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.operation.name", "submit"), attribute.Int64("messaging.batch.message_count", n))
	if group != "" {
		s.span.SetAttributes(attribute.String("anteroom.group", group))
	}
	if err != nil {
		s.span.SetAttributes(attribute.String("error.type", "refused"))
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

const system = "anteroom"

// attributesOf describes a run of a job.
func attributesOf(j *store.Leased, operation, name string) trace.SpanStartEventOption {
	return trace.WithAttributes(
		attribute.String("messaging.system", system), attribute.String("messaging.operation.type", operation), attribute.String("messaging.operation.name", name),
		attribute.String("messaging.destination.name", j.Type), attribute.String("messaging.message.id", j.ID),
		attribute.String("anteroom.group", j.Group), attribute.String("anteroom.tenant", j.Tenant), attribute.Int64("anteroom.attempt", j.Attempt))
}

// following returns ctx with the span of a submission, and what starts the spans that follow it; nil if nothing is traced.
func (t *Tracer) following(ctx context.Context, of store.Trace) (context.Context, *tracing.Tracer) {
	if of == (store.Trace{}) {
		return ctx, nil
	}
	return trace.ContextWithRemoteSpanContext(ctx, contextOf(of)), t.tracer()
}

// Run is the span of a run. A nil *Run is of one that is not traced.
type Run struct{ span trace.Span }

// Run begins the span of a run of a job, if its submission is traced, and returns the context of its handler.
func (t *Tracer) Run(ctx context.Context, j *store.Leased) (context.Context, *Run) {
	ctx, tracer := t.following(ctx, j.Trace)
	if tracer == nil {
		return ctx, nil
	}
	ctx, span := tracer.Start(ctx, "process "+j.Type, trace.WithSpanKind(trace.SpanKindConsumer), attributesOf(j, "process", "run"))
	return ctx, &Run{span}
}

// RunBatch begins the span of a batch, which links to the submissions of its jobs, if any is traced.
func (t *Tracer) RunBatch(ctx context.Context, jobs []*store.Leased) (context.Context, *Run) {
	var links []trace.Link
	for _, j := range jobs {
		if j.Trace != (store.Trace{}) {
			links = append(links, trace.Link{SpanContext: contextOf(j.Trace), Attributes: []attribute.KeyValue{attribute.String("messaging.message.id", j.ID)}})
		}
	}
	tracer := t.tracer()
	if tracer == nil || links == nil {
		return ctx, nil
	}
	first := jobs[0]
	ctx, span := tracer.Start(ctx, "process "+first.Type, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...), trace.WithAttributes(
		attribute.String("messaging.system", system), attribute.String("messaging.operation.type", "process"), attribute.String("messaging.operation.name", "run"),
		attribute.String("messaging.destination.name", first.Type), attribute.Int("messaging.batch.message_count", len(jobs)),
		attribute.String("anteroom.group", first.Group), attribute.String("anteroom.tenant", first.Tenant)))
	return ctx, &Run{span}
}

// End ends the span of a run. code is the code of its failure, empty if it succeeded.
func (r *Run) End(verdict, code, text string) {
	if r == nil {
		return
	}
	if verdict != "" {
		r.span.SetAttributes(attribute.String("anteroom.verdict", verdict))
	}
	if code != "" {
		r.span.SetAttributes(attribute.String("error.type", code))
		r.span.SetStatus(codes.Error, text)
	}
	r.span.End()
}

// TraceID returns the id of the trace for exemplars, empty without one.
func (r *Run) TraceID() string {
	if r == nil {
		return ""
	}
	return r.span.SpanContext().TraceID().String()
}

// Lease records that a job is leased to a worker outside this process, and returns the traceparent and the tracestate that the worker
// continues; both are empty if the submission is not traced.
func (t *Tracer) Lease(j *store.Leased) (parent, state string) {
	if j.Trace == (store.Trace{}) {
		return "", ""
	}
	sc := contextOf(j.Trace)
	if tracer := t.tracer(); tracer != nil {
		_, span := tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), sc), "receive "+j.Type, trace.WithSpanKind(trace.SpanKindConsumer), attributesOf(j, "receive", "lease"))
		span.End()
		sc = span.SpanContext()
	}
	return tracing.Format(sc)
}

// Callback begins the span of a try of a group's callback, if the request that created the group is traced, and returns the context of its
// request.
func (t *Tracer) Callback(ctx context.Context, g *store.Group) (context.Context, *Run) {
	ctx, tracer := t.following(ctx, g.Trace)
	if tracer == nil {
		return ctx, nil
	}
	ctx, span := tracer.Start(ctx, "callback "+g.Type, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("messaging.system", system), attribute.String("messaging.operation.type", "send"), attribute.String("messaging.operation.name", "callback"),
		attribute.String("messaging.destination.name", g.Type), attribute.String("anteroom.group", g.ID), attribute.String("anteroom.tenant", g.Tenant),
		attribute.Int64("anteroom.attempt", g.CallbackTries+1), attribute.String("anteroom.state", string(g.Status))))
	return ctx, &Run{span}
}

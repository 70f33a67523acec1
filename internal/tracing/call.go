package tracing

import (
	"context"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Call begins the span of a POST that follows the span of ctx, and adds the trace context to the request's header. end ends the span, with the
// status of the response or an error. Where the span of ctx is recorded elsewhere only the header is written; without one nothing is done.
func Call(ctx context.Context, host string, header http.Header) (end func(status int, err error)) {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return func(int, error) {}
	}
	end = func(int, error) {}
	if parent := trace.SpanFromContext(ctx); parent.IsRecording() {
		_, span := parent.TracerProvider().Tracer(Scope).Start(ctx, http.MethodPost, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("http.request.method", http.MethodPost), attribute.String("server.address", host)))
		sc, end = span.SpanContext(), func(status int, err error) { endCall(span, status, err) }
	}
	parent, state := Format(sc)
	header.Set(ParentField, parent)
	if state != "" {
		header.Set(StateField, state)
	}
	return end
}

func endCall(span trace.Span, status int, err error) {
	if status > 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	switch {
	case err != nil:
		span.SetAttributes(attribute.String("error.type", "connection"))
		span.SetStatus(codes.Error, err.Error())
	case status >= 400:
		span.SetAttributes(attribute.String("error.type", strconv.Itoa(status)))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

package span

import (
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/tracing"
)

// Exchange is the span of an exchange with an origin.
type Exchange struct {
	span trace.Span
	// Parent and State are the traceparent and tracestate for the origin.
	Parent, State string
}

// Exchange starts the span of an exchange of a traced request with an origin.
func (r *Request) Exchange(verb, origin string) Exchange {
	name, attributes := method(verb)
	_, s := r.tracer.Start(r.ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...), trace.WithAttributes(attribute.String("anteroom.origin", origin)))
	x := Exchange{span: s}
	x.Parent, x.State = tracing.Format(s.SpanContext())
	return x
}

// End ends the span with the outcome of the exchange. path is that of the request.
func (x *Exchange) End(out *proxy.Outcome, path string) {
	s := x.span
	if u, err := url.Parse(out.Server); err == nil && u.Host != "" {
		s.SetAttributes(attribute.String("server.address", u.Hostname()), attribute.String("url.full", out.Server+path))
		if port, err := strconv.Atoi(u.Port()); err == nil {
			s.SetAttributes(attribute.Int("server.port", port))
		}
	}
	answered := out.Err == nil || out.Sent
	if answered {
		s.SetAttributes(attribute.Int("http.response.status_code", out.Status))
	}
	if out.FirstByte > 0 {
		s.SetAttributes(attribute.Float64("anteroom.first_byte_seconds", out.FirstByte.Seconds()))
	}
	switch {
	case out.Err != nil:
		s.SetAttributes(attribute.String("error.type", out.Kind))
		s.SetStatus(codes.Error, out.Err.Error())
	case out.Status >= 400: // of a client span; a server span counts 5xx only
		s.SetAttributes(attribute.String("error.type", statusText(out.Status)))
		s.SetStatus(codes.Error, "")
	}
	s.End()
}

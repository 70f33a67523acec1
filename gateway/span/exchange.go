package span

import (
	"net"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/tracing"
)

// Exchange is the span of an exchange with an origin.
type Exchange struct {
	span       trace.Span
	attributes []attribute.KeyValue
	// Parent and State are the traceparent and tracestate for the origin.
	Parent, State string
}

// Exchange starts the span of an exchange of a traced request with an origin.
func (r *Request) Exchange(verb, origin string) Exchange {
	name, attributes := method(verb)
	_, s := r.tracer.Start(r.ctx, name, trace.WithSpanKind(trace.SpanKindClient))
	x := Exchange{span: s, attributes: append(attributes, attribute.String("anteroom.origin", origin))}
	x.Parent, x.State = tracing.Format(s.SpanContext())
	return x
}

// End ends the span with the outcome of the exchange. path is that of the request.
func (x *Exchange) End(out *proxy.Outcome, path string) {
	s, all := x.span, x.attributes
	if _, authority, ok := strings.Cut(strings.TrimSuffix(out.Server, "/"), "://"); ok {
		host, port, err := net.SplitHostPort(authority)
		if err != nil { // without a port
			host = strings.Trim(authority, "[]")
		}
		all = append(all, attribute.String("server.address", host), attribute.String("url.full", strings.TrimSuffix(out.Server, "/")+path))
		if n, err := strconv.Atoi(port); err == nil {
			all = append(all, attribute.Int("server.port", n))
		}
	}
	if out.Err == nil || out.Sent {
		all = append(all, attribute.Int("http.response.status_code", out.Status))
	}
	if out.FirstByte > 0 {
		all = append(all, attribute.Float64("anteroom.first_byte_seconds", out.FirstByte.Seconds()))
	}
	switch {
	case out.Err != nil:
		all = append(all, attribute.String("error.type", out.Kind))
		s.SetStatus(codes.Error, out.Err.Error())
	case out.Status >= 400: // of a client span; a server span counts 5xx only
		all = append(all, attribute.String("error.type", statusText(out.Status)))
		s.SetStatus(codes.Error, "")
	}
	s.SetAttributes(all...)
	s.End()
}

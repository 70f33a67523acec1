package span

import (
	"net"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/tracing"
)

// Exchange is the span of an exchange with an origin.
type Exchange struct {
	tracing.Span
	verb, origin, path string
	out                proxy.Outcome // without its error
	fault              string        // the text of the error
}

// Exchange starts the span of an exchange of a traced request with an origin, and returns the traceparent and tracestate for the origin.
func (r *Request) Exchange(verb, origin string) (x *Exchange, parent, state string) {
	x = &Exchange{Span: r.tracer.Begin(r.span.SpanContext(), trace.SpanKindClient, time.Now()), verb: verb, origin: origin}
	parent, state = tracing.Format(x.SpanContext())
	return x, parent, state
}

// EndExchange ends the span with the outcome of the exchange. path is that of the request.
func (r *Request) EndExchange(x *Exchange, out *proxy.Outcome, path string) {
	x.End(time.Now())
	x.out, x.path = *out, path
	if x.out.Err = nil; out.Err != nil {
		x.fault = out.Err.Error()
	}
	r.tracer.Finish(x)
}

// Name returns the method.
func (x *Exchange) Name() string {
	name, _ := method(x.verb)
	return name
}

// Attributes describe the exchange.
func (x *Exchange) Attributes() []attribute.KeyValue {
	out := &x.out
	_, all := method(x.verb)
	all = append(all, attribute.String("anteroom.origin", x.origin))
	if _, authority, ok := strings.Cut(strings.TrimSuffix(out.Server, "/"), "://"); ok {
		host, port, err := net.SplitHostPort(authority)
		if err != nil { // without a port
			host = strings.Trim(authority, "[]")
		}
		all = append(all, attribute.String("server.address", host), attribute.String("url.full", strings.TrimSuffix(out.Server, "/")+x.path))
		if n, err := strconv.Atoi(port); err == nil {
			all = append(all, attribute.Int("server.port", n))
		}
	}
	if x.fault == "" || out.Sent {
		all = append(all, attribute.Int("http.response.status_code", out.Status))
	}
	if out.FirstByte > 0 {
		all = append(all, attribute.Float64("anteroom.first_byte_seconds", out.FirstByte.Seconds()))
	}
	switch {
	case x.fault != "":
		all = append(all, attribute.String("error.type", out.Kind))
	case out.Status >= 400: // of a client span; a server span counts 5xx only
		all = append(all, attribute.String("error.type", statusText(out.Status)))
	}
	return all
}

// Status reports whether the exchange failed.
func (x *Exchange) Status() (s sdk.Status) {
	switch {
	case x.fault != "":
		return sdk.Status{Code: codes.Error, Description: x.fault}
	case x.out.Status >= 400:
		s.Code = codes.Error
	}
	return s
}

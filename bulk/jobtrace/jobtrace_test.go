package jobtrace

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/tracing"
)

const (
	id, span  = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	sampled   = "00-" + id + "-" + span + "-01"
	unsampled = "00-" + id + "-" + span + "-00"
)

// newTracer returns a tracer for a share of submissions.
func newTracer(t *testing.T, share float64) *Tracer {
	t.Helper()
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(collector.Close)
	tracer, err := tracing.New(tracing.Options{Endpoint: collector.URL, Sample: share, Service: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracer.Shutdown(t.Context()) })
	var of Tracer
	of.Use(tracer)
	return &of
}

// What a job keeps of its submission depends on the caller's trace context first, then on the share.
func TestSubmit_KeepsTraceOfCaller(t *testing.T) {
	for _, row := range []struct {
		name, parent string
		tracer       *Tracer
		kept         bool // any trace
		callers      bool // the caller's trace
		own          bool // a span of ours in it
	}{
		{"no tracer, sampled caller", sampled, nil, true, true, false},
		{"no tracer, caller without a trace", "", nil, false, false, false},
		{"no tracer, caller that is not sampled", unsampled, nil, false, false, false},
		{"sampled caller", sampled, newTracer(t, 0), true, true, true},
		{"caller that is not sampled", unsampled, newTracer(t, 1), false, false, false},
		{"caller without a trace, all", "", newTracer(t, 1), true, false, true},
		{"caller without a trace, none", "", newTracer(t, 0), false, false, false},
		{"malformed", "00-" + id, newTracer(t, 0), false, false, false},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/jobs", nil)
		r.Header.Set("traceparent", row.parent)
		s := row.tracer.Submit(r, "/v1/jobs")
		got := trace.TraceID(s.Trace.ID).String()
		if (s.Trace != store.Trace{}) != row.kept || (got == id) != row.callers || (s.span != nil) != row.own {
			t.Errorf("%s: %v", row.name, s)
		}
		if row.callers && (trace.SpanID(s.Trace.Span).String() == span) == row.own {
			t.Errorf("%s: the span is %x", row.name, s.Trace.Span)
		}
		s.End("g", 1, errors.New("refused")) // without a span it does nothing
	}
}

// The context of a handler continues the submission, with a span of this process or without.
func TestRun_ContinuesSubmission(t *testing.T) {
	j := &store.Leased{ID: "j", Type: "mail", Trace: store.Trace{ID: [16]byte{1}, Span: [8]byte{2}, State: "a=1"}}
	for name, tracer := range map[string]*Tracer{"none": nil, "off": {}, "on": newTracer(t, 0)} {
		ctx, run := tracer.Run(t.Context(), j)
		h := http.Header{}
		end := tracing.Call(ctx, "example.com", h)
		parent := h.Get("traceparent")
		if h.Get("tracestate") != "a=1" {
			t.Errorf("%s: the tracestate is %q", name, h.Get("tracestate"))
		}
		if on := name == "on"; !strings.HasPrefix(parent, "00-01000000000000000000000000000000-") || strings.HasSuffix(parent, "-0200000000000000-01") == on || (run.TraceID() != "") != on {
			t.Errorf("%s: %q, %q", name, parent, run.TraceID())
		}
		end(500, nil)
		run.End("retry", "http_500", "it failed")
		if lease, state := tracer.Lease(j); state != "a=1" || !strings.HasPrefix(lease, "00-01") || strings.HasSuffix(lease, "-0200000000000000-01") == (name == "on") {
			t.Errorf("%s: the lease has %q and %q", name, lease, state)
		}
		ctx, run = tracer.Run(t.Context(), &store.Leased{ID: "k", Type: "mail"})
		h = http.Header{}
		tracing.Call(ctx, "example.com", h)(200, nil)
		if lease, _ := tracer.Lease(&store.Leased{}); run != nil || lease != "" || len(h) > 0 {
			t.Errorf("%s: a job without a trace has %v, %v", name, run, h)
		}
	}
}

// A group's callback continues the request that created the group.
func TestCallback_ContinuesCreation(t *testing.T) {
	g := &store.Group{GroupSpec: store.GroupSpec{ID: "g", Type: "mail", Trace: store.Trace{ID: [16]byte{1}, Span: [8]byte{2}, State: "a=1"}}}
	for name, tracer := range map[string]*Tracer{"none": nil, "off": {}, "on": newTracer(t, 0)} {
		ctx, run := tracer.Callback(t.Context(), g)
		h := http.Header{}
		tracing.Call(ctx, "example.com", h)(204, nil)
		run.End("done", "", "")
		parent := h.Get("traceparent")
		if on := name == "on"; h.Get("tracestate") != "a=1" || !strings.HasPrefix(parent, "00-01000000000000000000000000000000-") || strings.HasSuffix(parent, "-0200000000000000-01") == on {
			t.Errorf("%s: %q, %q", name, parent, h.Get("tracestate"))
		}
		if ctx, run := tracer.Callback(t.Context(), &store.Group{}); run != nil || ctx != t.Context() {
			t.Errorf("%s: a group without a trace has %v", name, run)
		}
	}
}

// A tracestate is kept if it is not longer than the specification asks for, and if it can be read.
func TestSubmit_KeepsTraceState(t *testing.T) {
	long := strings.Repeat("a", 256)
	for state, want := range map[string]string{
		"a=1,b=2": "a=1,b=2", "not a list": "", "a=" + long + ",b=" + long: "", "a=" + long + ",b=" + long[:251]: "a=" + long + ",b=" + long[:251],
	} {
		for name, tracer := range map[string]*Tracer{"off": nil, "on": newTracer(t, 0)} {
			r := httptest.NewRequest(http.MethodPost, "/v1/jobs", nil)
			r.Header.Set("traceparent", sampled)
			r.Header.Set("tracestate", state)
			if s := tracer.Submit(r, "/v1/jobs"); s.Trace.State != want || s.Trace.ID == ([16]byte{}) {
				t.Errorf("%s: of %q %q is kept, want %q", name, state, s.Trace.State, want)
			}
		}
	}
}

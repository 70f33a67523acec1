package e2e

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// otlp receives traces by OTLP over HTTP.
type otlp struct {
	*httptest.Server
	t testing.TB

	mu     sync.Mutex
	status int // of the next responses; 0: 200
	auth   string
	spans  []received
}

// received is a span with the resource that sent it.
type received struct {
	*trace.Span
	service string
}

func newOTLP(t testing.TB) *otlp {
	o := &otlp{t: t}
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return o
}

func (o *otlp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.status != 0 {
		w.WriteHeader(o.status)
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		o.t.Errorf("%s %s %s is not OTLP", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			o.t.Error(err)
			return
		}
		body = unzipped
	}
	data, err := io.ReadAll(body)
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &sent)
	}
	if err != nil {
		o.t.Errorf("an export cannot be read: %v", err)
	}
	o.auth = r.Header.Get("Authorization")
	for _, resource := range sent.ResourceSpans {
		service := attributeOf(resource.Resource.Attributes, "service.name")
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				o.spans = append(o.spans, received{s, service})
			}
		}
	}
	answer, err := proto.Marshal(&collector.ExportTraceServiceResponse{})
	if err != nil {
		o.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer)
}

// fail makes the next exports fail with a status; 0: they succeed again.
func (o *otlp) fail(status int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status = status
}

// all returns the spans so far that fit.
func (o *otlp) all(fits func(received) bool) []received {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []received
	for _, s := range o.spans {
		if fits(s) {
			list = append(list, s)
		}
	}
	return list
}

// await waits for n spans that fit, and returns them.
func (o *otlp) await(n int, what string, fits func(received) bool) []received {
	o.t.Helper()
	var list []received
	if !eventually(patience, func() bool { list = o.all(fits); return len(list) >= n }) {
		var names []string
		for _, s := range o.all(func(received) bool { return true }) {
			names = append(names, fmt.Sprint(s))
		}
		o.t.Fatalf("%d spans of %s, want %d; there are\n%s", len(list), what, n, strings.Join(names, "\n"))
	}
	return list
}

// one waits for the span that fits.
func (o *otlp) one(what string, fits func(received) bool) received {
	o.t.Helper()
	list := o.await(1, what, fits)
	if len(list) > 1 {
		o.t.Fatalf("%d spans of %s: %v", len(list), what, list)
	}
	return list[0]
}

// attributeOf returns an attribute as text, empty without one.
func attributeOf(list []*common.KeyValue, key string) string {
	for _, a := range list {
		if a.Key != key {
			continue
		}
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			return v.StringValue
		case *common.AnyValue_IntValue:
			return fmt.Sprint(v.IntValue)
		case *common.AnyValue_DoubleValue:
			return fmt.Sprint(v.DoubleValue)
		}
	}
	return ""
}

func (s received) attribute(key string) string { return attributeOf(s.Attributes, key) }

func (s received) trace() string  { return hex.EncodeToString(s.TraceId) }
func (s received) id() string     { return hex.EncodeToString(s.SpanId) }
func (s received) parent() string { return hex.EncodeToString(s.ParentSpanId) }

// linksTo reports whether the span has a link to another.
func (s received) linksTo(other received) bool {
	for _, l := range s.Links {
		if hex.EncodeToString(l.TraceId) == other.trace() && hex.EncodeToString(l.SpanId) == other.id() {
			return true
		}
	}
	return false
}

// wants compares attributes.
func (s received) wants(t testing.TB, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got := s.attribute(key); got != value {
			t.Errorf("%s of %q is %q, want %q", key, s.Name, got, value)
		}
	}
}

func (s received) String() string {
	return fmt.Sprintf("%s %s %q (%s) in %s", s.service, s.Kind, s.Name, s.attribute("url.path"), s.trace())
}

// named returns a condition on the name of a span.
func named(name string) func(received) bool {
	return func(s received) bool { return s.Name == name }
}

package tracing

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver counts the spans that it receives, and fails while broken.
type receiver struct {
	*httptest.Server
	broken atomic.Bool
	spans  atomic.Int64
	path   atomic.Value
	asked  chan struct{}   // receives for each request
	held   <-chan struct{} // until it is closed, no request is answered; nil: all are
}

// hold keeps requests from being answered until release is closed.
func (r *receiver) hold(release <-chan struct{}) { r.held = release }

func newReceiver(t *testing.T) *receiver {
	r := &receiver{asked: make(chan struct{}, 1000)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		var sent collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		if err != nil {
			t.Error(err)
		}
		r.path.Store(q.URL.Path)
		r.asked <- struct{}{}
		if r.held != nil {
			<-r.held
		}
		if r.broken.Load() {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, resource := range sent.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				r.spans.Add(int64(len(scope.Spans)))
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func newTracer(t *testing.T, o Options) *Tracer {
	t.Helper()
	o.Service, o.exportEvery = "test", time.Millisecond
	tracer, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracer.Shutdown(context.Background()) })
	return tracer
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("it is still not so: %s", what)
		}
	}
}

// The share decides about chances and ids; every tracer with a share chooses the same ids.
func TestTracer_SamplesShare(t *testing.T) {
	to := newReceiver(t)
	for _, share := range []float64{0, 0.01, 0.25, 1} {
		one, other := newTracer(t, Options{Endpoint: to.URL, Sample: share}), newTracer(t, Options{Endpoint: to.URL, Sample: share})
		const n = 200_000
		chances, chosen := 0, 0
		for i := range n {
			var id [16]byte
			binary.BigEndian.PutUint64(id[:], uint64(i)*0x9e3779b97f4a7c15)
			if one.Chance() {
				chances++
			}
			if one.Chooses(id) != other.Chooses(id) {
				t.Fatalf("two tracers of %v differ about %x", share, id)
			}
			if one.Chooses(id) {
				chosen++
			}
		}
		for what, got := range map[string]int{"chances": chances, "ids": chosen} {
			if got := float64(got) / n; got < share*0.9 || got > share*1.1 || share == 1 && got != 1 {
				t.Errorf("of %s a share of %v was chosen, want %v", what, got, share)
			}
		}
	}
	all := newTracer(t, Options{Endpoint: to.URL, Sample: 1})
	if !all.Chooses([16]byte(bytes.Repeat([]byte{0xff}, 16))) {
		t.Error("a share of 1 leaves out the largest id")
	}
}

// A root span has the ids that its id stands for, and others random ones that are valid.
func TestRoot_IsStartedAs(t *testing.T) {
	tracer := newTracer(t, Options{Endpoint: newReceiver(t).URL})
	id := [16]byte{0: 1, 7: 2, 8: 3, 15: 4}
	_, root := tracer.Start(As(t.Context(), Root(id)), "root", trace.WithNewRoot())
	if sc := root.SpanContext(); sc.TraceID() != trace.TraceID(id) || sc.SpanID() != trace.SpanID(id[8:]) {
		t.Errorf("%v", sc)
	}
	if sc := Root([16]byte{0: 1}); !sc.IsValid() {
		t.Errorf("%v is not valid", sc)
	}
	_, child := tracer.Start(trace.ContextWithRemoteSpanContext(t.Context(), Root(id)), "child")
	if sc := child.SpanContext(); sc.TraceID() != trace.TraceID(id) || sc.SpanID() == trace.SpanID(id[8:]) || !sc.IsValid() {
		t.Errorf("%v", sc)
	}
}

func TestParse_ReadsTraceContext(t *testing.T) {
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, row := range []struct {
		parent, state string
		ok            bool
		sampled       bool
		back          string // the tracestate that Format returns
	}{
		{"00-" + id + "-" + span + "-01", "a=1,b=2", true, true, "a=1,b=2"},
		{"00-" + id + "-" + span + "-00", "", true, false, ""},
		{"00-" + id + "-" + span + "-01", "not a list", true, true, ""},
		{"cc-" + id + "-" + span + "-01-more", "", true, true, ""},
		{"ff-" + id + "-" + span + "-01", "", false, false, ""},
		{"00-" + strings.Repeat("0", 32) + "-" + span + "-01", "", false, false, ""},
		{"00-" + strings.ToUpper(id) + "-" + span + "-01", "", false, false, ""},
		{"00-" + id + "-" + span, "", false, false, ""},
		{"00-" + id + "0" + span + "-00", "", false, false, ""},
		{"00-" + strings.ToUpper(id) + "-" + span + "-00", "", false, false, ""},
		{"00-" + id + "-" + strings.Repeat("0", 16) + "-00", "", false, false, ""},
		{"ff-" + id + "-" + span + "-00", "", false, false, ""},
		{"", "a=1", false, false, ""},
	} {
		sc, ok := Parse(row.parent, row.state)
		if ok != row.ok || sc.IsSampled() != row.sampled {
			t.Errorf("%q: %v, %v", row.parent, sc, ok)
		}
		if !ok {
			continue
		}
		parent, state := Format(sc)
		if want := "00-" + id + "-" + span + "-0" + map[bool]string{true: "1", false: "0"}[row.sampled]; parent != want || state != row.back {
			t.Errorf("%q and %q became %q and %q", row.parent, row.state, parent, state)
		}
	}
}

// What Parse reads itself means what the library for the specification reads.
func TestParse_AgreesWithLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hex := func(n int) string { return rapid.StringMatching(fmt.Sprintf("[0-9a-f]{%d}", n)).Draw(t, "hex") }
		parts := []string{rapid.SampledFrom([]string{"00", "00", "00", "01", "ff"}).Draw(t, "version"), hex(32), hex(16), rapid.SampledFrom([]string{"00", "01", "02", "03", "04", "0f"}).Draw(t, "flags")}
		if rapid.Bool().Draw(t, "zero") {
			i := rapid.IntRange(1, 2).Draw(t, "id")
			parts[i] = strings.Repeat("0", len(parts[i]))
		}
		parent := []byte(strings.Join(parts, "-"))
		if rapid.Bool().Draw(t, "changed") {
			parent[rapid.IntRange(0, len(parent)-1).Draw(t, "at")] = byte(rapid.SampledFrom([]rune("0fFgG-_ ")).Draw(t, "byte"))
		}
		want := trace.SpanContextFromContext(w3c.Extract(context.Background(), &pair{parent: string(parent)}))
		if got, ok := Parse(parent, nil); ok != want.IsValid() || !got.Equal(want) {
			t.Fatalf("%q: %v, %v, want %v", parent, got, ok, want)
		}
		if !want.IsValid() {
			return
		}
		carrier := propagation.MapCarrier{}
		w3c.Inject(trace.ContextWithSpanContext(context.Background(), want), carrier)
		if parent, _ := Format(want); parent != carrier["traceparent"] {
			t.Fatalf("%v is written %q, want %q", want, parent, carrier["traceparent"])
		}
	})
}

// A traceparent that is not sampled, as most are, costs no allocation.
func TestParse_UnsampledAllocatesNothing(t *testing.T) {
	parent := []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
	if n := testing.AllocsPerRun(100, func() {
		if sc, ok := Parse(parent, parent); !ok || sc.IsSampled() {
			t.Error(sc, ok)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Spans that end are exported together. Half of the queue does not wait for the time of an export, and what does not fit is dropped.
func TestQueue_ExportsBatchesAndDropsTheRest(t *testing.T) {
	to, release := newReceiver(t), make(chan struct{})
	to.hold(release)
	m := NewMetrics(prometheus.NewRegistry(), "test")
	tracer, err := New(Options{Endpoint: to.URL, Service: "test", Metrics: m, exportEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	end := func(n int) {
		for range n {
			s := &record{Span: tracer.Begin(trace.SpanContext{}, trace.SpanKindServer, time.Now())}
			s.End(time.Now())
			tracer.Finish(s)
		}
	}
	end(queueSize/2 - 1)
	select {
	case <-to.asked:
		t.Fatal("less than half of the queue is exported at once")
	default:
	}
	end(1)
	<-to.asked // half of the queue is exported, and the collector does not respond
	end(queueSize + 10)
	close(release)
	if err := tracer.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	end(1) // after the end
	if got := to.spans.Load(); got != queueSize/2+queueSize {
		t.Errorf("%d spans arrived, want %d", got, queueSize/2+queueSize)
	}
	if got := testutil.ToFloat64(m.ended); got != queueSize/2+queueSize+11 {
		t.Errorf("%v spans have ended", got)
	}
}

// A span costs its caller one allocation.
func TestSpan_CostsOneAllocation(t *testing.T) {
	tracer, err := New(Options{Endpoint: newReceiver(t).URL, Service: "test", exportEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if n := testing.AllocsPerRun(1000, func() {
		s := &record{Span: tracer.Begin(trace.SpanContext{}, trace.SpanKindServer, now)}
		s.End(now)
		tracer.Finish(s)
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
	if err := tracer.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// record is a span without attributes.
type record struct{ Span }

func (*record) Name() string                     { return "span" }
func (*record) Attributes() []attribute.KeyValue { return nil }

// A collector that fails costs its spans; the failure and its end are logged once each, and all spans are counted.
func TestExporter_ReportsFailures(t *testing.T) {
	to, registry := newReceiver(t), prometheus.NewRegistry()
	var log lockedLog
	m := NewMetrics(registry, "test")
	tracer := newTracer(t, Options{Endpoint: to.URL + "/v1/other", Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: m})
	send := func() {
		_, s := tracer.Start(t.Context(), "span")
		s.End()
	}
	to.broken.Store(true)
	for n := range 3 {
		send()
		eventually(t, "the failure is counted", func() bool { return testutil.ToFloat64(m.failed) == float64(n+1) })
	}
	to.broken.Store(false)
	send()
	eventually(t, "the span arrives", func() bool { return testutil.ToFloat64(m.exported) == 1 })
	if err := tracer.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if got := log.String(); strings.Count(got, "cannot export traces") != 1 || strings.Count(got, "exported again") != 1 {
		t.Errorf("%s", got)
	}
	if to.spans.Load() != 1 || testutil.ToFloat64(m.ended) != 4 || to.path.Load() != "/v1/other" {
		t.Errorf("%d spans arrived at %v, %v ended", to.spans.Load(), to.path.Load(), testutil.ToFloat64(m.ended))
	}
}

func TestNew_RefusesEndpoints(t *testing.T) {
	for _, endpoint := range []string{"", "127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://", "http://a b"} {
		if _, err := New(Options{Endpoint: endpoint}); err == nil {
			t.Errorf("%q is accepted", endpoint)
		}
	}
}

// A reload with the same options keeps the tracer; with others the former one sends what it has and ends.
func TestKeeper_EndsFormerTracers(t *testing.T) {
	one, two := newReceiver(t), newReceiver(t)
	var k Keeper
	use := func(o Options) *Tracer {
		t.Helper()
		o.Service = "test"
		tracer, err := k.Use(o)
		if err != nil {
			t.Fatal(err)
		}
		k.Settle(o, tracer)
		return tracer
	}
	if use(Options{}) != nil {
		t.Error("there is a tracer without an endpoint")
	}
	first := use(Options{Endpoint: one.URL, Headers: map[string]string{"a": "1"}})
	if again := use(Options{Endpoint: one.URL, Headers: map[string]string{"a": "1"}}); again != first {
		t.Error("the same options have made another tracer")
	}
	_, s := first.Start(t.Context(), "span")
	s.End()
	second := use(Options{Endpoint: two.URL})
	if dropped, err := k.Use(Options{Endpoint: one.URL, Service: "test"}); err != nil || dropped == second {
		t.Fatal(dropped, err)
	} else {
		k.Drop(dropped)
	}
	_, s = second.Start(t.Context(), "span")
	s.End()
	k.Close(t.Context())
	if one.spans.Load() != 1 || two.spans.Load() != 1 {
		t.Errorf("%d and %d spans arrived", one.spans.Load(), two.spans.Load())
	}
}

// lockedLog is a log that several goroutines write.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

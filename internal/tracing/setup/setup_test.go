package setup

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A tracer that is not taken into use ends; the former one stays.
func TestTraces_KeepFormerTracerAfterFailure(t *testing.T) {
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer collector.Close()
	traces := Traces{Program: Program{Service: "test"}}
	defer traces.Close()
	var used *tracing.Tracer
	take := func(tracer *tracing.Tracer) error { used = tracer; return nil }
	if err := traces.Reload(&config.Tracing{OTLPEndpoint: collector.URL}, take); err != nil || used == nil {
		t.Fatal(used, err)
	}
	first, refused := used, errors.New("refused")
	var offered *tracing.Tracer
	if err := traces.Reload(&config.Tracing{OTLPEndpoint: collector.URL, Sample: 0.5}, func(tracer *tracing.Tracer) error { offered = tracer; return refused }); !errors.Is(err, refused) || offered == first {
		t.Errorf("%v", err)
	}
	if err := traces.Reload(&config.Tracing{OTLPEndpoint: collector.URL}, take); err != nil || used != first {
		t.Errorf("the same settings have another tracer after a failed reload: %v", err)
	}
	if err := traces.Reload(&config.Tracing{OTLPEndpoint: collector.URL, HeadersFile: t.TempDir() + "/missing"}, take); err == nil {
		t.Error("a missing headers_file is accepted")
	}
	if err := traces.Reload(&config.Tracing{}, take); err != nil || used != nil {
		t.Errorf("without an endpoint there is %v, %v", used, err)
	}
}

// A collector that hangs does not delay the end of the program beyond its shutdown.
func TestTraces_CloseEndsWithShutdown(t *testing.T) {
	asked, release := make(chan struct{}, 10), make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	defer collector.Close()
	defer close(release)
	traces := Traces{Program: Program{Service: "test"}, flush: time.Minute}
	var tracer *tracing.Tracer
	if err := traces.Reload(&config.Tracing{OTLPEndpoint: collector.URL}, func(next *tracing.Tracer) error { tracer = next; return nil }); err != nil {
		t.Fatal(err)
	}
	_, span := tracer.Start(t.Context(), "span")
	span.End()
	<-asked // the export of the running program hangs
	ctx, stop := context.WithCancel(t.Context())
	traces.EndWith(ctx, -time.Hour)
	stop()
	for traces.end.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	traces.Close()
	if took := time.Since(began); took >= 8*time.Second { // the timeout of an export is 10 s
		t.Errorf("Close has taken %s after the time of the shutdown was over", took)
	}
}

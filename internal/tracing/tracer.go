package tracing

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options of a Tracer. Endpoint and Service are required.
type Options struct {
	// Endpoint is the URL of the collector, http or https. Without a path the spans are posted to /v1/traces.
	Endpoint string
	Headers  map[string]string // of each export
	// Sample is the share of chances and of ids that are traced, from 0 to 1.
	Sample           float64
	Service, Version string // of the resource; an empty version is left out
	Log              *slog.Logger
	Metrics          *Metrics // nil: not counted
	exportEvery      time.Duration
}

// Tracer records spans and sends them. Its methods are safe for concurrent use. A nil *Tracer stands for no tracing: callers compare.
type Tracer struct {
	provider  *sdk.TracerProvider
	tracer    trace.Tracer
	template  sdk.ReadOnlySpan // with the resource and the scope, for Span
	queue     *queue
	threshold uint64 // of the first 63 bits of an id
}

// Scope names the instrumentation in exported spans.
const Scope = "github.com/anteroom/anteroom"

// Bounds of the exporter. Spans beyond the queue are dropped, so that a slow collector costs memory of this size and no time.
const (
	queueSize     = 4096
	batchSize     = 512
	exportEvery   = time.Second
	exportTimeout = 10 * time.Second
)

// New returns a tracer, whose exporter runs until Shutdown. It does not wait for the collector.
func New(o Options) (*Tracer, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("tracing: the endpoint is not a URL of http or https")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	client, err := otlptracehttp.New(context.Background(), // connects with the first export
		otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithHeaders(o.Headers), otlptracehttp.WithTimeout(exportTimeout))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	every := o.exportEvery
	if every <= 0 {
		every = exportEvery
	}
	attributes := []attribute.KeyValue{attribute.String("service.name", o.Service)}
	if o.Version != "" {
		attributes = append(attributes, attribute.String("service.version", o.Version))
	}
	about, err := resource.New(context.Background(), resource.WithHost(), resource.WithProcessPID(), resource.WithTelemetrySDK(),
		resource.WithFromEnv(), resource.WithAttributes(attributes...))
	if about == nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	t := &Tracer{
		threshold: uint64(math.Round(min(max(o.Sample, 0), 1) * (1 << 63))),
		queue:     newQueue(&exporter{to: client, log: o.Log, metrics: o.Metrics}, o.Metrics, every),
	}
	t.provider = sdk.NewTracerProvider(
		sdk.WithSampler(sdk.AlwaysSample()), // the callers have decided
		sdk.WithIDGenerator(ids{}), sdk.WithResource(about), sdk.WithSpanProcessor(t.queue))
	t.tracer = t.provider.Tracer(Scope)
	_, first := t.tracer.Start(context.Background(), "") // never ended
	t.template = first.(sdk.ReadOnlySpan)
	return t, nil
}

// Chance reports whether something without an id of its own is traced.
func (t *Tracer) Chance() bool {
	return rand.Uint64()>>1 < t.threshold //nolint:gosec // no security depends on what is traced
}

// Chooses reports whether what an id names is traced. Every process with the same share chooses the same ids; the first eight bytes of an
// id have to be random.
func (t *Tracer) Chooses(id [16]byte) bool {
	return binary.BigEndian.Uint64(id[:8])>>1 < t.threshold
}

// Start starts a span, the parent of which is that of ctx.
func (t *Tracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name, options...)
}

// Shutdown sends the spans that have ended and stops the exporter. Later spans are dropped.
func (t *Tracer) Shutdown(ctx context.Context) error {
	err := t.queue.Shutdown(ctx) // the provider would not call it after the end of ctx
	return errors.Join(err, t.provider.Shutdown(ctx))
}

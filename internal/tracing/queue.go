package tracing

import (
	"context"
	"sync"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// queue holds spans that have ended until they are exported, once every period or as soon as it is half full. Unlike the SDK's batch
// processor it wakes no goroutine for a span: under load, waking one costs more than recording the span.
type queue struct {
	out     *exporter
	metrics *Metrics
	every   time.Duration

	mu     sync.Mutex
	spans  []sdk.ReadOnlySpan // at most queueSize
	ending bool               // spans that end now are dropped

	spare    []sdk.ReadOnlySpan // memory of the last export, used by run only
	half     chan struct{}      // the queue is half full
	stopping chan struct{}      // closed: run exports what is left and returns
	ended    chan struct{}      // closed when run has returned
	abort    context.CancelFunc // cancels the exports
}

func newQueue(out *exporter, metrics *Metrics, every time.Duration) *queue {
	ctx, abort := context.WithCancel(context.Background())
	q := &queue{
		out: out, metrics: metrics, every: every,
		half: make(chan struct{}, 1), stopping: make(chan struct{}), ended: make(chan struct{}), abort: abort,
	}
	go q.run(ctx)
	return q
}

func (*queue) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd takes a span that has ended. A span beyond queueSize is dropped.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	if q.metrics != nil {
		q.metrics.ended.Inc()
	}
	q.mu.Lock()
	if q.ending || len(q.spans) >= queueSize {
		q.mu.Unlock()
		return
	}
	q.spans = append(q.spans, s)
	full := len(q.spans) == queueSize/2
	q.mu.Unlock()
	if !full {
		return
	}
	select {
	case q.half <- struct{}{}:
	default: // run has not seen the last signal yet
	}
}

// run exports until the queue is stopped.
func (q *queue) run(ctx context.Context) {
	defer close(q.ended)
	tick := time.NewTicker(q.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			q.export(ctx)
		case <-q.half:
			q.export(ctx)
		case <-q.stopping:
			q.export(ctx)
			return
		}
	}
}

// export exports the spans that are waiting now.
func (q *queue) export(ctx context.Context) {
	q.mu.Lock()
	spans := q.spans
	q.spans = q.spare
	q.mu.Unlock()
	for rest := spans; len(rest) > 0; {
		n := min(len(rest), batchSize)
		q.send(ctx, rest[:n])
		rest = rest[n:]
	}
	clear(spans)
	q.spare = spans[:0]
}

func (q *queue) send(ctx context.Context, spans []sdk.ReadOnlySpan) {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	q.out.export(ctx, spans)
}

// ForceFlush does nothing: no caller needs it.
func (*queue) ForceFlush(context.Context) error { return nil }

// Shutdown exports the spans that have ended and stops. An export that runs when ctx ends is cut. Only the first call does anything.
func (q *queue) Shutdown(ctx context.Context) error {
	q.mu.Lock()
	again := q.ending
	q.ending = true
	q.mu.Unlock()
	if again {
		return nil
	}
	defer q.abort()
	defer context.AfterFunc(ctx, q.abort)()
	close(q.stopping)
	<-q.ended
	return q.out.to.Shutdown(ctx)
}

package tracing

import (
	"context"
	"maps"
	"sync"
	"time"
)

// Keeper keeps the tracer of a program across reloads.
type Keeper struct {
	mu      sync.Mutex
	options Options
	current *Tracer
	retired sync.WaitGroup
}

// Use returns the tracer of the options: the current one where they have not changed, nil without an endpoint. Settle has to be called when
// the returned tracer is in use.
func (k *Keeper) Use(o Options) (*Tracer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o.Endpoint == "" {
		return nil, nil
	}
	if k.current != nil && same(o, k.options) {
		return k.current, nil
	}
	return New(o)
}

func same(a, b Options) bool {
	return a.Endpoint == b.Endpoint && maps.Equal(a.Headers, b.Headers) && a.Sample == b.Sample && a.Service == b.Service && a.Version == b.Version
}

// flushFor bounds how long a tracer that is no longer used sends what it has.
const flushFor = 2 * time.Second

// Settle makes the tracer that Use returned for the options the current one. The former one sends what it has and ends.
func (k *Keeper) Settle(o Options, t *Tracer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.current
	k.options, k.current = o, t
	if old != nil && old != t {
		k.retired.Go(func() { flush(old) })
	}
}

// Drop ends a tracer that Use returned and that is not used after all.
func (k *Keeper) Drop(t *Tracer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t != nil && t != k.current {
		k.retired.Go(func() { flush(t) })
	}
}

// Close sends what the tracer has until ctx ends, and ends it. It does not wait longer for former tracers.
func (k *Keeper) Close(ctx context.Context) {
	k.mu.Lock()
	t := k.current
	k.current = nil
	k.mu.Unlock()
	if t != nil {
		_ = t.Shutdown(ctx) // the exporter logs its failures
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.retired.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

func flush(t *Tracer) {
	ctx, cancel := context.WithTimeout(context.Background(), flushFor)
	defer cancel()
	_ = t.Shutdown(ctx) // as above
}

// Package setup keeps the tracer of a program as its configuration asks for.
package setup

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/tracing"
)

// Program is a program that is traced. Service is the usual service.name.
type Program struct {
	Service, Version string
	Metrics          *tracing.Metrics // nil: not counted
	Log              *slog.Logger
}

// Options returns the options of the tracer.
func (p *Program) Options(cfg *config.Tracing) (tracing.Options, error) {
	headers, err := cfg.Headers()
	if err != nil {
		return tracing.Options{}, fmt.Errorf("tracing.headers_file: %w", err)
	}
	return tracing.Options{
		Endpoint: cfg.OTLPEndpoint, Headers: headers, Sample: cfg.Sample, Service: cmp.Or(cfg.ServiceName, p.Service), Version: p.Version, Log: p.Log, Metrics: p.Metrics,
	}, nil
}

// Traces is the tracer of a program, across reloads.
type Traces struct {
	Program
	keeper tracing.Keeper
	end    atomic.Pointer[time.Time] // when Close has to have returned; nil: not known yet
	flush  time.Duration             // how long Close sends spans; 0: flushFor
}

// flushFor bounds how long Close sends spans.
const flushFor = 2 * time.Second

// Reload calls use with the tracer of a configuration; nil: none. The former tracer ends after use, and the new one where use fails.
func (t *Traces) Reload(cfg *config.Tracing, use func(*tracing.Tracer) error) error {
	options, err := t.Options(cfg)
	if err != nil {
		return err
	}
	next, err := t.keeper.Use(options)
	if err != nil {
		return err
	}
	if err := use(next); err != nil {
		t.keeper.Drop(next)
		return err
	}
	t.keeper.Settle(options, next)
	return nil
}

// EndWith bounds Close: it returns within d from the end of ctx, at which the shutdown begins.
func (t *Traces) EndWith(ctx context.Context, d time.Duration) {
	context.AfterFunc(ctx, func() {
		end := time.Now().Add(d)
		t.end.Store(&end)
	})
}

// Close sends the spans that are left, for two seconds at most and not beyond the time of EndWith.
func (t *Traces) Close() {
	end := time.Now().Add(cmp.Or(t.flush, flushFor))
	if bound := t.end.Load(); bound != nil && bound.Before(end) {
		end = *bound
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	t.keeper.Close(ctx)
}

package main

import (
	"cmp"
	"fmt"
	"log/slog"

	"github.com/anteroom/anteroom/bulk/jobtrace"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/tracing"
)

// service is the usual name of the program in traces.
const service = "anteroom-bulkworker"

// traces are the tracer of jobs and what it sends spans with.
type traces struct {
	jobtrace.Tracer
	keeper  tracing.Keeper
	metrics *tracing.Metrics
	log     *slog.Logger
}

// traceOptions returns the options of the tracer.
func traceOptions(cfg *config.Bulk, m *tracing.Metrics, log *slog.Logger) (tracing.Options, error) {
	t := &cfg.Tracing
	headers, err := t.Headers()
	if err != nil {
		return tracing.Options{}, fmt.Errorf("tracing.headers_file: %w", err)
	}
	name, _ := cli.BuildVersion(version)
	return tracing.Options{
		Endpoint: t.OTLPEndpoint, Headers: headers, Sample: t.Sample, Service: cmp.Or(t.ServiceName, service), Version: name, Log: log, Metrics: m,
	}, nil
}

// use puts the settings of a configuration in force.
func (t *traces) use(cfg *config.Bulk) error {
	o, err := traceOptions(cfg, t.metrics, t.log)
	if err != nil {
		return err
	}
	next, err := t.keeper.Use(o)
	if err != nil {
		return err
	}
	t.Use(next)
	t.keeper.Settle(o, next)
	return nil
}

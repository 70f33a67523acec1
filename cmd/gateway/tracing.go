package main

import (
	"cmp"
	"fmt"
	"log/slog"

	"github.com/anteroom/anteroom/gateway"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/tracing"
)

// service is the usual name of the program in traces.
const service = "anteroom-gateway"

// traceOptions returns the options of the tracer.
func traceOptions(cfg *config.Config, m *tracing.Metrics, log *slog.Logger) (tracing.Options, error) {
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

// traces keeps the tracer of the gateway.
type traces struct {
	tracing.Keeper
	metrics *tracing.Metrics
	log     *slog.Logger
}

// reload calls load with the options and the tracer of a configuration. The former tracer ends after load, and the new one where load fails.
func (t *traces) reload(cfg *config.Config, o *gateway.Options, load func(gateway.Options) error) error {
	options, err := traceOptions(cfg, t.metrics, t.log)
	if err != nil {
		return err
	}
	if o.Tracer, err = t.Use(options); err != nil {
		return err
	}
	if err := load(*o); err != nil {
		t.Drop(o.Tracer)
		return err
	}
	t.Settle(options, o.Tracer)
	return nil
}

package main

import (
	"log/slog"

	"github.com/anteroom/anteroom/bulk/jobtrace"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/tracing"
	"github.com/anteroom/anteroom/internal/tracing/setup"
)

// traces are the tracer of jobs and what it sends spans with.
type traces struct {
	jobtrace.Tracer
	sent setup.Traces
}

// traced returns the bulk worker as traces name it.
func traced(m *tracing.Metrics, log *slog.Logger) setup.Program {
	name, _ := cli.BuildVersion(version)
	return setup.Program{Service: "anteroom-bulkworker", Version: name, Metrics: m, Log: log}
}

// use puts the settings of a configuration in force.
func (t *traces) use(cfg *config.Bulk) error {
	return t.sent.Reload(&cfg.Tracing, func(next *tracing.Tracer) error { t.Use(next); return nil })
}

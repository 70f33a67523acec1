package main

import (
	"log/slog"

	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/tracing"
	"github.com/anteroom/anteroom/internal/tracing/setup"
)

// traced returns the gateway as traces name it.
func traced(m *tracing.Metrics, log *slog.Logger) setup.Program {
	name, _ := cli.BuildVersion(version)
	return setup.Program{Service: "anteroom-gateway", Version: name, Metrics: m, Log: log}
}

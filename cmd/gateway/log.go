package main

import (
	"io"
	"log/slog"

	"github.com/anteroom/anteroom/internal/config"
)

// newLogger writes to w in the format and from the level of the configuration.
func newLogger(c config.Log, w io.Writer) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	options := &slog.HandlerOptions{Level: levels[c.Level]}
	if c.Format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

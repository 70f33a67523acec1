// Package logs creates the programs' loggers, and a Queue for their output, so that a reader that hangs does not stop the program.
package logs

import (
	"io"
	"log/slog"
)

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// New returns a logger that writes messages of level (debug, info, warn, error) and above to w: as key=value text if format is
// text, and as JSON otherwise.
func New(level, format string, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: levels[level]}
	if format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

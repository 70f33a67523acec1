package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/config"
)

func TestLoggerFollowsTheConfiguration(t *testing.T) {
	for _, row := range []struct {
		log  config.Log
		want string // what is left of the time stamp, level by level
	}{
		{config.Log{Level: "debug", Format: "json"}, `"level":"DEBUG","msg":"d"} "level":"INFO","msg":"i"} "level":"WARN","msg":"w"}`},
		{config.Log{Level: "info", Format: "json"}, `"level":"INFO","msg":"i"} "level":"WARN","msg":"w"}`},
		{config.Log{Level: "warn", Format: "text"}, `level=WARN msg=w`},
		{config.Log{Level: "error", Format: "text"}, ``},
	} {
		var out bytes.Buffer
		log := newLogger(row.log, &out)
		log.Debug("d")
		log.Info("i")
		log.Warn("w")
		var lines []string
		for line := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(strings.TrimSpace(line), map[string]string{"json": ",", "text": " "}[row.log.Format])
			lines = append(lines, rest)
		}
		if got := strings.Join(lines, " "); got != row.want {
			t.Errorf("%+v: got %s, want %s", row.log, got, row.want)
		}
	}
}

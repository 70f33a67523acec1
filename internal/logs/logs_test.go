package logs

import (
	"bytes"
	"strings"
	"testing"
)

func TestNew_FollowsTheConfiguration(t *testing.T) {
	for _, row := range []struct {
		level, format string
		want          string // what is left of the time stamp, level by level
	}{
		{"debug", "json", `"level":"DEBUG","msg":"d"} "level":"INFO","msg":"i"} "level":"WARN","msg":"w"}`},
		{"info", "json", `"level":"INFO","msg":"i"} "level":"WARN","msg":"w"}`},
		{"warn", "text", `level=WARN msg=w`},
		{"error", "text", ``},
	} {
		var out bytes.Buffer
		log := New(row.level, row.format, &out)
		log.Debug("d")
		log.Info("i")
		log.Warn("w")
		var lines []string
		for line := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(strings.TrimSpace(line), map[string]string{"json": ",", "text": " "}[row.format])
			lines = append(lines, rest)
		}
		if got := strings.Join(lines, " "); got != row.want {
			t.Errorf("%s, %s: got %s, want %s", row.level, row.format, got, row.want)
		}
	}
}

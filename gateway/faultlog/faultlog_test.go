package faultlog

import (
	"log/slog"
	"testing"
	"time"
)

func TestLimiter_AllowsOneLinePerSecondAndKind(t *testing.T) {
	var l Limiter
	start := time.Unix(1_700_000_000, 0)
	sale, vip := Kind{"store_unavailable", "sale"}, Kind{"store_unavailable", "vip"}
	for i, row := range []struct {
		after time.Duration
		level slog.Level
		kind  Kind
		lines int // that this one stands for
	}{
		{0, slog.LevelWarn, sale, 1},
		{0, slog.LevelWarn, sale, 0},
		{500 * time.Millisecond, slog.LevelWarn, sale, 0},
		{500 * time.Millisecond, slog.LevelWarn, vip, 1},
		{999 * time.Millisecond, slog.LevelWarn, sale, 0},
		{time.Second, slog.LevelWarn, sale, 4},
		{time.Second, slog.LevelWarn, sale, 0},
		{time.Second, slog.LevelError, sale, 1},
		{time.Second, slog.LevelError, sale, 1},
		{time.Minute, slog.LevelWarn, sale, 2},
		{time.Hour, slog.LevelWarn, sale, 1},
	} {
		if n := l.Count(start.Add(row.after), row.level, row.kind); n != row.lines {
			t.Errorf("fault %d, %s after the first: %d, want %d", i, row.after, n, row.lines)
		}
	}
}

package gateway

import (
	"log/slog"
	"testing"
	"time"
)

func TestFaultsAreALineASecond(t *testing.T) {
	var f faultLog
	start := time.Unix(1_700_000_000, 0)
	sale, vip := faultKind{"store_unavailable", "sale"}, faultKind{"store_unavailable", "vip"}
	for i, row := range []struct {
		after time.Duration
		level slog.Level
		kind  faultKind
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
		if n := f.times(start.Add(row.after), row.level, row.kind); n != row.lines {
			t.Errorf("fault %d, %s after the first: %d, want %d", i, row.after, n, row.lines)
		}
	}
}

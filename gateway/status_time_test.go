package gateway

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// appendTime is time's own formatting, only faster.
func TestAppendTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		µs := rapid.Int64Range(-1e17, 1e18).Draw(t, "µs")
		want := `"` + time.UnixMicro(µs).UTC().Format(timeLayout) + `"`
		if got := string(appendTime([]byte("x"), µs)); got != "x"+want {
			t.Fatalf("%d: %s, want %s", µs, got, want)
		}
	})
}

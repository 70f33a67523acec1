package answer

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// AppendTime formats as package time does.
func TestAppendTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		µs := rapid.Int64Range(-1e17, 1e18).Draw(t, "µs")
		want := `"` + time.UnixMicro(µs).UTC().Format(TimeLayout) + `"`
		if got := string(AppendTime([]byte("x"), µs)); got != "x"+want {
			t.Fatalf("%d: %s, want %s", µs, got, want)
		}
	})
}

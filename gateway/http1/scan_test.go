package http1

import (
	"testing"

	"github.com/anteroom/anteroom/gateway/http1/http1test"
)

func BenchmarkScan(b *testing.B) {
	lim := Limits{16 << 10, 8 << 10, 100}
	raw := []byte(http1test.BrowserGet)
	var h RequestHeader
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if n, r := h.Scan(raw, &lim); n == 0 || r != nil {
			b.Fatal(n, r)
		}
	}
}

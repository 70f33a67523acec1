package proxy

import "testing"

func BenchmarkScan(b *testing.B) {
	lim := headLimits{16 << 10, 8 << 10, 100}
	raw := []byte(browserGet)
	var h head
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if n, r := h.scan(raw, &lim); n == 0 || r != nil {
			b.Fatal(n, r)
		}
	}
}

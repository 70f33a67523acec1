package main

import (
	"strings"
	"testing"
)

// BenchmarkSolve measures the processor time of an average proof at the default difficulty, in native code.
func BenchmarkSolve(b *testing.B) {
	const tries = 12_000_000
	before := cpu()
	for b.Loop() {
		if n, err := solve(b.Context(), strings.Repeat("0", 64), "0123456789abcdef01234567?expires=1795000300&", tries-1); err == nil {
			b.Fatalf("%d has a hash of zeros", n)
		}
	}
	b.ReportMetric((cpu()-before)/float64(b.N), "CPUs/place")
}

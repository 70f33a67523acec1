package gateway

import (
	"sync"
	"testing"
)

func TestRandom16(t *testing.T) {
	var mu sync.Mutex
	seen := map[[16]byte]bool{{}: true} // nor are they ever zero
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				id := random16()
				mu.Lock()
				if seen[id] {
					t.Errorf("%x came twice", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func BenchmarkRandom16(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		random16()
	}
}

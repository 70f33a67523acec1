package gateway

import (
	"testing"
	"time"
)

func TestRecentLooksBack(t *testing.T) {
	var r recent
	if _, _, ok := r.look(time.Now(), window, 0.95); ok {
		t.Fatal("there is nothing to see yet")
	}
	for i := range 100 {
		r.add(time.Now(), float64(i+1), i%10 == 9)
	}
	p95, failed, ok := r.look(time.Now(), window, 0.95)
	if !ok || failed != 0.1 || p95 != 95 {
		t.Fatalf("p95 %v, failed %v, %v", p95, failed, ok)
	}
	if _, _, ok := r.look(time.Now().Add(2*window), window, 0.95); ok {
		t.Fatal("samples of long ago still count")
	}
	for range 2 * len(r.ring) {
		r.add(time.Now(), 7, false)
	}
	if p, failed, _ := r.look(time.Now(), window, 0.5); p != 7 || failed != 0 {
		t.Fatalf("the ring keeps what is older than its length: %v %v", p, failed)
	}
}

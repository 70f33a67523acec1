package forecast

import (
	"testing"
	"time"
)

func TestRecent_CountsTheLastMinute(t *testing.T) {
	var r Recent
	if _, _, ok := r.Quantile(time.Now(), time.Minute, 0.95); ok {
		t.Fatal("there is nothing to see yet")
	}
	for i := range 100 {
		r.Add(time.Now(), float64(i+1), i%10 == 9)
	}
	p95, failed, ok := r.Quantile(time.Now(), time.Minute, 0.95)
	if !ok || failed != 0.1 || p95 != 95 {
		t.Fatalf("p95 %v, failed %v, %v", p95, failed, ok)
	}
	if _, _, ok := r.Quantile(time.Now().Add(2*time.Minute), time.Minute, 0.95); ok {
		t.Fatal("samples of long ago still count")
	}
	for range 2 * len(r.ring) {
		r.Add(time.Now(), 7, false)
	}
	if p, failed, _ := r.Quantile(time.Now(), time.Minute, 0.5); p != 7 || failed != 0 {
		t.Fatalf("the ring keeps what is older than its length: %v %v", p, failed)
	}
}

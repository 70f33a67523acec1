package admission

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// A leaky bucket without recent admissions admits the next visitor immediately, and the one after at the rate.
func TestLeakyBucket_QuietRoomAdmitsImmediately(t *testing.T) {
	c := newTestClock()
	p := basePolicy
	p.Strategy, p.Rate = StrategyLeakyBucket, 1000
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	for i := range 9 {
		for range 5 + i { // 250 ms ticks, in every phase of the second
			c.pass(250 * time.Millisecond)
			if err := r.Tick(ctx5(t)); err != nil {
				t.Fatal(err)
			}
		}
		if s := mustJoin(t, r, testID(), Client{}); s.State != Active {
			t.Fatalf("after %d quiet ticks: %+v", 5+i, s)
		}
		if r.Charge(ctx5(t)) {
			t.Fatal("another one at once")
		}
	}
}

package admission

import "testing"

// During an outage each gateway's share follows the strategy and starts empty, since the store may have granted everything a
// moment before.
func TestLocal_ShareFollowsStrategy(t *testing.T) {
	const second = int64(1e9)
	for _, row := range []struct {
		s            Strategy
		first, burst int64 // given within the first ms, and most at one moment later on
		total        int64 // in 10 s
	}{
		{StrategyTokenBucket, 0, 8, 40},
		{StrategyAdaptive, 0, 8, 40},
		{StrategyLeakyBucket, 0, 1, 40},
		{StrategyFixedWindow, 0, 4, 40},
	} {
		var l local
		s := &Snapshot{Gateways: 2, Policy: Policy{Strategy: row.s, Rate: 8_000, Burst: 16_000}}
		at := 7*second + 300_000_000
		l.begin(at)
		take := func(now int64) (n int64) {
			for l.share(s, now) {
				n++
			}
			return n
		}
		if n := take(at + 1_000_000); n != row.first {
			t.Errorf("%s: %d at once", row.s, n)
		}
		var sum int64
		for ms := int64(10); ms <= 10_000; ms += 10 {
			sum += take(at + ms*1_000_000)
		}
		if sum != row.total {
			t.Errorf("%s: %d in 10 s, want %d", row.s, sum, row.total)
		}
		if n := take(at + 60*second); n != row.burst {
			t.Errorf("%s: %d after a quiet time, want %d", row.s, n, row.burst)
		}
	}
}

package admission

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// If the limiter would be full at a tick, an earlier tick keeps its grants from being lost. Wait estimates depend on this.
func TestTick_SmallBurstReachesRate(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name                  string
		rate, burst, expected int64 // thousandths
		gateways              int
	}{
		{"10/s, 1", 10_000, 1000, 10_000, 1},
		{"20/s, 1, three gateways", 20_000, 1000, 20_000, 3},
		{"50/s, 2", 50_000, 2000, 50_000, 1},
		{"20/s, 5.5", 20_000, 5500, 20_000, 1},
		{"200/s, 1: at most one a tick", 200_000, 1000, 40_000, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := budgeted(row.rate, row.burst, 1000, row.rate)
			p.Budgeted, p.Burst = false, row.burst // the bound holds for the room alone
			s := newSharing(t, t, redistest.Client(t), redistest.Prefix(t), row.gateways, p)
			s.join(0, 0, 520)
			if got, want := s.play(10 * time.Second)[0], row.expected/100; got < want*85/100 {
				t.Errorf("%d admitted in 10 s, want nearly %d", got, want)
			}
			if e := s.rooms[0][0].Expected(); e != row.expected {
				t.Errorf("expected %d/1000 a second, want %d", e, row.expected)
			}
		})
	}
}

// With a tick for each visitor, a leaky bucket admits visitors one by one.
func TestLeakyBucket_AdmitsOneByOne(t *testing.T) {
	t.Parallel()
	p := budgeted(8000, 4000, 1000, 8000)
	p.Budgeted, p.Strategy = false, StrategyLeakyBucket
	s := newSharing(t, t, redistest.Client(t), redistest.Prefix(t), 1, p)
	s.join(0, 0, 100)
	var together int64
	for range 100 {
		before := s.in[0]
		s.tick(0, 0)
		together += max(0, s.in[0]-before-1)
		s.clock.pass(s.rooms[0][0].ticker.pause() + 2*time.Millisecond) // as late as a loop is
	}
	if s.in[0] < 90 || together > 5 {
		t.Errorf("%d were admitted by 100 ticks, %d of them together with another", s.in[0], together)
	}
}

// The cost of its ticks bounds how often a room with a queue is ticked.
func TestTickInterval_BoundsCost(t *testing.T) {
	for _, row := range []struct {
		strategy    Strategy
		rate, burst int64
		want        time.Duration
	}{
		{StrategyTokenBucket, 10_000, 10_000, 250 * time.Millisecond},
		{StrategyTokenBucket, 10_000, 1000, 100 * time.Millisecond},
		{StrategyTokenBucket, 1_000_000, 1000, 25 * time.Millisecond},
		{StrategyLeakyBucket, 1000, 0, 250 * time.Millisecond},
		{StrategyLeakyBucket, 8000, 0, 125 * time.Millisecond},
		{StrategyLeakyBucket, 100_000, 0, 25 * time.Millisecond},
		{StrategyLeakyBucket, 400_000, 0, 100 * time.Millisecond},
		{StrategyLeakyBucket, 1_000_000_000, 0, 250 * time.Millisecond},
		{StrategyFixedWindow, 10_000, 1000, 250 * time.Millisecond},
		{StrategyTokenBucket, 0, 1000, 250 * time.Millisecond},
	} {
		s := Snapshot{Rate: row.rate, Policy: Policy{Strategy: row.strategy, Rate: row.rate, Burst: row.burst}}
		if got := s.TickInterval(250 * time.Millisecond); got != row.want {
			t.Errorf("%v %d/%d: %s, want %s", row.strategy, row.rate, row.burst, got, row.want)
		}
	}
}

package snapshot

import (
	"math"
	"time"

	"github.com/anteroom/anteroom/admission/policy"
)

// SoonestTick is the least time between two ticks of a room with a queue.
const SoonestTick = 25 * time.Millisecond

// TickInterval returns the time between two ticks of a room with a queue: tick, or less where the limiter would be full sooner
// and lose what comes due from then on. A leaky bucket is ticked once a visitor. At high rates a tick admits several visitors,
// since each tick sends every gateway the front of the queue, whose length grows with the rate.
func (s *Snapshot) TickInterval(tick time.Duration) time.Duration {
	p := &s.Policy
	due, least := max(1000, p.Burst-1000), SoonestTick // due: thousandths of a visitor; up to one may be left from the last tick
	switch {
	case s.Rate <= 0 || p.HeadWindow > 0 || p.Strategy == policy.StrategyFixedWindow:
		return tick
	case p.Strategy == policy.StrategyLeakyBucket:
		due, least = 1000, max(SoonestTick, min(tick, SoonestTick*time.Duration(s.Rate)/100_000))
	}
	return min(tick, max(least, time.Duration(float64(due)/float64(s.Rate)*float64(time.Second))))
}

// MaxRate returns the highest admission rate that these ticks can reach, in thousandths of a visitor per second.
func (s *Snapshot) MaxRate(tick time.Duration) int64 {
	p, n := &s.Policy, int64(math.MaxInt64)
	if p.HeadWindow > 0 {
		n = p.HeadWindow
	}
	if p.Strategy != policy.StrategyFixedWindow && p.Strategy != policy.StrategyLeakyBucket {
		n = min(n, max(1, p.Burst/1000))
	}
	return int64(min(float64(n)*1000*float64(time.Second)/float64(s.TickInterval(tick)), 1e15))
}

package admissiontest

import (
	"fmt"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/limiter"
)

// GCRAStrategy is the limiter of the bulk engine; no room has it.
const GCRAStrategy admission.Strategy = "gcra"

// billion is one token in the unit of a level.
const billion = 1_000_000_000

// Meter is a limiter's state and rule, without a store. Call Refill first, with the time of the call: the other methods use
// that time. Costs are whole tokens. At rate 0 nothing is granted, whatever was saved up before.
type Meter interface {
	limiter.Limiter
	// Admits reports whether a cost can be taken as a whole now.
	Admits(cost int64) bool
	// Wait returns the time until a cost is admitted, exact to the microsecond while the clock does not go back; negative: never.
	Wait(cost int64) time.Duration
	// Rerate changes rate and burst, in thousandths; each strategy defines what happens to its state.
	Rerate(rate, burst int64)
}

var (
	_ Meter = (*limiter.TokenBucket)(nil)
	_ Meter = (*GCRA)(nil)
	_ Meter = (*limiter.FixedWindow)(nil)
	_ Meter = (*limiter.LeakyBucket)(nil)
)

// NewMeter returns a meter that has granted nothing yet: rate in thousandths of a token a second, burst in thousandths of a
// token. An unknown strategy is a programming error and panics.
func NewMeter(s admission.Strategy, rate, burst int64) Meter {
	switch s {
	case admission.StrategyTokenBucket, admission.StrategyAdaptive:
		return &limiter.TokenBucket{Level: burst * 1_000_000, Rate: rate, Burst: burst}
	case admission.StrategyLeakyBucket:
		return &limiter.LeakyBucket{TokenBucket: limiter.TokenBucket{Level: burst * 1_000_000, Rate: rate, Burst: burst}}
	case GCRAStrategy:
		return &GCRA{Rate: rate, Burst: burst}
	case admission.StrategyFixedWindow:
		return &limiter.FixedWindow{Rate: rate}
	}
	panic(fmt.Sprintf("admissiontest: no limiter strategy %q", s))
}

// DefaultBurst returns what burst 0 stands for in the bulk engine: 100 ms of the rate, and at least one token (thousandths,
// both). Without any burst, every late start of a worker would lose rate for good.
func DefaultBurst(rate int64) int64 { return max(1000, rate/10) }

// GCRA is the generic cell rate algorithm, lua/lib/limiter.lua's in Go. It keeps one theoretical arrival time: the time at
// which the last granted token would have come if all had come evenly. A cost is granted if it moves that time to at most burst ÷ rate
// ahead of now. A cost above the burst is granted when that time is not ahead of now, and is charged in full.
//
// At is the theoretical arrival time in whole microseconds and Level its remainder, in 1/Rate of a microsecond, 0 ≤ Level <
// Rate: a token is worth exactly a billion of those, so nothing is ever rounded. Rate is in thousandths of a token a second,
// Burst in thousandths of a token.
type GCRA struct {
	Level, At, Rate, Burst int64

	now int64
	was int64 // the rate above 0 at which At and Level were counted, where it differs from Rate; 0: it does not
}

// Refill forgets a theoretical arrival time that has passed.
func (g *GCRA) Refill(now int64) {
	if g.now = now; g.Level >= g.Rate {
		g.Level = 0 // of another rate
	}
	if g.At < now {
		g.At, g.Level = now, 0
	}
	if g.was > 0 && g.Rate > 0 {
		owed := (g.At-now)*g.was + g.Level
		g.At, g.Level, g.was = now+owed/g.Rate, owed%g.Rate, 0
	}
}

func (g *GCRA) idle() bool { return g.At <= g.now && g.Level == 0 }

// room returns how many billionths of a token are left of the burst; negative when it is overdrawn.
func (g *GCRA) room() int64 {
	full := g.Burst * 1_000_000
	// Compare times first: a long debt times Rate may overflow.
	if ahead := g.At - g.now; ahead <= full/g.Rate {
		return full - ahead*g.Rate - g.Level
	}
	return -1
}

// Available returns how many single tokens can be taken now.
func (g *GCRA) Available() int64 {
	switch {
	case g.Rate <= 0:
		return 0
	case g.idle():
		return max(1, g.Burst/1000)
	}
	return max(0, g.room()) / billion
}

// Admits reports whether a cost is granted now.
func (g *GCRA) Admits(cost int64) bool {
	return g.Rate > 0 && (g.idle() || cost*billion <= g.room())
}

// Take moves the theoretical arrival time on by n tokens.
func (g *GCRA) Take(n int64) {
	if n > 0 {
		owed := g.Level + n*billion
		g.At, g.Level = g.At+owed/g.Rate, owed%g.Rate
	}
}

// Wait returns the time until a cost is granted: a cost above the burst waits until nothing is owed, any other until it fits.
func (g *GCRA) Wait(cost int64) time.Duration {
	switch {
	case g.Rate <= 0:
		return -1
	case g.Admits(cost):
		return 0
	}
	early := max(0, g.Burst*1_000_000-cost*billion) - g.Level
	us := g.At - g.now - early/g.Rate
	if early%g.Rate < 0 {
		us++
	}
	return time.Duration(us) * time.Microsecond
}

// Rerate keeps the debt in tokens: a debt from a low rate does not take longer at a higher one, and a debt from a high rate is not
// forgiven at a lower one. No interval has more grants than the largest rate·dt + burst, except for a remainder of less than a
// microsecond, which is dropped where it does not fit the new rate.
func (g *GCRA) Rerate(rate, burst int64) {
	if g.was == 0 && rate != g.Rate {
		g.was = g.Rate
	}
	g.Rate, g.Burst = rate, burst
}

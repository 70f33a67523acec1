package admissiontest

import (
	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/limiter"
)

// limiterState is a room's limiter between two uses, as lua/lib/meter.lua keeps it: its level, and the strategy and rate of the
// last use.
type limiterState struct {
	strategy   admission.Strategy
	level, was int64
}

// leak divides the rate: a leaky bucket of a room admits at most half a second of its rate at once.
const leak = 2

// meter is the model's limiter at a room time.
type meter struct {
	limiter.Limiter
	m   *Model
	now int64
}

// full returns the level of a limiter that has granted nothing yet.
func (m *Model) full() int64 {
	if m.P.Strategy == admission.StrategyFixedWindow {
		return 0
	}
	return m.burst() * 1_000_000
}

// windowOf returns the length of a fixed window of that rate in microseconds, and how much it grants in thousandths.
func windowOf(rate int64) (length, most int64) {
	if rate <= 0 || rate >= 1000 {
		return 1_000_000, rate
	}
	return (1_000_000_000 + rate - 1) / rate, 1000
}

func (m *Model) meter(now int64) meter {
	const windows = admission.StrategyFixedWindow
	l, rate := m.limiter, m.P.Rate
	out := meter{m: m, now: now}
	if m.P.Strategy == windows {
		w := &limiter.FixedWindow{Rate: rate}
		length, most := windowOf(rate)
		if l.strategy == windows {
			before, _ := windowOf(l.was)
			w.At, w.Level = m.limiterAt-m.limiterAt%before, l.level
		} else {
			w.At, w.Level = now-now%length, most
		}
		w.Refill(now)
		out.Limiter = w
		return out
	}
	b := limiter.TokenBucket{Level: l.level, At: m.limiterAt, Rate: l.was, Burst: m.burst()}
	leaky := m.P.Strategy == admission.StrategyLeakyBucket
	if leaky {
		b.Burst = max(1000, rate/leak)
	}
	if l.strategy == windows {
		b.Level, b.At = 0, now
	}
	b.Refill(now)
	b.Rate = rate
	if out.Limiter = &b; leaky {
		out.Limiter = &limiter.LeakyBucket{TokenBucket: b}
	}
	return out
}

// rest ends a tick.
func (b meter) rest() {
	if l, ok := b.Limiter.(*limiter.LeakyBucket); ok {
		l.Rest()
	}
}

// save writes the state back to the model.
func (b meter) save() {
	l := limiterState{strategy: b.m.P.Strategy, was: b.m.P.Rate}
	switch x := b.Limiter.(type) {
	case *limiter.FixedWindow:
		l.level = x.Level
	case *limiter.TokenBucket:
		l.level = x.Level
	case *limiter.LeakyBucket:
		l.level = x.Level
	}
	b.m.limiter, b.m.limiterAt = l, b.now
}

package admission_test

import (
	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/admissiontest"
	"github.com/anteroom/anteroom/admission/limiter"
)

// limiterState is a room's limiter between two uses, as lua/lib/meter.lua keeps it: its level, and the strategy and rate of the
// last use.
type limiterState struct {
	strategy   admission.Strategy
	level, was int64
}

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

func (m *Model) meter(now int64) meter {
	const windows = admission.StrategyFixedWindow
	l, rate := m.limiter, m.P.Rate
	out := meter{m: m, now: now}
	if m.P.Strategy == windows {
		w := &limiter.FixedWindow{Rate: rate}
		length, most := admissiontest.WindowOf(rate)
		if l.strategy == windows {
			before, _ := admissiontest.WindowOf(l.was)
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
		b.Burst = max(1000, rate/admissiontest.Leak)
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

// rest ends a tick: a leaky bucket keeps one token, which admits the next visitor at once after a quiet time.
func (b meter) rest() {
	if l, ok := b.Limiter.(*limiter.LeakyBucket); ok {
		l.Level = min(l.Level, 1_000_000_000)
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

// pacedModel is a Paced over the model of a room.
type pacedModel struct{ M *Model }

// Admit ticks the model with an endless queue.
func (p pacedModel) Admit(now int64, s admission.Strategy, rate, burst int64) int64 {
	p.M.P.Strategy, p.M.P.Rate, p.M.P.Burst, p.M.Wall = s, rate, burst, now
	m := p.M.meter(p.M.Room())
	n := m.Available()
	m.Take(n)
	m.rest()
	m.save()
	p.M.tick = now
	return n
}

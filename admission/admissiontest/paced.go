package admissiontest

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission"
)

// Paced admits from a queue that never ends: as many as are allowed at now by the given strategy, rate and burst (thousandths). It
// fails the test itself when it breaks.
type Paced interface {
	Admit(now int64, s admission.Strategy, rate, burst int64) int64
}

// PacedMeter is a Paced over a limiter, of one strategy for life.
type PacedMeter struct{ Limited }

// Admit takes all available tokens.
func (p PacedMeter) Admit(now int64, _ admission.Strategy, rate, burst int64) int64 {
	n, _ := p.Take(now, 1_000_000, rate, burst)
	return n
}

// Strategies is the suite of limiters and rooms, which admit by a strategy. changes: strategy and rate may change, as in rooms.
func Strategies(t *testing.T, s admission.Strategy, changes bool, fresh func(t rapid.TB, s admission.Strategy, rate, burst, now int64) Paced) {
	t.Run("admits at most rate and burst", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			rate := rapid.Int64Range(200, 8_000).Draw(t, "rate")
			burst := rapid.Int64Range(1000, 5_000).Draw(t, "burst")
			now := int64(epoch)
			p := fresh(t, s, rate, burst, now)
			var events []event
			before := now
			for range rapid.IntRange(1, 8).Draw(t, "ticks") {
				now += rapid.Int64Range(1, 1_200_000).Draw(t, "dt")
				n := p.Admit(now, s, rate, burst)
				if n > 0 {
					events = append(events, event{now, n})
					switch s {
					case admission.StrategyFixedWindow:
						overWindow(t, events, rate)
					case admission.StrategyLeakyBucket:
						// A limiter may admit all its saved tokens at once; a room saves half a second at most.
						most := max(burst, rate/Leak, 1000)
						overInterval(t, events, rate, most)
						if changes && len(events) > 1 && float64(n-1)*1e9 > float64(now-before)*float64(rate) {
							t.Fatalf("%d admitted %d µs after the last tick, at %d/1000 a second", n, now-before, rate)
						}
					default:
						overInterval(t, events, rate, burst)
					}
				}
				before = now
			}
		})
	})
	t.Run("admits the rate in the long run", func(t *testing.T) {
		for _, rate := range []int64{300, 4_000, 9_500} {
			now := int64(epoch) - epoch%1_000_000
			p := fresh(t, s, rate, 5_000, now)
			var n int64
			for range 400 {
				now += 250_000
				n += p.Admit(now, s, rate, 5_000)
			}
			// 100 s, with a tolerance of a burst, or of a window.
			want, more := rate/10, int64(5)
			if s == admission.StrategyFixedWindow {
				length, most := WindowOf(rate)
				want, more = (most/1000*100_000_000+length/2)/length, most/1000
			}
			if n < want-more || n > want+more {
				t.Errorf("%d/1000 a second: %d admitted in 100 s", rate, n)
			}
		}
	})
	if !changes {
		return
	}
	t.Run("stays within the limit when strategy and rate change", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			all := []admission.Strategy{admission.StrategyTokenBucket, admission.StrategyLeakyBucket, admission.StrategyFixedWindow}
			rate := rapid.Int64Range(1_000, 8_000).Draw(t, "rate")
			burst := rapid.Int64Range(1000, 5_000).Draw(t, "burst")
			now, strategy := int64(epoch), s
			p := fresh(t, s, rate, burst, now)
			// earned is the sum of all rates over time, in billionths.
			type grant struct{ n, earned int64 }
			var grants []grant
			var earned int64
			most := max(burst, 2*rate)
			for range rapid.IntRange(1, 12).Draw(t, "ticks") {
				dt := rapid.OneOf(rapid.Int64Range(1, 10_000), rapid.Int64Range(1, 1_200_000)).Draw(t, "dt")
				now += dt
				earned += dt * rate // the former rate counts until now
				if rapid.IntRange(0, 3).Draw(t, "change") == 0 {
					strategy = rapid.SampledFrom(all).Draw(t, "strategy")
					rate = rapid.Int64Range(1_000, 8_000).Draw(t, "rate")
					most = max(most, 2*rate)
				}
				n := p.Admit(now, strategy, rate, burst)
				grants = append(grants, grant{n, earned})
				var sum int64
				for i := len(grants) - 1; i >= 0; i-- {
					sum += grants[i].n
					if over := sum*1_000_000_000 - (earned - grants[i].earned); over > most*1_000_000+1_000_000_000 {
						t.Fatalf("%d admitted; the rates add up to %d billionths, and the burst is %d/1000", sum, earned-grants[i].earned, most)
					}
				}
			}
		})
	})
}

// Leak divides the rate: a leaky bucket of a room admits at most half a second of its rate at once.
const Leak = 2

// WindowOf returns the length of a fixed window of that rate in microseconds, and how much it grants in thousandths.
func WindowOf(rate int64) (length, most int64) {
	if rate <= 0 || rate >= 1000 {
		return 1_000_000, rate
	}
	return (1_000_000_000 + rate - 1) / rate, 1000
}

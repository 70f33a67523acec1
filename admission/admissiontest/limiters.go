package admissiontest

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission"
)

// Limited is a limiter under test: the time in microseconds, rate and burst in thousandths come with each call. It fails
// the test itself when it breaks.
type Limited interface {
	// Take takes up to n single tokens; wait is the time until one more is there.
	Take(now, n, rate, burst int64) (taken int64, wait time.Duration)
	// TakeCost takes a cost as a whole or not at all; wait is the time until such a cost is admitted again.
	TakeCost(now, cost, rate, burst int64) (taken int64, wait time.Duration)
}

// Metered is a Limited without a store: the rule of lua/lib/limiter.lua.
type Metered struct {
	Strategy admission.Strategy
	Meter    Meter // nil before the first call
}

func (m *Metered) at(now, rate, burst int64) Meter {
	if m.Meter == nil {
		m.Meter = NewMeter(m.Strategy, rate, burst)
	}
	m.Meter.Rerate(rate, burst)
	m.Meter.Refill(now)
	return m.Meter
}

// Take takes up to n.
func (m *Metered) Take(now, n, rate, burst int64) (int64, time.Duration) {
	b := m.at(now, rate, burst)
	n = min(n, b.Available())
	b.Take(n)
	return n, b.Wait(1)
}

// TakeCost takes all or nothing.
func (m *Metered) TakeCost(now, cost, rate, burst int64) (int64, time.Duration) {
	b := m.at(now, rate, burst)
	if !b.Admits(cost) {
		return 0, b.Wait(cost)
	}
	b.Take(cost)
	return cost, b.Wait(cost)
}

// epoch is the start of the suite's clocks: inside a window, not at its edge.
const epoch = 1_780_000_000_123_457

// rates are fixed rates of the suite, in thousandths of a token a second.
var rates = []int64{1, 300, 3_000, 33_333, 10_000_000, 1_000_000_000}

func drawRate(t *rapid.T) int64 {
	return rapid.OneOf(rapid.SampledFrom(rates), rapid.Int64Range(1, 3_000_000)).Draw(t, "rate")
}

// window returns the length of a fixed window and how many whole tokens it grants.
func window(rate int64) (length, most int64) {
	if rate >= 1000 {
		return 1_000_000, rate / 1000
	}
	return (1_000_000_000 + rate - 1) / rate, 1
}

// Limiters is the suite that every limiter passes. fresh returns a limiter that has granted nothing.
func Limiters(t *testing.T, s admission.Strategy, fresh func(t rapid.TB) Limited) {
	t.Run("grants at most rate and burst", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { atMostRateAndBurst(t, s, fresh(t)) })
	})
	t.Run("grants every token on its microsecond", func(t *testing.T) {
		for _, rate := range rates {
			everyToken(t, s, fresh(t), rate)
		}
	})
	t.Run("wait is exact", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { waitIsExact(t, s, fresh(t)) })
	})
	t.Run("rate 0 grants nothing", func(t *testing.T) {
		l := fresh(t)
		for now := int64(epoch); now < epoch+10_000_000; now += 2_500_000 {
			if n, wait := l.Take(now, 5, 0, 5000); n != 0 || wait >= 0 {
				t.Fatalf("Take at rate 0: %d, next in %v", n, wait)
			}
			if n, wait := l.TakeCost(now, 1, 0, 5000); n != 0 || wait >= 0 {
				t.Fatalf("TakeCost at rate 0: %d, next in %v", n, wait)
			}
		}
		if n, _ := l.Take(epoch+10_000_000, 5, 5000, 5000); n != 5 {
			t.Fatalf("rate 5/s again, and nothing taken yet: took %d of 5", n)
		}
		if n, wait := l.Take(epoch+10_000_000, 5, 0, 5000); n != 0 || wait >= 0 {
			t.Fatalf("at rate 0 again: %d, next in %v", n, wait)
		}
	})
	t.Run("a clock that goes back credits nothing", func(t *testing.T) {
		l := fresh(t)
		const rate, burst = 10_000, 10_000
		if n, _ := l.Take(epoch, 100, rate, burst); n != 10 {
			t.Fatalf("took %d of the first 10", n)
		}
		for _, back := range []int64{1, 1000, 400_000, 5_000_000, 3_600_000_000} {
			n, wait := l.Take(epoch-back, 1, rate, burst)
			// A bucket that was refilled at a later time counts from that time on.
			if n != 0 || wait <= 0 || !bucket(s) && wait < time.Duration(back)*time.Microsecond {
				t.Fatalf("%d µs earlier: took %d, next in %v", back, n, wait)
			}
		}
		n, wait := l.Take(epoch, 1, rate, burst)
		if n != 0 || wait <= 0 || wait > time.Second {
			t.Fatalf("back at the same time: took %d, next in %v", n, wait)
		}
		if n, _ := l.Take(epoch+wait.Microseconds(), 1, rate, burst); n != 1 {
			t.Fatalf("took %d after %v", n, wait)
		}
	})
	t.Run("a changed rate", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { changedRate(t, s, fresh(t)) })
	})
	t.Run("a cost above the burst", func(t *testing.T) {
		aboveTheBurst(t, s, fresh(t))
	})
}

// bucket reports whether a strategy keeps a level of tokens.
func bucket(s admission.Strategy) bool {
	switch s {
	case admission.StrategyTokenBucket, admission.StrategyLeakyBucket, admission.StrategyAdaptive:
		return true
	}
	return false
}

// event is one grant. at is the latest time passed to the limiter until then: a clock that went back counts as standing still.
type event struct{ at, n int64 }

// overInterval fails the test if an interval has more grants than rate·dt + burst, or than its last cost where that is more.
func overInterval(t *rapid.T, events []event, rate, burst int64) {
	var sum int64
	last := events[len(events)-1]
	for i := len(events) - 1; i >= 0; i-- {
		sum += events[i].n
		if dt := last.at - events[i].at; float64(sum)*1e9 > float64(dt)*float64(rate)+max(float64(burst)*1e6, float64(last.n)*1e9) {
			t.Fatalf("%d granted within %d µs at %d/1000 a second + %d/1000", sum, dt, rate, burst)
		}
	}
}

// overWindow fails the test if an aligned window has more grants than tokens, or a sliding one more than twice as many. A cost above
// a window's counts in as many windows, from the first on.
func overWindow(t *rapid.T, events []event, rate int64) {
	length, most := window(rate)
	last := events[len(events)-1]
	var aligned, sliding int64
	for i, e := range events {
		if e.at > last.at-length {
			sliding += min(e.n, most)
		}
		windows := (e.n*1000-1)/max(1000, rate) + 1
		if i < len(events)-1 && windows > 1 && last.at/length < e.at/length+windows {
			t.Fatalf("%d granted %d µs after %d, which take %d windows of %d", last.n, last.at-e.at, e.n, windows, most)
		}
		if e.at/length == last.at/length {
			aligned += e.n
		}
	}
	if aligned > max(most, last.n) || sliding > 2*most {
		t.Fatalf("%d granted in an aligned window, %d in a sliding one; a window has %d", aligned, sliding, most)
	}
}

// walk returns a random step of time, mostly forward. wait is the limiter's last reply.
func walk(t *rapid.T, wait time.Duration) int64 {
	w := max(0, wait.Microseconds())
	return rapid.OneOf(
		rapid.Int64Range(0, 5000), rapid.Int64Range(0, 2_000_000), rapid.Int64Range(0, 100_000_000), rapid.Int64Range(-3000, 0),
		rapid.Int64Range(max(0, w-1), w+1),
	).Draw(t, "dt")
}

func atMostRateAndBurst(t *rapid.T, s admission.Strategy, l Limited) {
	rate := drawRate(t)
	burst := rapid.OneOf(rapid.Just(DefaultBurst(rate)), rapid.Int64Range(1000, 50_000)).Draw(t, "burst")
	most := 2 * burst / 1000
	now, latest := int64(epoch), int64(0)
	var wait time.Duration
	var events []event
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		now += walk(t, wait)
		latest = max(latest, now)
		n := rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, most)).Draw(t, "n")
		var taken int64
		if rapid.Bool().Draw(t, "whole") {
			if taken, wait = l.TakeCost(now, n, rate, burst); taken != 0 && taken != n {
				t.Fatalf("%d taken of a cost of %d", taken, n)
			}
		} else if taken, wait = l.Take(now, n, rate, burst); taken < n && wait == 0 {
			t.Fatalf("%d taken of %d, but the wait for one more is 0", taken, n)
		}
		if taken == 0 {
			continue
		}
		events = append(events, event{latest, taken})
		if s == admission.StrategyFixedWindow {
			overWindow(t, events, rate)
		} else {
			overInterval(t, events, rate, burst)
		}
		if s == admission.StrategyLeakyBucket {
			unevenly(t, events, rate)
		}
	}
}

// unevenly fails the test if the last grant came sooner after the one before than its tokens come due.
func unevenly(t *rapid.T, events []event, rate int64) {
	if len(events) < 2 {
		return
	}
	before, last := events[len(events)-2], events[len(events)-1]
	// At the grant before, less than a token was already due.
	if dt := last.at - before.at; float64(last.n-1)*1e9 > float64(dt)*float64(rate) {
		t.Fatalf("%d granted %d µs after the last, at %d/1000 a second", last.n, dt, rate)
	}
}

// everyToken takes one token at each moment that the limiter returns: nothing is lost to rounding.
func everyToken(t *testing.T, s admission.Strategy, l Limited, rate int64) {
	t.Helper()
	const burst = 3
	length, most := window(rate)
	now := int64(epoch)
	for k := range int64(200) {
		want := int64(epoch)
		if s == admission.StrategyFixedWindow {
			if w := k / most; w > 0 {
				want = epoch - epoch%length + w*length
			}
		} else if s == admission.StrategyLeakyBucket { // the first grant drops the tokens that it does not take
			want += (k*1_000_000_000 + rate - 1) / rate
		} else if k >= burst {
			want += ((k-burst+1)*1_000_000_000 + rate - 1) / rate
		}
		if now != want {
			t.Fatalf("%d/1000 a second: token %d comes after %d µs, want %d", rate, k, now-epoch, want-epoch)
		}
		n, wait := l.Take(now, 1, rate, burst*1000)
		if n != 1 || wait < 0 {
			t.Fatalf("%d/1000 a second: token %d is refused after %d µs, next in %v", rate, k, now-epoch, wait)
		}
		now += wait.Microseconds()
	}
}

func waitIsExact(t *rapid.T, s admission.Strategy, l Limited) {
	rate := drawRate(t)
	burst := rapid.Int64Range(1000, 50_000).Draw(t, "burst")
	now := int64(epoch)
	var wait time.Duration
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		now += max(0, walk(t, wait))
		cost := rapid.Int64Range(1, 60).Draw(t, "cost")
		var n int64
		n, wait = l.TakeCost(now, cost, rate, burst)
		never := bucket(s) && cost*1000 > burst
		switch {
		case (wait < 0) != never:
			t.Fatalf("a cost of %d with a burst of %d/1000: wait %v", cost, burst, wait)
		case never && n > 0:
			t.Fatalf("a cost of %d above the burst was taken", cost)
		case never:
			now += 1_000_000_000
			if n, _ := l.TakeCost(now, cost, rate, burst); n > 0 {
				t.Fatalf("a cost of %d above the burst was taken later", cost)
			}
			continue
		case n > 0 && wait == 0:
			continue // the same again would be admitted
		case n == 0 && wait == 0:
			t.Fatalf("a cost of %d is refused, and the wait is 0", cost)
		}
		now += wait.Microseconds()
		if n, left := l.TakeCost(now-1, cost, rate, burst); n != 0 || left != time.Microsecond {
			t.Fatalf("1 µs before %v a cost of %d: %d taken, wait %v", wait, cost, n, left)
		}
		if n, left := l.TakeCost(now, cost, rate, burst); n != cost {
			t.Fatalf("after %v a cost of %d is refused, wait %v", wait, cost, left)
		}
	}
}

// changedRate changes the rate while tokens are taken. No interval has more grants than the largest rate and burst allow (a change may
// drop less than a microsecond of what is owed), a higher rate never waits longer, and every wait is exact at the present rate.
func changedRate(t *rapid.T, s admission.Strategy, l Limited) {
	drawRate := func() int64 {
		return rapid.OneOf(rapid.Int64Range(1000, 3_000_000), rapid.Int64Range(1000, 10_000)).Draw(t, "rate")
	}
	drawBurst := func(rate int64) int64 {
		return rapid.OneOf(rapid.Just(DefaultBurst(rate)), rapid.Int64Range(1000, 50_000)).Draw(t, "burst")
	}
	rate := drawRate()
	burst := drawBurst(rate)
	most, mostBurst := rate, burst
	now := int64(epoch)
	var changes int64
	var events []event
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		now += rapid.OneOf(rapid.Int64Range(0, 5000), rapid.Int64Range(0, 2_000_000)).Draw(t, "dt")
		if rapid.IntRange(0, 3).Draw(t, "re-rate") == 0 {
			_, before := l.Take(now, 0, rate, burst)
			old := rate
			if rate = drawRate(); rate < old {
				burst = drawBurst(rate)
			} else {
				burst = max(burst, drawBurst(rate))
			}
			_, after := l.Take(now, 0, rate, burst)
			if rate >= old && after > before {
				t.Fatalf("from %d/1000 to %d/1000 a second the wait grows from %v to %v", old, rate, before, after)
			}
			changes++
			most, mostBurst = max(most, rate), max(mostBurst, burst)
			if after > 0 {
				now += after.Microseconds()
				if n, _ := l.Take(now-1, 1, rate, burst); n != 0 {
					t.Fatalf("re-rated to %d/1000 a second: granted 1 µs before %v", rate, after)
				}
				n, wait := l.Take(now, 1, rate, burst)
				if n != 1 {
					t.Fatalf("re-rated to %d/1000 a second: refused after %v, wait %v", rate, after, wait)
				}
				events = append(events, event{now, n})
			}
		}
		n := rapid.Int64Range(1, 400).Draw(t, "n")
		if n, _ = l.Take(now, n, rate, burst); n == 0 {
			continue
		}
		events = append(events, event{now, n})
		if s == admission.StrategyFixedWindow {
			overWindow(t, events, most)
		} else {
			overInterval(t, events, most, mostBurst+(changes*most+999_999)/1_000_000)
		}
	}
}

func aboveTheBurst(t *testing.T, s admission.Strategy, l Limited) {
	t.Helper()
	const rate, burst, cost = 10_000, 5_000, 25
	if n, _ := l.TakeCost(epoch, 1, rate, burst); n != 1 {
		t.Fatalf("the first: %d", n)
	}
	n, wait := l.TakeCost(epoch, cost, rate, burst)
	switch s {
	case admission.StrategyTokenBucket, admission.StrategyLeakyBucket, admission.StrategyAdaptive:
		if n != 0 || wait >= 0 {
			t.Fatalf("a bucket of 5 granted %d, next in %v", n, wait)
		}
		return
	case GCRAStrategy:
		// One token is owed: 100 ms.
		if n != 0 || wait != 100*time.Millisecond {
			t.Fatalf("while something is owed: %d, next in %v", n, wait)
		}
	case admission.StrategyFixedWindow:
		if n != 0 || wait <= 0 || wait > time.Second {
			t.Fatalf("in a window that has a grant: %d, next in %v", n, wait)
		}
	}
	now := epoch + wait.Microseconds()
	if n, _ := l.TakeCost(now, cost, rate, burst); n != cost {
		t.Fatalf("when nothing is owed: %d", n)
	}
	n, wait = l.TakeCost(now, 1, rate, burst)
	if s == GCRAStrategy {
		// Charged in full: 25 are owed, and one fits again when they are 4.
		if n != 0 || wait != 2100*time.Millisecond {
			t.Fatalf("after it: %d, next in %v", n, wait)
		}
	} else if n != 0 || wait != 3*time.Second {
		// A window has 10, so it takes three.
		t.Fatalf("after it: %d, next in %v", n, wait)
	}
}

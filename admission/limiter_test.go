package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/internal/redistest"
)

// micros is a wait in microseconds, -1 for never, as the script has it.
func micros(d time.Duration) time.Duration {
	if d < 0 {
		return -1
	}
	return d / time.Microsecond
}

// TestLimiterConforms is the suite that every strategy has to pass: the script
// and the Go bucket agree to the unit, and no interval sees more than rate·dt + burst.
func TestLimiterConforms(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	rapid.Check(t, func(rt *rapid.T) {
		clock := newTestClock()
		core, err := New(Options{Client: client, Prefix: prefix, Timeout: 5 * time.Second, Log: quiet(), Now: clock.now})
		if err != nil {
			rt.Fatal(err)
		}
		l := core.Limiter(LimiterKey(prefix, "test:"+randomName(), "x"))
		rate := int64(rapid.IntRange(0, 3_000_000).Draw(rt, "rate"))
		burst := int64(rapid.IntRange(1000, 50_000).Draw(rt, "burst"))
		model := TokenBucket{At: clock.us, Rate: rate, Burst: burst, Level: burst * 1_000_000}
		type event struct{ at, n int64 }
		var events []event
		for step := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			clock.us += int64(rapid.OneOf(rapid.IntRange(0, 5000), rapid.IntRange(0, 100_000_000), rapid.IntRange(-3000, 0)).Draw(rt, "dt"))
			if step == 0 {
				model.At = clock.us // it begins with the first call
			}
			if rapid.IntRange(0, 9).Draw(rt, "re-rate") == 0 {
				// Live re-rating: what was earned stays earned, up to the new burst.
				rate = int64(rapid.IntRange(0, 3_000_000).Draw(rt, "new rate"))
				events = nil
			}
			n := int64(rapid.IntRange(1, 60).Draw(rt, "n"))
			g, err := l.Take(ctx5(t), n, rate, burst)
			if err != nil {
				rt.Fatal(err)
			}
			model.Rate = rate
			model.Refill(clock.us)
			want := min(n, model.Available())
			model.Take(want)
			if g.Taken != want || max(-1, g.Wait/time.Microsecond) != max(-1, micros(model.Wait(1))) {
				rt.Fatalf("took %d, next in %v; the model %d, %v", g.Taken, g.Wait, want, model.Wait(1))
			}
			if rate == 0 && g.Taken > 0 {
				rt.Fatalf("%d taken at rate 0", g.Taken)
			}
			events = append(events, event{clock.us, g.Taken})
			var sum int64
			for i := len(events) - 1; i >= 0; i-- {
				sum += events[i].n
				// Time that went back in between is no time.
				if dt := clock.us - events[i].at; dt >= 0 && model.At == clock.us && float64(sum)*1e9 > float64(dt)*float64(rate)+float64(burst)*1e6 {
					rt.Fatalf("%d taken within %d µs at %d/1000 a second + %d/1000", sum, dt, rate, burst)
				}
			}
		}
	})
}

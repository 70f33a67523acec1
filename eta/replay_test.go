package eta

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

const tick = 250_000 // µs between forecasts, as between snapshots

// sale is a simulated room with an endless queue and its own clock.
type sale struct {
	now      int64 // µs
	rate     float64
	paused   bool
	flow     func(seconds float64) float64 // real admissions a second, by the time since the beginning
	lumps    func(mean float64) int64      // admissions in one tick, by the number that is due
	buckets  []Bucket
	total    int64
	admitted []int64 // total admissions after each tick
	unpaused []int   // by tick: ticks without a pause so far
	input    Input
	last     *Forecast
}

func newSale(rate float64, flow func(float64) float64, lumps func(float64) int64) *sale {
	return &sale{now: start * 1e6, rate: rate, flow: flow, lumps: lumps}
}

func constant(rate float64) func(float64) float64 { return func(float64) float64 { return rate } }

// evenly returns a function that admits the due visitors and carries fractions over, as a leaky bucket does.
func evenly() func(float64) int64 {
	carry := 0.0
	return func(mean float64) int64 {
		carry += mean
		n := math.Floor(carry + 1e-9)
		carry -= n
		return int64(n)
	}
}

// atRandom returns a Poisson process (Knuth's method; the means are small), like the free places of a full room.
func atRandom(seed uint64) func(float64) int64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	return func(mean float64) int64 {
		limit, p, n := math.Exp(-mean), 1.0, int64(-1)
		for p > limit || n < 0 {
			p *= rng.Float64()
			n++
			if p <= limit {
				break
			}
		}
		return n
	}
}

func (s *sale) seconds() float64 { return float64(s.now)/1e6 - float64(start) }

// step returns one tick: admissions, then a forecast.
func (s *sale) step(waiting int64) *Forecast {
	second := floorSeconds(s.now)
	if n := len(s.buckets); n == 0 || s.buckets[n-1].Second != second {
		s.buckets = append(s.buckets, Bucket{Second: second})
	}
	b := &s.buckets[len(s.buckets)-1]
	moved := 0
	if !s.paused {
		n := s.lumps(s.flow(s.seconds()) * tick / 1e6)
		s.total += n
		b.Admitted += n
		b.Busy += tick / 1e6
		moved = 1
	}
	if n := len(s.unpaused); n > 0 {
		moved += s.unpaused[n-1]
	}
	s.admitted = append(s.admitted, s.total)
	s.unpaused = append(s.unpaused, moved)
	s.now += tick
	s.input = Input{Now: s.now, Since: start * 1e6, Buckets: s.buckets[max(0, len(s.buckets)-MaxBuckets-1):], Rate: s.rate, Paused: s.paused, Waiting: waiting}
	s.last = Window{}.Forecast(s.last, s.input)
	return s.last
}

// promise is an estimate to be compared with the real wait.
type promise struct {
	tick     int
	ahead    int64
	estimate Estimate
}

// real returns the real wait in seconds without pauses; false if the simulation ended before.
func (s *sale) real(p promise) (float64, bool) {
	for i := p.tick + 1; i < len(s.admitted); i++ {
		if s.admitted[i] > s.admitted[p.tick]+p.ahead {
			return float64(s.unpaused[i]-s.unpaused[p.tick]) * tick / 1e6, true
		}
	}
	return 0, false
}

// run simulates some seconds of the sale, and takes promises for places along the whole queue every five seconds.
func (s *sale) run(seconds int, between func(float64)) (promises []promise) {
	for range seconds * 1e6 / tick {
		between(s.seconds())
		f := s.step(20000)
		if len(s.admitted)%20 == 0 {
			for _, ahead := range []int64{200, 1000, 3000} {
				promises = append(promises, promise{tick: len(s.admitted) - 1, ahead: ahead, estimate: f.At(ahead)})
			}
		}
	}
	return promises
}

// errorOf returns the mean absolute percentage error of the promises made in [from, to) seconds, and the share of the waits that lay
// within the promised range.
func (s *sale) errorOf(t *testing.T, promises []promise, from, to float64) (mape, within float64) {
	t.Helper()
	n := 0
	for _, p := range promises {
		at := float64(p.tick+1) * tick / 1e6
		if at < from || at >= to || !p.estimate.Known {
			continue
		}
		if real, over := s.real(p); over && real > 5 {
			mape += math.Abs(p.estimate.Seconds-real) / real
			if p.estimate.Low <= real && real <= p.estimate.High {
				within++
			}
			n++
		}
	}
	if n < 20 {
		t.Fatalf("only %d promises can be compared, want 20 or more", n)
	}
	return mape / float64(n), within / float64(n)
}

func TestWindow_PromisesAgainstRealWaits(t *testing.T) {
	for _, row := range []struct {
		name     string
		rate     float64               // the policy's
		flow     func(float64) float64 // the real one
		lumps    func() func(float64) int64
		between  func(s *sale) func(float64)
		from, to float64 // the promises of this time are compared, s
		most     float64 // mean absolute percentage error
	}{
		{"steady, at the policy's rate", 20, constant(20), evenly, nil, 0, 1200, 0.03},
		{"steady, at random, at the policy's rate", 20, constant(20), func() func(float64) int64 { return atRandom(1) }, nil, 0, 1200, 0.10},
		{"steady, at random, limited below the policy's rate", 50, constant(20), func() func(float64) int64 { return atRandom(2) }, nil, 75, 1200, 0.10},
		{"a pause of two minutes", 20, constant(20), func() func(float64) int64 { return atRandom(3) }, func(s *sale) func(float64) {
			return func(at float64) { s.paused = at >= 300 && at < 420 }
		}, 420, 1200, 0.10},
		{"a pause of twenty minutes", 20, constant(20), func() func(float64) int64 { return atRandom(4) }, func(s *sale) func(float64) {
			return func(at float64) { s.paused = at >= 300 && at < 1500 }
		}, 1500, 2400, 0.10},
		{"the rate is doubled by the operator", 20, nil, func() func(float64) int64 { return atRandom(5) }, func(s *sale) func(float64) {
			s.flow = func(float64) float64 { return s.rate }
			return func(at float64) {
				if at >= 600 {
					s.rate = 40
				}
			}
		}, 600, 1500, 0.10},
		{"twice the flow, unannounced, 60 s later", 100, func(at float64) float64 {
			if at < 1000 {
				return 20
			}
			return 40
		}, func() func(float64) int64 { return atRandom(6) }, nil, 1060, 2000, 0.10},
		{"twice the flow, unannounced, in the second minute", 100, func(at float64) float64 {
			if at < 1000 {
				return 20
			}
			return 40
		}, evenly, nil, 1060, 1120, 0.25},
		{"half the flow, unannounced, 60 s later", 100, func(at float64) float64 {
			if at < 1000 {
				return 20
			}
			return 10
		}, func() func(float64) int64 { return atRandom(7) }, nil, 1060, 2000, 0.25},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSale(row.rate, row.flow, row.lumps())
			between := func(float64) {}
			if row.between != nil {
				between = row.between(s)
			}
			promises := s.run(int(row.to)+400, between)
			mape, within := s.errorOf(t, promises, row.from, row.to)
			t.Logf("MAPE %.1f %%, %.0f %% within the range", 100*mape, 100*within)
			if mape > row.most {
				t.Errorf("mean absolute percentage error %.1f %%, want at most %.0f %%", 100*mape, 100*row.most)
			}
			if within < 0.7 {
				t.Errorf("%.0f %% of the waits lay within the promised range, want about 80 %% or more", 100*within)
			}
		})
	}
}

// A visitor in a steady sale with noise sees the estimate for the place at each moment, as on the waiting page.
func TestWindow_FigureDoesNotGrow(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSale(100, constant(20), atRandom(10+seed))
			s.run(1200, func(float64) {})
			const ahead = 5000
			place, lowest, worst := int64(ahead), math.Inf(1), 0.0
			for place > 200 {
				before := s.total
				f := s.step(20000)
				place -= s.total - before
				got := f.At(place).Seconds
				worst = max(worst, (got-lowest)/lowest)
				lowest = min(lowest, got)
			}
			if worst > 0.04 {
				t.Errorf("a figure grew by %.1f %% over the lowest before", 100*worst)
			}
		})
	}
}

func TestWindow_Invariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(0, 2_000_000_000).Draw(t, "second")
		var f *Forecast
		for range rapid.IntRange(1, 4).Draw(t, "forecasts") {
			in := Input{Now: now*1e6 + rapid.Int64Range(0, 999_999).Draw(t, "µs"), Since: (now - rapid.Int64Range(-5, 5000).Draw(t, "age")) * 1e6,
				Rate: rapid.OneOf(rapid.Just(0.0), rapid.Float64(), rapid.Float64Range(0.001, 1e5)).Draw(t, "rate"), Paused: rapid.IntRange(0, 9).Draw(t, "paused") == 0,
				Waiting: rapid.Int64Range(-1, 1e7).Draw(t, "waiting"), MaxActive: rapid.Int64Range(0, 3).Draw(t, "max"), Active: rapid.Int64Range(0, 3).Draw(t, "active")}
			second := now - rapid.Int64Range(0, 1000).Draw(t, "first")
			busy := rapid.OneOf(rapid.Float64Range(-0.5, 1.5), rapid.Just(1.0), rapid.Just(math.NaN()))
			for range rapid.IntRange(0, 60).Draw(t, "buckets") {
				in.Buckets = append(in.Buckets, Bucket{Second: second, Admitted: rapid.Int64Range(-1, 5000).Draw(t, "admitted"), Busy: busy.Draw(t, "busy")})
				second += rapid.Int64Range(0, 30).Draw(t, "gap")
			}
			f = Window{}.Forecast(f, in)
			if f.At(0).Known && (in.Paused || !(in.Rate > 0)) {
				t.Fatal("an estimate, although the room admits nobody")
			}
			var last Estimate
			for _, ahead := range []int64{-1, 0, 1, 2, 5, 10, 100, 1000, 99_999, 100_000, 10_000_000, math.MaxInt64} {
				e := f.At(ahead)
				for _, v := range []float64{e.Seconds, e.Low, e.High} {
					if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
						t.Fatalf("ahead %d: %+v", ahead, e)
					}
				}
				if e.Low > e.Seconds || e.Seconds > e.High {
					t.Fatalf("ahead %d: not in order: %+v", ahead, e)
				}
				if f.At(0).Known && !e.Known { // places become free at an unknown time
					last = Estimate{Seconds: math.MaxFloat64}
					continue
				}
				if e.Seconds < last.Seconds || e.Low < last.Low || e.High < last.High {
					t.Fatalf("ahead %d: %+v after %+v", ahead, e, last)
				}
				last = e
			}
			now += rapid.Int64Range(0, 100).Draw(t, "later")
		}
	})
}

// A change is followed to its end, not only until the rest is small enough to be noise.
func TestWindow_FollowsChangeToItsEnd(t *testing.T) {
	s := newSale(100, func(at float64) float64 {
		if at < 1000 {
			return 20
		}
		return 10
	}, evenly())
	s.run(1090, func(float64) {})
	if got := s.last.Rate(); !near(got, 10, 0.025) {
		t.Errorf("90 s after the flow fell to 10/s: %v/s", got)
	}
}

func TestWindow_NoiseMovesSlowly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSale(1000, constant(rapid.Float64Range(2, 40).Draw(t, "flow")), atRandom(rapid.Uint64().Draw(t, "seed")))
		waiting := rapid.Int64Range(0, 100_000).Draw(t, "waiting")
		for range 280 { // past the first minute, in which observations replace the policy's rate
			s.step(waiting)
		}
		before := s.last
		for range 160 {
			f := s.step(waiting)
			a, b := before.At(waiting).Seconds, f.At(waiting).Seconds
			if b > a*1.05 {
				t.Fatalf("the last in the queue: %.1f s became %.1f s in %v s", a, b, tick/1e6)
			}
			if !f.memory.following && b > a+1.1*tick/1e6+0.1 {
				t.Fatalf("the last in the queue: %.2f s became %.2f s in %v s of noise", a, b, tick/1e6)
			}
			before = f
		}
	})
}

// A room with a rate of 100/s admits 15/s: every estimate grows once and is right from then on.
func TestWindow_CorrectsPriorOnce(t *testing.T) {
	for name, e := range map[string]Estimator{"window": Window{}, "ema": EMA{}} {
		s := newSale(100, constant(15), atRandom(5))
		var f *Forecast
		grown, last := 0, 0.0
		for range 4 * 60 {
			s.step(6000)
			f = e.Forecast(f, s.input)
			is := f.At(5999).Seconds
			if last > 0 && is > 1.05*last {
				grown++
			}
			last = is
		}
		if grown != 1 || !near(last, 400, 0.2) {
			t.Errorf("%s: %d steps to %v s, want one to about 400 s", name, grown, last)
		}
	}
}

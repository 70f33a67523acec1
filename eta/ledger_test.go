package eta

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The range covers four fifths of waits whose errors are log-normal about a biased estimate.
func TestSpread_CoversFourFifths(t *testing.T) {
	l := ledger{}
	rng := rand.New(rand.NewPCG(1, 2))
	f := Window{}.Forecast(nil, lived(10, span{900, 10, 1}))
	within, below := 0, 0
	const n = 4000
	for i := range 2 * n {
		f.knots = nil
		l.ranges(f)
		e := f.At(2999)
		real := e.Seconds * 1.1 * math.Exp(0.3*rng.NormFloat64())
		l.now += 30e6
		l.came(&promised{at: 0, seconds: e.Seconds, low: e.Low, high: e.High, learnt: 1}, real)
		if i < n {
			continue
		}
		if real >= e.Low && real <= e.High {
			within++
		} else if real < e.Low {
			below++
		}
	}
	if got := float64(within) / n; got < 0.77 || got > 0.83 {
		t.Errorf("%.1f %% within the range", 100*got)
	}
	if got := float64(below) / n; got < 0.08 || got > 0.12 {
		t.Errorf("%.1f %% below the range", 100*got)
	}
	if kept, all := l.held(); all != outcomes || math.Abs(float64(kept)/outcomes-0.8) > 0.05 {
		t.Errorf("%d of %d", kept, all)
	}
}

// A place at the tail of 300 at 10/s is promised 30 s, then less and less, until it is passed.
func TestLedger_FollowsPlacesToFront(t *testing.T) {
	p := NewPredictor(Fixed{}, false)
	in := lived(10)
	first := in.Now
	for tick := range 200 {
		in.Now = first + int64(tick)*250_000
		out := int64(float64(tick) * 2.5)
		in.Waiting, in.Oldest = 300, first-30e6+out*100_000
		in.Ahead = func(order int64) int64 { return max(0, (order-in.Oldest)/100_000) }
		p.Forecast(in)
	}
	within, all := p.Held()
	if all < 100 || within != all {
		t.Errorf("%d of %d promises were kept in a queue that moves as forecast", within, all)
	}
	if n := len(p.ledger.tracers); n == 0 || n > mostTracers {
		t.Errorf("%d places are tracked", n)
	}
	if e := &p.ledger.errors[knotOf(30)]; e.count == 0 || e.at(0.1) < -0.25 || e.at(0.9) > 0.25 {
		t.Errorf("30 s: %d errors, from %v to %v", e.count, e.at(0.1), e.at(0.9))
	}
	in.Now -= 3600e6 // a new store
	p.Forecast(in)
	if _, all := p.Held(); all != 0 {
		t.Errorf("%d promises from before room time went back count", all)
	}
}

// An overdue promise is recorded before its wait has ended: a queue takes 1000 s and is promised 100 s.
func TestLedger_LearnsFromOverduePromise(t *testing.T) {
	p := NewPredictor(Fixed{}, false)
	in := lived(10)
	first := in.Now
	var f *Forecast
	for second := range int64(300) {
		in.Now = first + second*1e6
		in.Waiting, in.Oldest = 1000, first+(second-1000)*1e6
		in.Ahead = func(order int64) int64 { return max(0, (order-in.Oldest)/1e6) }
		f = p.Forecast(in)
	}
	if e := f.At(999); !near(e.Seconds, 100, 0.01) || e.High < 1000 || e.High > 2000 {
		t.Errorf("after 300 s of a wait of 1000 s: %+v", e)
	}
	if within, all := p.Held(); all == 0 || within > all/2 {
		t.Errorf("%d of %d promises count as kept", within, all)
	}
}

// With an estimator that is always short, a fifth of the waits is above the range, and none below.
func TestSpread_OneSidedErrors(t *testing.T) {
	var l ledger
	rng := rand.New(rand.NewPCG(3, 4))
	f := Window{}.Forecast(nil, lived(10, span{900, 10, 1}))
	above, n := 0, 0
	for i := range 6000 {
		f.knots = nil
		l.ranges(f)
		e := f.At(2999)
		if e.Low > e.Seconds || e.High < e.Seconds {
			t.Fatalf("the promise is not in its range: %+v", e)
		}
		real := e.Seconds * 4 * math.Exp(0.3*rng.NormFloat64())
		l.now += 100e6
		l.came(&promised{seconds: e.Seconds, low: e.Low, high: e.High, learnt: 1}, real)
		if i < 3000 {
			continue
		}
		if n++; real > e.High {
			above++
		}
	}
	if got := float64(above) / float64(n); got < 0.17 || got > 0.23 {
		t.Errorf("%.1f %% lie above the range", 100*got)
	}
}

// A restarted predictor learns from promises that were made before.
func TestPredictor_Remind(t *testing.T) {
	in := lived(10, span{900, 10, 1})
	in.Ahead = func(int64) int64 { return 999 }
	p := NewPredictor(Window{}, false)
	p.AddOutcome(100, 300) // before the first forecast this has no effect
	before := p.Forecast(in).At(999)
	for range 100 {
		in.Now += 1e6
		p.AddOutcome(100, 300)
		p.AddOutcome(5, 1)
		p.Forecast(in)
	}
	after := p.Forecast(in)
	if e := after.At(999); before.High > 200 || e.High < 300 || !near(e.Seconds, before.Seconds, 0.2) {
		t.Errorf("after waits three times as long as promised %+v became %+v", before, e)
	}
	if e := after.At(199); e.High < 60 {
		t.Errorf("a fifth of the wait: %+v; want a range that includes three times the estimate", e)
	}
	if n := p.ledger.errors[knotOf(5)].count; n != 0 {
		t.Errorf("%d promises of a few seconds count", n)
	}
	if _, all := p.Held(); all != 0 {
		t.Errorf("%d promises of others count in the share of kept promises", all)
	}
}

// playDecision simulates 15 minutes of a queue that moves at 10/s until change, called from the second minute on, alters it. It
// returns the estimate for the 250th visitor and the kept promises.
func playDecision(change func(in *Input, second int64)) (e Estimate, within, all int) {
	p := NewPredictor(Fixed{}, false)
	first, out := int64(start)*1e6, 0.0
	for second := range int64(900) {
		in := Input{Now: first + second*1e6, Since: first, Rate: 10, Set: 10}
		if second >= 120 {
			change(&in, second)
		}
		if !in.Paused {
			out += in.Rate
		}
		in.Oldest = first - 30e6 + int64(out*1e5)
		in.Ahead = func(order int64) int64 { return max(0, (order-in.Oldest)/100_000) }
		in.Waiting = in.Ahead(in.Now)
		e = p.Forecast(in).At(250)
		if second > 120 {
			p.AddOutcome(150, 800)
		}
	}
	within, all = p.Held()
	return e, within, all
}

// The queue becomes ten times as slow, or stops for five minutes. If an operator set that, earlier promises do not count; if an
// adaptive controller found the rate, they do.
func TestLedger_IgnoresDecisions(t *testing.T) {
	for name, change := range map[string]func(in *Input, second int64){
		"a rate":  func(in *Input, _ int64) { in.Rate, in.Set = 1, 1 },
		"a pause": func(in *Input, second int64) { in.Paused = second < 420 },
		"a closed room": func(in *Input, second int64) {
			if second < 420 {
				in.Rate, in.Set = 0, 0
			}
		},
	} {
		if e, within, all := playDecision(change); !e.Known || e.High > 1.5*e.Seconds || all < 50 || within < all*9/10 {
			t.Errorf("%s was set: %+v, %d of %d kept", name, e, within, all)
		}
	}
	if e, within, all := playDecision(func(in *Input, _ int64) { in.Rate, in.Set = 1, 0 }); e.High < 2*e.Seconds || within > all*9/10 {
		t.Errorf("the rate was found: %+v, %d of %d kept", e, within, all)
	}
}

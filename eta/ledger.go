package eta

import (
	"math"
	"slices"
)

const (
	mostTracers = 512  // places that are followed at once
	nextPromise = 0.7  // of the last one, when a place is promised something again
	leastTraced = 2.0  // s; less is not followed
	outcomes    = 1024 // that are counted
	alike       = 30.0 // places one after another whose errors are taken for each other's own; of more, the fate is one
	missed      = 0.10 // share of waits that may lie below a range, and above
	gain        = 0.20 // of a usual error, by which a miss widens a range
	scaleShare  = 0.05 // of a new error in the usual one
	leastScale  = 0.002
	mostWidth   = 3.0  // natural logarithm of the widest range
	hourError   = 0.15 // relative deviation that an hour is expected to bring, growing with the root of time
)

// ledger holds what was promised against what came. It follows places through the line, none of which needs a visitor: one
// at the tail every now and then, promised something when it is made and again each time that its wait has shrunk by three
// tenths, until the head of the line has passed it. Their errors, by the length of the wait that was promised, make the
// range of the next promises: each end widens by a miss and narrows by a hit, ten to one by the size of a usual error, so
// that a tenth of the waits comes to lie below and a tenth above, whatever their distribution (I. Gibbs, E. Candès, Adaptive
// Conformal Inference Under Distribution Shift, 2021; as quantile tracking: A. Angelopoulos, E. Candès, R. Tibshirani,
// Conformal PID Control for Time Series Prediction, 2023).
type ledger struct {
	tracers []tracer // by order
	errors  [knots]spread
	outcome [outcomes]bool
	counted int
	within  int
	made    int64   // when the last tracer was, µs of room time
	apart   float64 // s between two
	now     int64
}

type tracer struct {
	order    int64
	next     float64 // s of wait at which something is promised again
	at       int64   // of the last promise
	seconds  float64 // of the last promise
	promises []promised
}

type promised struct {
	at                 int64
	seconds, low, high float64
}

// spread is that of the errors of waits of one length, as natural logarithms of real over promised.
type spread struct {
	known        bool
	below, above float64 // ends of the range: below is not positive, above not negative
	usual        float64 // absolute error
}

// settle closes the accounts of those places that the head has passed.
func (l *ledger) settle(in *Input) {
	if in.Now < l.now { // another time line
		*l = ledger{}
	}
	l.now = in.Now
	n := 0
	for n < len(l.tracers) && (in.Waiting == 0 || in.Head > l.tracers[n].order) {
		for _, p := range l.tracers[n].promises {
			l.came(&p, float64(in.Now-p.at)/1e6)
		}
		n++
	}
	l.tracers = slices.Delete(l.tracers, 0, n)
}

// came notes that a promise came true.
func (l *ledger) came(p *promised, real float64) {
	off := math.Log(max(real, 0.1) / p.seconds)
	low, high := math.Log(p.low/p.seconds), math.Log(p.high/p.seconds)
	at := knotOf(p.seconds)
	slow := math.Sqrt(min(1, alike*l.apart/p.seconds))
	for i := max(at-1, 0); i <= min(at+1, knots-1); i++ {
		weight := 1.0
		if i != at {
			weight = 0.5
		}
		l.errors[i].note(off, low, high, weight*slow)
	}
	i := l.counted % outcomes
	if l.counted >= outcomes && l.outcome[i] {
		l.within--
	}
	l.outcome[i] = off >= low && off <= high
	if l.outcome[i] {
		l.within++
	}
	l.counted++
}

// note moves the ends by an error that fell into, or out of, the range from low to high.
func (e *spread) note(off, low, high, weight float64) {
	if !e.known {
		*e = spread{known: true, below: low, above: high, usual: (high - low) / 2 / quantile}
	}
	e.usual = max(e.usual+(min(math.Abs(off), mostWidth)-e.usual)*scaleShare*weight, leastScale)
	step := func(end float64) float64 { return gain * weight * max(e.usual, end/3) }
	move := func(end float64, out bool) float64 {
		if out {
			return min(end+step(end)*(1-missed), mostWidth)
		}
		return max(end-step(end)*missed, 0)
	}
	e.above, e.below = move(e.above, off > high), -move(-e.below, off < low)
}

// held is how many of the last promises were kept.
func (l *ledger) held() (within, all int) { return l.within, min(l.counted, outcomes) }

// promise makes a new place at the tail, if it is time, and promises those something whose wait has shrunk.
func (l *ledger) promise(in *Input, f *Forecast) {
	if !f.known {
		return
	}
	for i := range l.tracers {
		t := &l.tracers[i]
		if t.seconds-float64(in.Now-t.at)/1e6 > t.next {
			continue
		}
		if e := f.At(in.Ahead(t.order)); e.Known && e.Seconds >= leastTraced {
			t.note(in.Now, e)
		} else {
			t.next = math.Inf(-1)
		}
	}
	tail := f.At(in.Ahead(in.Now))
	if in.Waiting < 1 || !tail.Known || tail.Seconds < leastTraced || len(l.tracers) >= mostTracers {
		return
	}
	l.apart = min(max(tail.Seconds/(mostTracers/2), 1), 60)
	if float64(in.Now-l.made)/1e6 >= l.apart {
		t := tracer{order: in.Now}
		t.note(in.Now, tail)
		l.tracers = append(l.tracers, t)
		l.made = in.Now
	}
}

func (t *tracer) note(now int64, e Estimate) {
	t.promises = append(t.promises, promised{now, e.Seconds, e.Low, e.High})
	t.at, t.seconds, t.next = now, e.Seconds, e.Seconds*nextPromise
}

// ranges gives a new forecast its range. Where nothing has come true, chance and the usual course of an hour make it; waits
// longer than any that came true have at least the range of the longest that did.
func (l *ledger) ranges(f *Forecast) {
	if !f.known {
		return
	}
	if len(f.knots) == 0 {
		f.knots = make([]knot, knots)
		for i := range f.knots {
			at := knotAt(i)
			f.knots[i] = knot{at: at, seconds: at}
		}
	}
	var low, high float64
	var longest *spread
	for i := range f.knots {
		k := &f.knots[i]
		chance := math.Log1p(quantile * math.Sqrt(f.dispersion/(k.at*f.rate+1)+f.spread*f.spread+hourError*hourError*k.at/3600))
		below, above := -chance, chance
		if e := &l.errors[knotOf(k.seconds)]; e.known {
			below, above = e.below, e.above
			longest = e
		} else if longest != nil {
			below, above = min(below, longest.below), max(above, longest.above)
		}
		low, high = max(low, k.seconds*math.Exp(below)), max(high, k.seconds*math.Exp(above))
		k.low, k.high = low, high
	}
}

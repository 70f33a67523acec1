package eta

import (
	"cmp"
	"math"
	"slices"
)

const (
	mostTracers   = 512  // places that are tracked at once
	nextPromise   = 0.7  // share of the last promised wait at which a place gets its next promise
	leastTraced   = 2.0  // shortest wait that is tracked, s
	leastPromised = 10.0 // shortest wait promised by others that counts, s
	outcomes      = 1024 // last outcomes that are counted
	overdue       = 1.2  // factor by which a wait exceeds its known length before it is recorded again
	decided       = 1.2  // factor by which a newly set rate, and so the wait, must differ to cancel earlier promises
	hourError     = 0.22 // relative deviation that an hour is expected to bring, growing with the root of time
)

// ledger compares promised with real waits. It tracks places through the queue, which need no visitor: a new one at the tail
// regularly. A place gets a promise when it is made, and again each time that its wait has shrunk by three tenths, until the front of
// the queue has passed it. The errors, by the length of the promised wait, make the range of the next promises (see spread).
//
// A decision of an operator is not an error of the estimator: if a rate is set anew or the queue is stopped, the places whose waits
// change receive new promises, and their earlier promises no longer count.
type ledger struct {
	tracers []tracer // by order
	errors  [knots]spread
	outcome [outcomes]bool
	counted int
	within  int
	made    int64 // when the last tracer was made, µs of room time
	now     int64
	set     float64 // Input.Set
	stood   bool    // paused, or closed
	anew    int64   // when set or stood changed last, µs of room time
}

type tracer struct {
	order    int64
	next     float64 // wait at which the place gets its next promise, s
	at       int64   // of the last promise
	seconds  float64 // of the last promise
	due      int64   // when the next promise exceeds its known length
	promises []promised
}

type promised struct {
	at                 int64
	seconds, low, high float64
	learnt             float64 // share of the range that came from errors
	due                int64   // when the wait exceeds its known length
	late               bool    // it took longer than high
	slot               int     // slot of its error, once it is late
}

// closePassed records the waits of the places that the front has passed. A wait that exceeds its range is recorded before it has ended:
// otherwise the promises that are far too short would be learnt last.
func (l *ledger) closePassed(in *Input, f *Forecast) {
	if in.Now < l.now { // room time went back: a new store
		*l = ledger{}
	}
	l.now = in.Now
	n := 0
	for n < len(l.tracers) && (in.Waiting == 0 || in.Oldest > l.tracers[n].order) {
		for i := range l.tracers[n].promises {
			p := &l.tracers[n].promises[i]
			l.came(p, float64(in.Now-p.at)/1e6)
		}
		n++
	}
	l.tracers = slices.Delete(l.tracers, 0, n)
	stands := in.Paused || in.Rate < leastRate
	if stands != l.stood || l.set > 0 && in.Set > 0 && differs(in.Set, l.set) {
		l.void(in, f)
	}
	if l.stood = stands; !stands {
		l.set = in.Set
	}
	for i := range l.tracers {
		if t := &l.tracers[i]; in.Now >= t.due {
			t.due = math.MaxInt64
			left := math.Inf(1)
			if e := f.At(in.Ahead(t.order) - 1); e.Known {
				left = e.Seconds
			}
			for j := range t.promises {
				p := &t.promises[j]
				if in.Now >= p.due {
					l.outlasted(p, float64(in.Now-p.at)/1e6, left, f)
				}
				t.due = min(t.due, p.due)
			}
		}
	}
}

// void cancels the promises of the places whose wait differs now. Promises that foresaw the change stay.
func (l *ledger) void(in *Input, f *Forecast) {
	l.anew = in.Now
	for i := range l.tracers {
		t := &l.tracers[i]
		e := f.At(in.Ahead(t.order) - 1)
		if left := t.seconds - float64(in.Now-t.at)/1e6; e.Known && left > 0 && !differs(e.Seconds, left) {
			continue
		}
		t.promises, t.next, t.due = t.promises[:0], math.Inf(1), math.MaxInt64
	}
}

func differs(a, b float64) bool { return max(a, b) > decided*min(a, b) }

// came records the real wait of a promise.
func (l *ledger) came(p *promised, real float64) {
	e := &l.errors[knotOf(p.seconds)]
	off := math.Log(max(real, 0.1) / p.seconds)
	if p.late {
		e.amend(p.slot, off)
		return
	}
	l.record(e, p, real)
	e.add(l.now, p.seconds, off)
}

// outlasted records a wait that is not over and exceeds its known length. It extrapolates the error from the part of the wait that the
// forecast expects to be left.
func (l *ledger) outlasted(p *promised, passed, left float64, f *Forecast) {
	e := &l.errors[knotOf(p.seconds)]
	real := passed
	if left < p.seconds {
		done := f.rate * (p.seconds - left) // visitors admitted so far at that rate; chance may have made it fewer
		real *= max(1, f.rate*p.seconds/(done+2*math.Sqrt(f.dispersion*done)+f.dispersion))
	}
	off := math.Log(real / p.seconds)
	if p.late {
		e.amend(p.slot, off)
	} else {
		p.late = true
		l.record(e, p, real)
		p.slot = e.add(l.now, p.seconds, off)
	}
	p.due = p.at + int64(passed*overdue*1e6)
}

// record counts whether a wait was in its range.
func (l *ledger) record(e *spread, p *promised, real float64) {
	below, above := real < p.low, real > p.high
	e.correct(l.now, p.seconds, p.learnt, below, above)
	i := l.counted % outcomes
	if l.counted >= outcomes && l.outcome[i] {
		l.within--
	}
	l.outcome[i] = !below && !above
	if l.outcome[i] {
		l.within++
	}
	l.counted++
}

// addOutcome records the error of a promise that was not tracked here. Short waits do not count, because such promises are in whole seconds.
func (l *ledger) addOutcome(promised, real float64) {
	e := &l.errors[knotOf(promised)]
	if promised >= leastPromised && real > 0 && l.now != 0 && float64(l.now-l.anew)/1e6 >= real && e.learnt() < 1 {
		e.add(l.now, promised, math.Log(real/promised))
	}
}

// held returns how many of the last promises were kept, and how many there were.
func (l *ledger) held() (within, all int) { return l.within, min(l.counted, outcomes) }

// promise adds a new place at the tail, if one is due, and gives a new promise to each place whose wait has shrunk.
func (l *ledger) promise(in *Input, f *Forecast) {
	if !f.known {
		return
	}
	for i := range l.tracers {
		t := &l.tracers[i]
		if t.seconds-float64(in.Now-t.at)/1e6 > t.next {
			continue
		}
		if e := f.At(in.Ahead(t.order) - 1); e.Known && e.Seconds >= leastTraced {
			l.note(t, in.Now, e)
		} else {
			t.next = math.Inf(-1)
		}
	}
	order := cmp.Or(in.Tail, in.Now)
	tail := f.At(in.Ahead(order) - 1)
	if in.Waiting < 1 || !tail.Known || tail.Seconds < leastTraced || len(l.tracers) >= mostTracers {
		return
	}
	if apart := min(max(tail.Seconds/(mostTracers/2), 1), 60); float64(in.Now-l.made)/1e6 >= apart {
		t := tracer{order: order, due: math.MaxInt64}
		l.note(&t, in.Now, tail)
		l.tracers = append(l.tracers, t)
		l.made = in.Now
	}
}

// note records a promise for a place. The place stands for the last visitor before its order: both are passed at the same time.
func (l *ledger) note(t *tracer, now int64, e Estimate) {
	due := now + int64(e.High*1e6) + 1
	t.promises = append(t.promises, promised{at: now, seconds: e.Seconds, low: e.Low, high: e.High, learnt: l.errors[knotOf(e.Seconds)].learnt(), due: due})
	t.at, t.seconds, t.next, t.due = now, e.Seconds, e.Seconds*nextPromise, min(t.due, due)
}

// shortest returns the errors of the shortest waits that have any; nil: there are none.
func (l *ledger) shortest() *spread {
	for i := range l.errors {
		if l.errors[i].count > 0 {
			return &l.errors[i]
		}
	}
	return nil
}

// ranges sets the range of a new forecast. For a length of wait without errors, the range comes from chance, from the usual change of an
// hour, and from the errors of the next shorter waits that have any.
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
	var nearest *spread
	if l.counted == 0 { // no tracked wait has ended: the errors from elsewhere also apply to shorter waits
		nearest = l.shortest()
	}
	for i := range f.knots {
		k := &f.knots[i]
		e := &l.errors[knotOf(k.seconds)]
		chance := 0.0
		if e.learnt() < 1 {
			chance = math.Log1p(quantile * math.Sqrt(f.dispersion/(k.at*f.rate+1)+f.spread*f.spread+hourError*hourError*k.at/3600))
		}
		below, above := -chance, chance
		if e.count > 0 {
			below, above = e.own(chance)
			nearest = e
		} else if nearest != nil {
			b, a := nearest.ends(chance)
			below, above = min(below, b), max(above, a)
		}
		low, high = max(low, k.seconds*math.Exp(below)), max(high, k.seconds*math.Exp(above))
		k.low, k.high = low, high
	}
}

package eta

import (
	"cmp"
	"math"
	"slices"
)

const (
	mostTracers   = 512  // places that are followed at once
	nextPromise   = 0.7  // of the last one, when a place is promised something again
	leastTraced   = 2.0  // s; less is not followed
	leastReminded = 10.0 // s, likewise, of what others promised
	outcomes      = 1024 // that are counted
	overdue       = 1.2  // factor by which a wait exceeds its known length before it is recorded again
	decided       = 1.2  // by what a rate that is set anew, and a wait with it, differs for older promises to count no more
	hourError     = 0.22 // relative deviation that an hour is expected to bring, growing with the root of time
)

// ledger compares promised with real waits. It follows places through the queue, none of which needs a visitor: one
// at the tail every now and then, promised something when it is made and again each time that its wait has shrunk by three
// tenths, until the front of the queue has passed it. Their errors, by the length of the promised wait, make the range of the
// next promises (see spread). A decision of an operator is not an error of the estimator: if a rate is set anew or the queue is
// stopped, the places whose waits change receive new promises, and their earlier promises no longer count.
type ledger struct {
	tracers []tracer // by order
	errors  [knots]spread
	outcome [outcomes]bool
	counted int
	within  int
	made    int64 // when the last tracer was, µs of room time
	now     int64
	set     float64 // Input.Set
	stood   bool    // paused, or closed
	anew    int64   // when one of them changed last, µs of room time
}

type tracer struct {
	order    int64
	next     float64 // s of wait at which something is promised again
	at       int64   // of the last promise
	seconds  float64 // of the last promise
	due      int64   // when a promise may next exceed its known length
	promises []promised
}

type promised struct {
	at                 int64
	seconds, low, high float64
	learnt             float64 // share of the range that was
	due                int64   // from then on it exceeds its known length
	late               bool    // it took longer than high
	slot               int     // of its error, once it is late
}

// closePassed closes the accounts of those places that the head has passed. That a wait is longer than its range is known before
// it has ended, and noted then: else what is promised much too little would be learnt of last.
func (l *ledger) closePassed(in *Input, f *Forecast) {
	if in.Now < l.now { // another time line
		*l = ledger{}
	}
	l.now = in.Now
	n := 0
	for n < len(l.tracers) && (in.Waiting == 0 || in.Head > l.tracers[n].order) {
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

// void takes back the promises to those whose wait is another one now. What was foreseen stands.
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

// outlasted records that a wait is not over and exceeds its known length: by as much as the forecast expects it to go on in
// proportion.
func (l *ledger) outlasted(p *promised, passed, left float64, f *Forecast) {
	e := &l.errors[knotOf(p.seconds)]
	real := passed
	if left < p.seconds {
		done := f.rate * (p.seconds - left) // people, if it were so fast; chance may have kept some
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

// remind records the error of a promise that was not followed here. Promises of whole seconds count little if they are short.
func (l *ledger) remind(promised, real float64) {
	e := &l.errors[knotOf(promised)]
	if promised >= leastReminded && real > 0 && l.now != 0 && float64(l.now-l.anew)/1e6 >= real && e.learnt() < 1 {
		e.add(l.now, promised, math.Log(real/promised))
	}
}

// held returns how many of the last promises were kept, and how many there were.
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

// note promises a place something: it stands for the last visitor before its order, for it is passed when they are.
func (l *ledger) note(t *tracer, now int64, e Estimate) {
	due := now + int64(e.High*1e6) + 1
	t.promises = append(t.promises, promised{at: now, seconds: e.Seconds, low: e.Low, high: e.High, learnt: l.errors[knotOf(e.Seconds)].learnt(), due: due})
	t.at, t.seconds, t.next, t.due = now, e.Seconds, e.Seconds*nextPromise, min(t.due, due)
}

// shortest returns the errors of the shortest waits of which any are known; nil: of none.
func (l *ledger) shortest() *spread {
	for i := range l.errors {
		if l.errors[i].count > 0 {
			return &l.errors[i]
		}
	}
	return nil
}

// ranges sets the range of a new forecast. Where nothing has come true, chance and the usual course of an hour make it, and
// the errors of the next shorter waits that have.
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
	if l.counted == 0 { // nothing that was followed here has come true: what it is reminded of holds for shorter waits, too
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

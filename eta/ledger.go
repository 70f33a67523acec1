package eta

import (
	"math"
	"slices"
)

const (
	mostTracers = 512  // places that are followed at once
	keptErrors  = 96   // of a knot
	errorTime   = 1800 // s: time constant with which errors fade
	priorErrors = 8.0  // errors that the range of chance alone counts for
	nextPromise = 0.7  // of the last one, when a place is promised something again
	leastTraced = 2.0  // s; less is not followed
	outcomes    = 1024
	missed      = 0.10 // share of waits that may lie below a range, and above
	gain        = 0.01 // of the levels, for each wait that came true
	leastLevel  = 0.005
	lookAgain   = 10e6 // µs of room time after which the errors are sorted again
	mostLevel   = 0.35
)

// ledger holds what was promised against what came. It follows places through the line, none of which needs a visitor: one
// at the tail every now and then, promised something when it is made and again each time that its wait has shrunk by three
// tenths, until the head of the line has passed it. Their errors, by the length of the wait that was promised, make the
// range of the next promises: what lies between the tenth and the ninetieth hundredth of real over promised (split
// conformal prediction: V. Vovk, A. Gammerman, G. Shafer, Algorithmic Learning in a Random World, 2005), where the tenths
// are moved so that a tenth of the waits does lie below and above (I. Gibbs, E. Candès, Adaptive Conformal Inference Under
// Distribution Shift, 2021).
type ledger struct {
	tracers []tracer // by order
	errors  [knots]errorRing
	below   float64 // level of the lower end; 0: missed
	above   float64
	outcome [outcomes]bool
	counted int
	within  int
	made    int64 // when the last tracer was, µs of room time
	now     int64
	learnt  [knots]struct{ below, above, weight float64 }
	looked  int64 // when learnt was worked out
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

type errorRing struct {
	ring [keptErrors]struct {
		at  int64
		log float64 // of real over promised
	}
	n int // ever
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
	real = max(real, 0.1)
	e := &l.errors[knotOf(p.seconds)]
	slot := &e.ring[e.n%keptErrors]
	slot.at, slot.log = l.now, math.Log(real/p.seconds)
	e.n++
	miss := func(level *float64, out bool) {
		if *level == 0 {
			*level = missed
		}
		*level += gain * missed
		if out {
			*level -= gain
		}
		*level = min(max(*level, leastLevel), mostLevel)
	}
	miss(&l.below, real < p.low)
	miss(&l.above, real > p.high)
	i := l.counted % outcomes
	if l.counted >= outcomes && l.outcome[i] {
		l.within--
	}
	l.outcome[i] = real >= p.low && real <= p.high
	if l.outcome[i] {
		l.within++
	}
	l.counted++
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
	tail := f.At(in.Waiting)
	if in.Waiting < 1 || !tail.Known || tail.Seconds < leastTraced || len(l.tracers) >= mostTracers {
		return
	}
	apart := min(max(tail.Seconds/(mostTracers/2), 1), 60)
	if float64(in.Now-l.made)/1e6 >= apart {
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

// ranges gives a new forecast its range.
func (l *ledger) ranges(f *Forecast) {
	if !f.known || l.counted == 0 {
		return
	}
	if len(f.knots) == 0 {
		f.knots = make([]knot, knots)
		for i := range f.knots {
			at := knotAt(i)
			f.knots[i] = knot{at: at, seconds: at}
		}
	}
	if l.looked == 0 || l.now-l.looked >= lookAgain {
		l.looked = l.now
		for i := range l.learnt {
			l.learnt[i].below, l.learnt[i].above, l.learnt[i].weight = l.quantiles(i)
		}
	}
	var low, high float64
	for i := range f.knots {
		k := &f.knots[i]
		chance := f.factor(k.at * f.rate)
		errors := &l.learnt[knotOf(k.seconds)]
		share := errors.weight / (errors.weight + priorErrors)
		below := min(share*errors.below-(1-share)*math.Log(chance), 0)
		above := max(share*errors.above+(1-share)*math.Log(chance), 0)
		low, high = max(low, k.seconds*math.Exp(below)), max(high, k.seconds*math.Exp(above))
		k.low, k.high = low, high
	}
}

// quantiles of the errors of waits about as long as those of a knot, as logarithms, and how many errors they are made of.
// Where there are none of that length, those of shorter waits stand in.
func (l *ledger) quantiles(at int) (below, above, weight float64) {
	type weighted struct{ log, weight float64 }
	var list [3 * keptErrors]weighted
	n := 0
	for ; at > 0; at-- {
		for i := max(at-1, 0); i <= min(at+1, knots-1); i++ {
			e := &l.errors[i]
			for j := range min(e.n, keptErrors) {
				w := math.Exp(-float64(l.now-e.ring[j].at) / 1e6 / errorTime)
				list[n] = weighted{e.ring[j].log, w}
				weight += w
				n++
			}
		}
		if n > 0 {
			break
		}
	}
	if n == 0 {
		return 0, 0, 0
	}
	sorted := list[:n]
	slices.SortFunc(sorted, func(a, b weighted) int {
		switch {
		case a.log < b.log:
			return -1
		case a.log > b.log:
			return 1
		}
		return 0
	})
	level := func(level float64) float64 {
		if level == 0 {
			level = missed
		}
		return level
	}
	want, sum := level(l.below)*weight, 0.0
	below, above = sorted[0].log, sorted[n-1].log
	for _, x := range sorted {
		if sum += x.weight; sum >= want {
			below = x.log
			break
		}
	}
	want, sum = level(l.above)*weight, 0
	for i := n - 1; i >= 0; i-- {
		if sum += sorted[i].weight; sum >= want {
			above = sorted[i].log
			break
		}
	}
	return below, above, weight
}

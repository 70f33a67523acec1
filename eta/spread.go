package eta

import (
	"math"
	"slices"
)

const (
	missed     = 0.10 // share of waits that may lie below a range, and above
	scores     = 128  // errors of waits of one length that are remembered,
	perWait    = 16.0 // at most as many of one length's time, for those of one time share one fate
	fewScores  = 48.0 // until there are as many, chance has its part
	levelGain  = 0.3  // by what a level moves while all waits miss, in the time of one
	levelStep  = 0.03 // most by one wait
	leastLevel = -0.2 // below 0 a range is wider than all that came true: at this level
	widest     = 2.0  // by this factor
	mostLevel  = 0.4
	mostWidth  = 4.5 // natural logarithm of the widest range
)

// spread is that of the errors of waits of about one length, as natural logarithms of real over promised. The range reaches
// from one quantile of the last of them to another, and the levels of those quantiles are themselves corrected by what
// comes: with each wait that is judged
//
//	α ← α + γ·(0.1 − err),   err = 1 where the wait lay outside of that end of its range, else 0
//
// so that in the long run a tenth of the waits lies below the ranges and a tenth above, whatever the errors are and however
// they change (I. Gibbs, E. Candès, Adaptive Conformal Inference Under Distribution Shift, 2021, equation 2 and
// proposition 4.1). The promise itself always lies in its range. An estimator that is wrong by habit needs one end only: the
// other is the promise, and what that leaves out is this one's, a fifth.
//
// Whether a promise is kept is known after the wait, of about T, and those of one time share one fate; so γ is 0.3·Δ/T, Δ
// since the last wait was judged. An integrator that hears of its doing after T is stable with a gain under π/2, and does
// not swing under 1/e. T is the median, for a γ that hangs on the wait itself would weigh long ones less.
type spread struct {
	below, above float64 // α, less missed
	pinned       [2]bool // the lower, the upper end is the promise itself
	last         int64   // when a wait was recorded last, µs
	count        int     // errors that came
	added        int64   // when the last of them did, µs
	score        [scores]float32
	sorted       []float32 // of them, those that are remembered
}

// correct moves the levels after a wait below its range, above it, or in it. learnt is the share of the range that came from
// errors.
func (e *spread) correct(now int64, promised, learnt float64, below, above bool) {
	gamma := levelStep
	if e.last != 0 {
		gamma = min(gamma, levelGain*float64(now-e.last)/1e6/e.typical(promised))
	}
	e.last = now
	e.below = moved(e.below, gamma*learnt, below, e.pinned[0], e.pinned[1])
	e.above = moved(e.above, gamma*learnt, above, e.pinned[1], e.pinned[0])
}

func moved(level, gamma float64, out, pinned, other bool) float64 {
	target, most := missed, mostLevel
	switch {
	case pinned:
		return level - level*gamma
	case other:
		target, most = 2*missed, 1-missed
	}
	if out {
		target--
	}
	return min(max(level+gamma*target, leastLevel-missed), most-missed)
}

// add stores an error and returns its slot; -1: it is not stored, because the last error has the same cause.
func (e *spread) add(now int64, promised, off float64) (slot int) {
	if e.count > 0 && float64(now-e.added)/1e6 < e.typical(promised)/perWait {
		return -1
	}
	e.added = now
	slot = e.count
	e.count++
	if slot >= scores {
		e.forget(slot)
	}
	e.remember(slot, off)
	return slot
}

// amend corrects an error, if it is still remembered.
func (e *spread) amend(slot int, off float64) {
	if slot >= 0 && e.count-slot <= scores {
		e.forget(slot)
		e.remember(slot, off)
	}
}

func (e *spread) remember(slot int, off float64) {
	x := float32(min(max(off, -mostWidth), mostWidth))
	e.score[slot%scores] = x
	i, _ := slices.BinarySearch(e.sorted, x)
	e.sorted = slices.Insert(e.sorted, i, x)
}

func (e *spread) forget(slot int) {
	i, _ := slices.BinarySearch(e.sorted, e.score[slot%scores])
	e.sorted = slices.Delete(e.sorted, i, i+1)
}

// learnt returns the share of the range that comes from errors alone.
func (e *spread) learnt() float64 { return min(1, float64(e.count)/fewScores) }

// own returns the ends of the range: below is not positive, above not negative. Chance widens it while little is known.
func (e *spread) own(chance float64) (below, above float64) {
	chance *= 1 - e.learnt()
	lower, upper := missed+e.below, missed+e.above
	e.pinned = [2]bool{e.at(lower)-chance >= 0, e.at(1-upper)+chance <= 0}
	return e.ends(chance)
}

// ends are those of the errors, chance wider.
func (e *spread) ends(chance float64) (below, above float64) {
	wide := func(level float64) float64 { return 1 + (widest-1)*min(max(level/leastLevel, 0), 1) }
	lower, upper := missed+e.below, missed+e.above
	below, above = min(e.at(lower)-chance, 0)*wide(lower), max(e.at(1-upper)+chance, 0)*wide(upper)
	return max(below, -mostWidth), min(above, mostWidth)
}

// typical returns the usual real wait for a promised one.
func (e *spread) typical(promised float64) float64 {
	if e.count == 0 {
		return promised
	}
	return promised * math.Exp(e.at(0.5))
}

// at returns a quantile of the errors.
func (e *spread) at(level float64) float64 {
	n := len(e.sorted)
	x := min(max(level*float64(n+1)-1, 0), float64(n-1))
	i := min(int(x), max(n-2, 0))
	a, b := float64(e.sorted[i]), float64(e.sorted[min(i+1, n-1)])
	return a + (b-a)*(x-float64(i))
}

package eta

import (
	"math"
	"slices"
)

const (
	missed     = 0.10 // share of waits that lie below a range, and of those above
	scores     = 128  // errors that are kept for waits of one length,
	perWait    = 16.0 // at most this many from the time of one wait, because errors of the same time are correlated
	fewScores  = 48.0 // with fewer errors, the range also comes from chance
	levelGain  = 0.3  // movement of a level during the time of one wait, if all waits miss
	levelStep  = 0.03 // largest movement by one wait
	leastLevel = -0.2 // below level 0 a range is wider than all known errors; at this level
	widest     = 2.0  // by this factor, on the logarithmic scale
	mostLevel  = 0.4
	mostWidth  = 4.5 // natural logarithm of the widest range
)

// spread holds the errors of waits of about one length, as natural logarithms of real over promised wait. The range reaches from
// one quantile of the last errors to another. Each wait that is compared corrects the level α of these quantiles, for each end:
//
//	α ← α + γ·(0.1 − err),   err = 1 if the wait lay beyond that end of its range, else 0
//
// So in the long run a tenth of the waits lies below the ranges and a tenth above, for any distribution of the errors (I. Gibbs,
// E. Candès, Adaptive Conformal Inference Under Distribution Shift, 2021, equation 2 and proposition 4.1). The promise itself always
// lies in its range. If an estimator errs to one side, one end is the promise itself, and the whole fifth lies beyond the other end.
//
// The error of a promise is known only after the wait, about T later, and errors of the same time are correlated. So γ is 0.3·Δ/T,
// where Δ is the time since the last compared wait. An integrator with the delay T is stable with a gain below π/2, and does not
// oscillate below 1/e. T is the median wait: if γ depended on each wait itself, long waits would have less weight.
type spread struct {
	below, above float64 // α − missed, of each end
	pinned       [2]bool // whether the lower, the upper end is the promise itself
	last         int64   // when the last wait was compared, µs
	count        int     // errors so far
	added        int64   // when the last one was added, µs
	score        [scores]float32
	sorted       []float32 // the errors in score, ascending
}

// correct moves the levels after a wait: below its range, above it, or within. learnt is the share of that range that came from errors.
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

// own returns the ends of the range: below is not positive, above not negative. While few errors are known, chance widens the range. It
// also notes which ends are the promise itself.
func (e *spread) own(chance float64) (below, above float64) {
	chance *= 1 - e.learnt()
	lower, upper := missed+e.below, missed+e.above
	e.pinned = [2]bool{e.at(lower)-chance >= 0, e.at(1-upper)+chance <= 0}
	return e.ends(chance)
}

// ends returns the ends of the range by the errors, widened by chance.
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

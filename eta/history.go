package eta

import "math"

// change is a moment at which the policy's rate became another.
type change struct {
	from int64 // room time, s
	rate float64
}

// notedChanges returns prev, the list of the policy's rates, with the present rate added and without entries older than the history.
// Forecasts share these lists, which are never written to.
func notedChanges(prev []change, now int64, rate float64) []change {
	if len(prev) == 0 {
		return []change{{from: math.MinInt64, rate: rate}} // all older admissions are assumed to have had this rate
	}
	old := 0 // entries that ended before the history begins
	for old+1 < len(prev) && prev[old+1].from <= now-MaxBuckets {
		old++
	}
	last := prev[len(prev)-1]
	if last.rate == rate {
		return prev[old:]
	}
	list := append(make([]change, 0, len(prev)-old+1), prev[old:]...)
	if last.from >= now { // several changes in one second: the last one counts
		list[len(list)-1].rate = rate
		return list
	}
	return append(list, change{from: now, rate: rate})
}

const (
	blockSeconds = 60    // length of the blocks for which history.read decides whether the rate was the limit
	grainSeconds = 10    // length of the blocks whose admissions make the dispersion
	leastBusy    = 0.001 // least busy time of a second that counts, s: a rate over less is not meaningful
)

// history is the last MaxBuckets seconds, newest first: index 0 is the last whole second. Seconds in which admission was
// not wanted, or the rate was 0, have busy 0 and do not count.
type history struct {
	admitted [MaxBuckets]float64 // admissions, scaled to the present rate
	counted  [MaxBuckets]float64 // admissions as counted
	busy     [MaxBuckets]float64
}

// read fills the history. Admissions made under another rate are scaled to the present rate if that rate was their limit, and kept
// if something else was (max_active, an origin's budget). Their block of a minute decides which of the two it was.
func (h *history) read(in *Input, changes []change) {
	now := floorSeconds(in.Now)
	var policy [MaxBuckets]float64
	at := len(changes) - 1
	for i := range policy {
		for at > 0 && changes[at].from > now-1-int64(i) {
			at--
		}
		policy[i] = changes[at].rate
	}
	for _, b := range in.Buckets {
		age := now - 1 - b.Second
		if age < 0 || age >= MaxBuckets || !(b.Busy >= leastBusy) || policy[age] == 0 || in.full.is && b.Second < in.full.since {
			continue
		}
		h.busy[age] = min(h.busy[age]+b.Busy, 1)
		h.counted[age] += float64(max(b.Admitted, 0))
	}
	for start := 0; start < MaxBuckets; start += blockSeconds {
		counted, allowed := 0.0, 0.0
		for i := start; i < start+blockSeconds; i++ {
			counted += h.counted[i]
			allowed += h.busy[i] * policy[i]
		}
		if counted == 0 {
			continue
		}
		limited := ramp(counted/allowed, 0.8, 0.95) // 1: the rate was the limit
		for i := start; i < start+blockSeconds; i++ {
			if h.busy[i] > 0 {
				h.admitted[i] = h.counted[i] * (limited*in.Rate/policy[i] + 1 - limited)
			}
		}
	}
}

// sums over the seconds [from, to), newest first.
type sums struct{ admitted, counted, busy float64 }

func (h *history) sum(from, to int) (s sums) {
	for i := from; i < to; i++ {
		s.admitted += h.admitted[i]
		s.counted += h.counted[i]
		s.busy += h.busy[i]
	}
	return s
}

func (s sums) rate() float64 {
	if s.busy == 0 {
		return 0
	}
	return s.admitted / s.busy
}

// dispersion returns the variance over the mean of the admissions in ten seconds, at least 1. The variance is half the mean
// square of successive differences (J. von Neumann et al., The Mean Square Successive Difference, 1941), so that a step
// in the rate is not taken for noise. Only tens of seconds in which admission was wanted all the time are compared.
func (h *history) dispersion() float64 {
	var total, squares, last float64
	n, pairs := 0, 0
	for start := 0; start < MaxBuckets; start += grainSeconds {
		s := h.sum(start, start+grainSeconds)
		if s.busy < 0.9*grainSeconds {
			last = -1
			continue
		}
		x := s.admitted / s.busy * grainSeconds
		if n > 0 && last >= 0 {
			squares += (x - last) * (x - last)
			pairs++
		}
		total, last = total+x, x
		n++
	}
	if pairs < 5 || total == 0 {
		return 1
	}
	return max(1, squares/float64(2*pairs)/(total/float64(n)))
}

// ramp returns 0 up to low, 1 from high on, and a straight line between.
func ramp(x, low, high float64) float64 { return min(max((x-low)/(high-low), 0), 1) }

func floorSeconds(us int64) int64 {
	s := us / 1e6
	if us%1e6 < 0 {
		s--
	}
	return s
}

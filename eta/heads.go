package eta

import (
	"cmp"
	"math"
)

// Head counts tickets that the head of the queue reached lately, fading, by their time in the queue. Bucket i holds times
// from 2^(i/4)-1 s: of the admitted until their admission, of the absent until their hold ran out.
// Exposure adds up by how many seconds those times exceed that.
type Head struct {
	Bucket                     int
	Admitted, Absent, Exposure float64
}

// HeadBuckets is how many buckets of a Head there are.
const HeadBuckets = 81

// HeadBucket returns the bucket of a time in the queue, s.
func HeadBucket(seconds float64) int {
	return min(int(4*math.Log2(1+max(seconds, 0))), HeadBuckets-1)
}

// HeadEdge is where a bucket begins, s.
func HeadEdge(bucket int) float64 { return math.Exp2(float64(bucket)/4) - 1 }

const (
	headsFew   = 20.0 // heads; fewer prove little
	hazardFew  = 6.0  // heads of an age, for whom the hazard of all ages stands in
	mostAbsent = 0.95 // of those who come to the head
)

// presence is the chance that a ticket is still present after a time in the queue, by the tickets that the head reached: a
// hazard to become absent for each bucket of Head, which is the absent over the time that all heads spent in it (the piecewise
// exponential model: M. Friedman, Piecewise Exponential Models for Survival Data with Covariates, 1982). An absent ticket is
// followed until its hold ran out, an admitted one until its admission. A bucket of few heads is drawn to the hazard of all
// ages, and that to none while there are few heads at all; ages that no head had yet add nothing.
type presence struct {
	absent float64              // share of all heads
	gone   [HeadBuckets]float64 // minus the natural logarithm of the chance, at the end of each bucket
}

func (p *presence) learn(heads []Head) {
	*p = presence{}
	var by [HeadBuckets]Head
	var all Head
	time, last := 0.0, 0
	for _, h := range heads {
		if h.Bucket < 0 || h.Bucket >= HeadBuckets || !(h.Admitted >= 0) || !(h.Absent >= 0) || !(h.Exposure >= 0) {
			continue
		}
		by[h.Bucket], last = h, max(last, h.Bucket)
		all.Admitted += h.Admitted
		all.Absent += h.Absent
		time += (h.Admitted+h.Absent)*HeadEdge(h.Bucket) + h.Exposure
	}
	if all.Absent == 0 || time == 0 || math.IsInf(time, 1) {
		return
	}
	left := all.Admitted + all.Absent
	known := min(1, left/headsFew)
	p.absent = min(all.Absent/left*known, mostAbsent)
	hazard := all.Absent / time * known
	sum := 0.0
	for b := range p.gone {
		width := HeadEdge(b+1) - HeadEdge(b)
		left = max(0, left-by[b].Admitted-by[b].Absent)
		share := (by[b].Absent + hazardFew*hazard*width) / (left*width + by[b].Exposure + hazardFew*width) * width
		if b <= last {
			sum = min(sum+share, -math.Log(1-mostAbsent))
		}
		p.gone[b] = sum
	}
}

// after is the chance that a ticket is present after a time in the queue, s.
func (p *presence) after(seconds float64) float64 {
	if p.absent == 0 {
		return 1
	}
	b := HeadBucket(seconds)
	from, to := HeadEdge(b), HeadEdge(b+1)
	begin := 0.0
	if b > 0 {
		begin = p.gone[b-1]
	}
	return math.Exp(-(begin + (p.gone[b]-begin)*ramp(seconds, from, to)))
}

// lineSteps is into how many parts a line is divided to count those of it who will be present.
const lineSteps = 24

// turnout is how many of those ahead will be present when the head of the queue reaches them. The zero value counts all.
type turnout struct {
	waiting float64
	count   [lineSteps + 1]float64 // of the first waiting·(i/lineSteps)²
	share   float64                // of those behind
}

// of is how many of the first n are present at their turn.
func (t *turnout) of(n float64) float64 {
	if t.waiting == 0 {
		return n
	}
	if n >= t.waiting {
		return t.count[lineSteps] + (n-t.waiting)*t.share
	}
	i := min(int(lineSteps*math.Sqrt(n/t.waiting)), lineSteps-1)
	from, to := t.rank(i), t.rank(i+1)
	return t.count[i] + (t.count[i+1]-t.count[i])*ramp(n, from, to)
}

func (t *turnout) rank(i int) float64 {
	x := float64(i) / lineSteps
	return t.waiting * x * x
}

// foresee counts them: whoever is reached after a time in the queue is present with the chance that others had after as long.
// The head reaches the first ones first, so that each part of the line is reached after those before it have had their turns.
func (t *turnout) foresee(f *Forecast, p *presence, in *Input) {
	*t = turnout{}
	if p.absent == 0 {
		return
	}
	n := max(float64(in.Waiting), 1)
	t.waiting, t.share = n, 1
	for i := range lineSteps {
		from, to := t.rank(i), t.rank(i+1)
		mid := (to - from) / 2
		wait := f.seconds(t.count[i] + mid*t.share)
		if math.IsInf(wait, 1) {
			wait = f.seconds(t.count[i])
		}
		if !math.IsInf(wait, 1) {
			t.share = p.after(in.age(from+mid) + wait)
		}
		t.count[i+1] = t.count[i] + (to-from)*t.share
	}
}

// age is how long the ticket with so many ahead has been in the queue, s.
func (in *Input) age(ahead float64) float64 {
	now := cmp.Or(in.Tail, in.Now)
	order := now
	switch {
	case in.OrderAt != nil:
		order = in.OrderAt(int64(ahead))
	case in.Head > 0 && in.Waiting > 0: // as if they had come evenly
		order = in.Head + int64(float64(now-in.Head)*min(ahead/float64(in.Waiting), 1))
	}
	return max(0, float64(now-order)/1e6)
}

package eta

import (
	"cmp"
	"math"
	"slices"
)

// AgeCount counts tickets by their time in the queue: those that the head of the queue reached lately, or a sample of those that
// wait, fading. Bucket i holds times from 2^(i/4)-1 s: of the present until now or their admission, of the absent until their hold
// ran out. Exposure adds up by how many seconds those times exceed that.
type AgeCount struct {
	Bucket                    int
	Present, Absent, Exposure float64
}

// Hold is for how many more seconds a ticket counts as present, 0 for one that is absent. Silent is one that missed a poll.
type Hold struct {
	Seconds float64
	Silent  bool
}

// AgeBuckets is how many buckets of an AgeCount there are.
const AgeBuckets = 81

// AgeBucket returns the bucket of a time in the queue, s.
func AgeBucket(seconds float64) int {
	return min(int(4*math.Log2(1+max(seconds, 0))), AgeBuckets-1)
}

// AgeEdge is where a bucket begins, s.
func AgeEdge(bucket int) float64 { return math.Exp2(float64(bucket)/4) - 1 }

const (
	headsFew   = 20.0 // tickets; fewer prove little
	hazardFew  = 6.0  // tickets of an age, for whom the hazard of all ages stands in
	mostAbsent = 0.95 // of those who come to the head
	octave     = 4    // buckets
)

// presence is the chance that a ticket is still present after a time in the queue, by the tickets that the head reached and
// those that wait: a hazard to become absent for each bucket of AgeCount, which is the absent over the time that all spent in it
// (the piecewise exponential model: M. Friedman, Piecewise Exponential Models for Survival Data with Covariates, 1982). An absent
// ticket is followed until its hold ran out, a present one until now or its admission. A bucket of few tickets is drawn to the hazard
// of all ages, and that to none while there are few tickets at all. The hazard of ages that no ticket had yet falls as one over
// the age, from that of the last octave: patience grows with the time that was spent.
type presence struct {
	known  bool
	absent float64             // share of all heads
	gone   [AgeBuckets]float64 // minus the natural logarithm of the chance, at the end of each bucket
}

// add adds counts, times a factor.
func (a *ageCounts) add(counts []AgeCount, factor float64) {
	for _, c := range counts {
		if c.Bucket < 0 || c.Bucket >= AgeBuckets || !(c.Present >= 0) || !(c.Absent >= 0) || !(c.Exposure >= 0) {
			continue
		}
		b := &a.by[c.Bucket]
		b.Present, b.Absent, b.Exposure = b.Present+factor*c.Present, b.Absent+factor*c.Absent, b.Exposure+factor*c.Exposure
		a.present, a.absent = a.present+factor*c.Present, a.absent+factor*c.Absent
		a.time += factor * ((c.Present+c.Absent)*AgeEdge(c.Bucket) + c.Exposure)
		a.last = max(a.last, c.Bucket)
	}
}

// ageCounts are counts of all buckets.
type ageCounts struct {
	by                    [AgeBuckets]AgeCount
	present, absent, time float64
	last                  int
}

// learn reads the counts of heads and of a sample of those who wait, each of whom counts once at most.
func (p *presence) learn(heads, sample []AgeCount, waiting int64) {
	*p = presence{}
	var reached, all ageCounts
	reached.add(heads, 1)
	if left := reached.present + reached.absent; reached.absent > 0 {
		p.absent = min(reached.absent/left*min(1, left/headsFew), mostAbsent)
	}
	sampled := 0.0
	for _, c := range sample {
		sampled += max(0, c.Present) + max(0, c.Absent)
	}
	all.add(heads, 1)
	if sampled > 0 {
		all.add(sample, min(1, float64(max(waiting, 0))/sampled))
	}
	if all.absent == 0 || all.time == 0 || math.IsInf(all.time, 1) {
		return
	}
	p.known = true
	left := all.present + all.absent
	hazard := all.absent / all.time * min(1, left/headsFew)
	sum := 0.0
	var absent, exposure [AgeBuckets]float64
	for b := 0; b <= all.last; b++ {
		width := AgeEdge(b+1) - AgeEdge(b)
		left = max(0, left-all.by[b].Present-all.by[b].Absent)
		absent[b] = all.by[b].Absent + hazardFew*hazard*width
		exposure[b] = left*width + all.by[b].Exposure + hazardFew*width
		sum += absent[b] / exposure[b] * width
		p.gone[b] = sum
	}
	gone, time := 0.0, 0.0
	for b := max(0, all.last-octave+1); b <= all.last; b++ {
		gone, time = gone+absent[b], time+exposure[b]
	}
	for b := all.last + 1; b < AgeBuckets; b++ {
		sum += gone / time * AgeEdge(all.last+1) * math.Log(AgeEdge(b+1)/AgeEdge(b))
		p.gone[b] = sum
	}
	for b := range p.gone {
		p.gone[b] = min(p.gone[b], -math.Log(1-mostAbsent))
	}
}

// after is the chance that a ticket is present after a time in the queue, s.
func (p *presence) after(seconds float64) float64 {
	if !p.known {
		return 1
	}
	b := AgeBucket(seconds)
	from, to := AgeEdge(b), AgeEdge(b+1)
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
	nearest []float64              // of the first so many, by their holds; empty: nobody's is known
	count   [lineSteps + 1]float64 // of those up to rank
	share   float64                // of those behind
}

// of is how many of the first n are present at their turn.
func (t *turnout) of(n float64) float64 {
	near := float64(len(t.nearest) - 1)
	switch {
	case t.waiting == 0:
		return n
	case n < near:
		i := int(n)
		return t.nearest[i] + (t.nearest[i+1]-t.nearest[i])*(n-float64(i))
	case n >= t.waiting:
		return t.count[lineSteps] + (n-t.waiting)*t.share
	}
	near = max(near, 0)
	i := min(int(lineSteps*math.Sqrt((n-near)/(t.waiting-near))), lineSteps-1)
	from, to := t.rank(i), t.rank(i+1)
	return t.count[i] + (t.count[i+1]-t.count[i])*ramp(n, from, to)
}

func (t *turnout) rank(i int) float64 {
	near := float64(max(len(t.nearest)-1, 0))
	x := float64(i) / lineSteps
	return near + (t.waiting-near)*x*x
}

// foresee counts them: a ticket that is reached after a time in the queue is present with the chance that others had after as
// long. Of the first ones the holds are known besides: nobody becomes absent before their hold has run out, and who missed a poll does then.
// The head reaches the first ones first, so that each is reached after those before it have had their turns.
func (t *turnout) foresee(f *Forecast, p *presence, in *Input) {
	*t = turnout{}
	silent := slices.ContainsFunc(in.Holds, func(h Hold) bool { return h.Silent || h.Seconds == 0 })
	if !p.known && !silent {
		return
	}
	n := max(float64(in.Waiting), 1)
	t.waiting, t.share = n, 1
	if known := min(len(in.Holds), int(min(in.Waiting, math.MaxInt32))); known > 0 {
		t.nearest = make([]float64, 1, known+1)
		for i, h := range in.Holds[:known] {
			before := t.nearest[i]
			t.nearest = append(t.nearest, before+p.atTurn(h, f.seconds(before+1), in, i))
		}
		t.count[0] = t.nearest[known]
	}
	for i := range lineSteps {
		from, to := t.rank(i), t.rank(i+1)
		if to > from {
			mid := (to - from) / 2
			wait := f.seconds(t.count[i] + mid*t.share)
			if math.IsInf(wait, 1) {
				wait = f.seconds(t.count[i])
			}
			if !math.IsInf(wait, 1) {
				t.share = p.after(in.age(from+mid) + wait)
			}
		}
		t.count[i+1] = t.count[i] + (to-from)*t.share
	}
}

// atTurn is the chance that the ticket with so many ahead, of which the hold is known, is present after a wait.
func (p *presence) atTurn(h Hold, wait float64, in *Input, ahead int) float64 {
	switch {
	case h.Seconds == 0:
		return 1 - mostAbsent
	case wait <= h.Seconds:
		return 1
	case h.Silent:
		return 1 - mostAbsent
	case !p.known || math.IsInf(wait, 1):
		return 1
	}
	age := in.age(float64(ahead))
	return max(p.after(age+wait)/p.after(age+h.Seconds), 1-mostAbsent)
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

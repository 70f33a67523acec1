package eta

import "math"

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

// AgeEdge returns the time in the queue at which a bucket begins, s. The bucket is 0 to AgeBuckets.
func AgeEdge(bucket int) float64 { return ageEdges[bucket] }

var ageEdges = func() (edges [AgeBuckets + 1]float64) {
	for b := range edges {
		edges[b] = math.Exp2(float64(b)/4) - 1
	}
	return edges
}()

const (
	headsFew   = 20.0 // tickets; fewer prove little
	hazardFew  = 6.0  // tickets of an age, for whom the hazard of all ages stands in
	mostAbsent = 0.95 // of the tickets that the front reaches
)

// presence is the chance that a ticket is still present after a time in the queue, by the tickets that the head reached and
// those that wait: a hazard to become absent for each bucket of AgeCount, which is the absent over the time that all spent in it
// (the piecewise exponential model: M. Friedman, Piecewise Exponential Models for Survival Data with Covariates, 1982). An absent
// ticket is followed until its hold ran out, a present one until now or its admission. A bucket of few tickets is drawn to the hazard
// of all ages, and that to none while there are few tickets at all. Ages that no ticket had yet have the hazard of all ages, falling
// as one over the age: patience grows with the time that was spent.
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

// learn reads the counts of tickets at the front and of a sample of the queue, in which each counts once at most.
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
	for b := 0; b <= all.last; b++ {
		width := AgeEdge(b+1) - AgeEdge(b)
		left = max(0, left-all.by[b].Present-all.by[b].Absent)
		sum += (all.by[b].Absent + hazardFew*hazard*width) / (left*width + all.by[b].Exposure + hazardFew*width) * width
		p.gone[b] = sum
	}
	for b := all.last + 1; b < AgeBuckets; b++ {
		sum += hazard * AgeEdge(all.last+1) * math.Log(AgeEdge(b+1)/AgeEdge(b))
		p.gone[b] = sum
	}
	for b := range p.gone {
		p.gone[b] = min(p.gone[b], -math.Log(1-mostAbsent))
	}
}

// after returns the chance that a ticket is present after a time in the queue, s.
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

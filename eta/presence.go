package eta

import "math"

// AgeCount counts tickets by their time in the queue: those that the front of the queue reached lately, or a sample of the waiting
// ones. Counts fade. Bucket i holds times from 2^(i/4)-1 s: of present tickets until now or until their admission, of absent tickets
// until their hold ended. Exposure is the sum of the seconds by which those times exceed the start of the bucket.
type AgeCount struct {
	Bucket                    int
	Present, Absent, Exposure float64
}

// Hold is the rest of a ticket's presence hold: the seconds for which the ticket still counts as present, 0 for an absent ticket. Silent
// is set for a ticket that missed a poll.
type Hold struct {
	Seconds float64
	Silent  bool
}

// AgeBuckets is the number of buckets of an AgeCount.
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
	passedFew  = 20.0 // tickets; fewer are weak evidence
	hazardFew  = 6.0  // weight of the hazard of all ages in a bucket, in tickets
	mostAbsent = 0.95 // largest probability that a ticket is absent
)

// presence is the probability that a ticket is still present after a time in the queue, learnt from the tickets that the front reached
// and from waiting tickets. Each bucket of AgeCount has a hazard to become absent: the absent tickets over the time that all tickets
// spent in the bucket (the piecewise exponential model: M. Friedman, Piecewise Exponential Models for Survival Data with Covariates,
// 1982). An absent ticket counts until its hold ended, a present one until now or until its admission. The hazard of a bucket with few
// tickets is shrunk towards the hazard of all ages, and that towards 0 while there are few tickets at all. Ages without tickets have the
// hazard of all ages, falling with one over the age: visitors who have waited long are less likely to leave.
type presence struct {
	known  bool
	absent float64             // share of the tickets that the front reached
	gone   [AgeBuckets]float64 // minus the natural logarithm of the probability, at the end of each bucket
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

// learn reads the counts of the tickets at the front and of a sample of the queue. In total the sample counts at most as many tickets as wait.
func (p *presence) learn(passed, sample []AgeCount, waiting int64) {
	*p = presence{}
	var reached, all ageCounts
	reached.add(passed, 1)
	if left := reached.present + reached.absent; reached.absent > 0 {
		p.absent = min(reached.absent/left*min(1, left/passedFew), mostAbsent)
	}
	sampled := 0.0
	for _, c := range sample {
		sampled += max(0, c.Present) + max(0, c.Absent)
	}
	all.add(passed, 1)
	if sampled > 0 {
		all.add(sample, min(1, float64(max(waiting, 0))/sampled))
	}
	if all.absent == 0 || all.time == 0 || math.IsInf(all.time, 1) {
		return
	}
	p.known = true
	left := all.present + all.absent
	hazard := all.absent / all.time * min(1, left/passedFew)
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

// after returns the probability that a ticket is present after a time in the queue, s.
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

package eta

import (
	"math"
	"slices"
)

const (
	cohortSeconds = 5     // length of a cohort, and step of ages, s
	cohortCount   = 360   // cohorts that are kept apart: half an hour; all older ones form one
	cohortTime    = 1200. // s: time constant with which the hazards by age fade
	lumpSeconds   = 30    // length of the blocks of the future flow that are compared with its mean, s
	lumpsFrom     = 0.3   // mean relative deviation from which on a flow counts as lumpy,
	lumpsUntil    = 0.07  // and below which it no longer does
	surgeTime     = 15.   // s: time constant of the sessions that end just now;
	surgeFactor   = 3.    // they are a surge if they exceed this multiple of the expected number
	surgeMore     = 3.    // by more than this many
)

// cohorts groups sessions by the time of their admission, to forecast when they end: if sessions have similar lengths, a crowd that was
// admitted together leaves together. Only the number of ended sessions is known, not their cohorts. So the ended sessions are
// distributed over the cohorts by the hazard of each age, and the hazards are learnt from that distribution (expectation maximization
// with one step per forecast: A. Dempster, N. Laird, D. Rubin, Maximum Likelihood from Incomplete Data, 1977).
type cohorts struct {
	newest   int64                    // the cohort of present admissions: room time / cohortSeconds
	alive    [cohortCount + 1]float64 // active sessions by age in cohorts; the last entry has all older ones
	ended    [cohortCount + 1]float64 // sessions that ended, by age, fading
	exposure [cohortCount + 1]float64 // sessions × s, by age, fading
	lately   [2]float64               // sessions that ended, and that were expected to end, fading with surgeTime
	lumps    bool
	at       int64     // room time at which course was calculated, s
	course   []stretch // forecast from that time on
	mean     float64   // mean flow of course, visitors/s
}

// begin assumes that the active sessions are those of the last admissions.
func (c *cohorts) begin(in *Input) {
	c.newest = floorSeconds(in.Now) / cohortSeconds
	left := float64(in.Active)
	for _, b := range slices.Backward(in.Buckets) {
		n := min(left, float64(max(b.Admitted, 0)))
		c.alive[c.age(b.Second)] += n
		left -= n
	}
	c.alive[cohortCount] += left
}

func (c *cohorts) age(second int64) int64 {
	return min(max(c.newest-second/cohortSeconds, 0), cohortCount)
}

// after returns the cohorts after a new input; nil for a room without max_active.
func (c *cohorts) after(in *Input, was, is churn, elapsed float64) *cohorts {
	if in.MaxActive <= 0 {
		return nil
	}
	if c == nil || elapsed == 0 || in.Admitted < was.admitted {
		next := &cohorts{}
		next.begin(in)
		return next
	}
	next := *c
	hazard := is.ended / max(is.exposure, 1)
	admitted := float64(in.Admitted - was.admitted)
	ended := admitted - float64(in.Active-was.active)
	fade := math.Exp(-elapsed / cohortTime)
	short := math.Exp(-elapsed / surgeTime)
	next.lately[0], next.lately[1] = c.lately[0]*short+ended, c.lately[1]*short+float64(in.Active)*elapsed*hazard
	sum := 0.0
	for a := range next.alive {
		next.ended[a] *= fade
		next.exposure[a] = next.exposure[a]*fade + next.alive[a]*elapsed
		sum += next.alive[a] * next.hazard(a, hazard)
	}
	if ended > 0 && sum > 0 {
		share := ended / sum
		for a := range next.alive {
			n := min(next.alive[a], next.alive[a]*next.hazard(a, hazard)*share)
			next.ended[a] += n
			next.alive[a] -= n
		}
	}
	for now := floorSeconds(in.Now) / cohortSeconds; next.newest < now; next.newest++ {
		next.alive[cohortCount] += next.alive[cohortCount-1]
		copy(next.alive[1:cohortCount], next.alive[:cohortCount-1])
		next.alive[0] = 0
	}
	next.alive[0] += admitted
	total := 0.0
	for _, n := range next.alive {
		total += n
	}
	if total > 0 {
		for a := range next.alive {
			next.alive[a] *= float64(in.Active) / total
		}
	}
	return &next
}

// hazard returns the hazard of a session of an age to end, 1/s, from the observed sessions and one assumed session of mean length.
func (c *cohorts) hazard(a int, mean float64) float64 {
	mean = max(mean, 1e-4)
	return (c.ended[a] + 1) / (c.exposure[a] + 1/mean)
}

// forecast calculates the future admissions, if each free place is taken at once, up to the rate in force. It sets course, as
// stretches of constant flow, and lumps.
func (c *cohorts) forecast(in *Input, hazard float64) {
	c.at = floorSeconds(in.Now)
	first := cohortSeconds - math.Mod(float64(in.Now)/1e6, cohortSeconds) // s until the newest cohort is complete
	var staying [cohortCount + 1]float64
	for a := range staying {
		staying[a] = math.Exp(-c.hazard(a, hazard) * cohortSeconds)
	}
	alive := c.alive
	free := float64(in.MaxActive - in.Active)
	rate, steps := in.Rate, in.Schedule
	var flow [cohortCount]float64
	for k := range flow {
		length := float64(cohortSeconds)
		if k == 0 {
			length = first
		}
		for len(steps) > 0 && float64(steps[0].At-in.Now)/1e6 <= first+float64((k-1)*cohortSeconds) {
			rate, steps = min(max(steps[0].Rate, 0), mostRate), steps[1:]
		}
		for a := range alive {
			stay := staying[a]
			if k == 0 {
				stay = math.Pow(stay, first/cohortSeconds)
			}
			free += alive[a] * (1 - stay)
			alive[a] *= stay
		}
		n := max(0, min(free, rate*length))
		free -= n
		flow[k] = n / length
		alive[0] += n
		alive[cohortCount] += alive[cohortCount-1]
		copy(alive[1:cohortCount], alive[:cohortCount-1])
		alive[0] = 0
	}
	sum := 0.0
	for _, r := range flow {
		sum += r
	}
	c.mean = sum / cohortCount
	c.findLumps(flow[:min(cohortCount, max(12, int(2/max(hazard, 1e-4)/cohortSeconds)))])
	c.course = c.course[:0:0]
	for k, r := range flow {
		until := first + float64(k*cohortSeconds)
		if n := len(c.course); n > 0 {
			last := &c.course[n-1]
			begin := 0.0
			if n > 1 {
				begin = c.course[n-2].until
			}
			if math.Abs(last.rate-r) <= 0.1*max(last.rate, r, c.mean) || n == mostStretches-1 {
				last.rate = (last.rate*(last.until-begin) + r*(until-last.until)) / (until - begin)
				last.until = until
				continue
			}
		}
		c.course = append(c.course, stretch{until, r})
	}
	c.course = append(c.course, stretch{math.Inf(1), max(c.mean, leastRate)})
}

// findLumps sets lumps: whether the flow varies much.
func (c *cohorts) findLumps(flow []float64) {
	const block = lumpSeconds / cohortSeconds
	mean, apart := 0.0, 0.0
	for _, r := range flow {
		mean += r
	}
	mean /= float64(len(flow))
	n := 0.0
	for i := 0; i+block <= len(flow); i += block {
		sum := 0.0
		for _, r := range flow[i : i+block] {
			sum += r
		}
		apart += math.Abs(sum/block - mean)
		n++
	}
	least := lumpsFrom
	if c.lumps {
		least = lumpsUntil
	}
	c.lumps = mean > leastRate && apart/n > least*mean
}

// lumpy reports whether the sessions of a room end in lumps. It renews the forecast once a second.
func (c *cohorts) lumpy(in *Input, hazard float64) bool {
	if c == nil || hazard == 0 {
		return false
	}
	if now := floorSeconds(in.Now); now != c.at {
		c.forecast(in, hazard)
	}
	return c.lumps && c.mean >= leastRate
}

// unexpected reports whether many more sessions end than expected, or the first few: a crowd that was admitted together may be
// leaving. With a history, as after a restart, the first few are expected.
func (c *cohorts) unexpected(ended float64, history bool) bool {
	return c != nil && !c.lumps && (c.lately[0] > surgeFactor*c.lately[1]+surgeMore ||
		!history && ended < churnFew && c.lately[0] > max(ended/2, surgeMore))
}

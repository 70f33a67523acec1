package backtest

import (
	"math"

	"github.com/anteroom/anteroom/eta"
)

// As in admission and lua/lib/departures.lua.
const (
	joinHold   = 106  // s for which a visitor who joined behind the front counts as present, with a first poll after 3 s
	leastHold  = 30   // s
	leastFront = 1000 // places
	passedFade = 300  // s
	sampleFade = 30   // s
	sampled    = 100  // visitors a tick
	nearest    = 400  // visitors whose holds are known
	late       = 60   // s: a longer hold does not show when the next poll was advised
	golden     = 0.6180339887498949
)

// interval returns the poll interval in seconds for a visitor with a wait.
func interval(wait float64) float64 { return min(max(wait/10, 2), 60) }

// hold returns the presence hold in seconds that a check sets for a visitor with a wait, and the rest of it that is not for the
// next two polls: 0 in the front of the queue.
func hold(wait, rate float64) (seconds, rest float64) {
	if wait*rate >= max(leastFront, 10*rate) {
		rest = min(max(wait/4, 30), absence/4)
	}
	return max(rest+2*interval(wait)+10, leastHold), rest
}

// lastHold returns when the store last checked a visitor who joins now with a wait and departs silently after so many seconds,
// and until when that visitor counts as present.
func (q *queue) lastHold(wait, rate, after float64) (checked, until float64) {
	seconds, rest := hold(max(wait-after, 0), rate)
	checked = q.t + after - q.rng.Float64()*(rest+interval(wait-after))
	if checked > q.t {
		return checked, checked + seconds
	}
	if seconds, rest = hold(wait, rate); rest > 0 {
		seconds = joinHold
	}
	return q.t, q.t + seconds
}

// ages counts visitors by their time in the queue, fading.
type ages [eta.AgeBuckets]eta.AgeCount

func (a *ages) fade(times float64) {
	keep := math.Exp(-times)
	for b := range a {
		a[b].Present *= keep
		a[b].Absent *= keep
		a[b].Exposure *= keep
	}
}

func (a *ages) add(age, present, absent float64) {
	b := eta.AgeBucket(age)
	a[b].Present += present
	a[b].Absent += absent
	a[b].Exposure += max(0, age-eta.AgeEdge(b))
}

func (a *ages) list() (counts []eta.AgeCount) {
	for b, c := range a {
		if c.Bucket = b; c.Present+c.Absent >= 0.01 {
			counts = append(counts, c)
		}
	}
	return counts
}

// presenceCounts are the counts by age that a snapshot has.
type presenceCounts struct {
	passed ages // of visitors whom the front has reached
	sample ages // of visitors who wait
	swept  int  // index, from start, at which the last sample began
}

func (p *presenceCounts) fade(tick float64) {
	p.passed.fade(tick / passedFade)
	p.sample.fade(tick / sampleFade)
}

// sample counts a sample of the queue, as a tick does.
func (q *queue) sample() {
	p, all := &q.presence, q.places.all[q.places.start:]
	if len(all) == 0 {
		return
	}
	p.swept = (p.swept + int(golden*float64(len(all)))) % len(all)
	left := sampled
	for i := p.swept; i < len(all) && left > 0; i++ {
		v := &all[i]
		if !v.in {
			continue
		}
		left--
		if v.silent && q.t > v.held {
			p.sample.add(v.held-v.joined, 0, 1)
		} else {
			p.sample.add(q.t-v.joined, 1, 0)
		}
	}
}

// holds returns the presence holds of the first visitors in the queue.
func (q *queue) holds() []eta.Hold {
	known := make([]eta.Hold, 0, nearest)
	rate := max(at(q.sale.Rate, q.t, 1), 1e-3)
	for i := q.places.start; i < len(q.places.all) && len(known) < nearest; i++ {
		v := &q.places.all[i]
		switch {
		case !v.in:
			continue
		case v.silent && q.t > v.leaves:
			left := math.Ceil(max(v.held-q.t, 0))
			known = append(known, eta.Hold{Seconds: left, Silent: left > 0 && v.held-v.checked <= late && q.t-v.checked > (v.held-v.checked)/2})
		default:
			wait := float64(len(known)) / rate
			seconds, rest := hold(wait, rate)
			known = append(known, eta.Hold{Seconds: math.Ceil(seconds - (rest+interval(wait))/2)})
		}
	}
	return known
}

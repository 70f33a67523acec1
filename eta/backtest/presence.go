package backtest

import (
	"math"

	"github.com/anteroom/anteroom/eta"
)

// As in admission and lua/lib/departures.lua.
const (
	joinHold   = 106  // s after joining behind the front in which somebody is present, with a first poll after 3 s
	leastHold  = 30   // s
	leastFront = 1000 // places
	headFade   = 300  // s
	sampleFade = 30   // s
	sampled    = 100  // visitors a tick
	nearest    = 400  // visitors whose holds are known
	late       = 60   // s: a longer hold does not show when the next poll was advised
	golden     = 0.6180339887498949
)

// interval returns after how many seconds somebody who waits for others is advised to poll.
func interval(wait float64) float64 { return min(max(wait/10, 2), 60) }

// hold is for how many seconds a check of the store holds somebody who waits for others, and rest how much of it is not for
// the next two polls: none in the front of the queue.
func hold(wait, rate float64) (seconds, rest float64) {
	if wait*rate >= max(leastFront, 10*rate) {
		rest = min(max(wait/4, 30), absence/4)
	}
	return max(rest+2*interval(wait)+10, leastHold), rest
}

// lastHold is when the store last checked a visitor who joins now, with a wait before them, and goes without a word after some
// seconds of it, and when they count as absent.
func (l *line) lastHold(wait, rate, after float64) (checked, until float64) {
	seconds, rest := hold(max(wait-after, 0), rate)
	checked = l.t + after - l.rng.Float64()*(rest+interval(wait-after))
	if checked > l.t {
		return checked, checked + seconds
	}
	if seconds, rest = hold(wait, rate); rest > 0 {
		seconds = joinHold
	}
	return l.t, l.t + seconds
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

// takeSample counts a sample of the queue, as a tick does.
func (l *line) takeSample(tick float64) {
	l.sample.fade(tick / sampleFade)
	span := len(l.all) - l.head
	if span <= 0 {
		return
	}
	l.swept = (l.swept + int(golden*float64(span))) % span
	left := sampled
	for i := l.head + l.swept; i < len(l.all) && left > 0; i++ {
		v := &l.all[i]
		if !v.in {
			continue
		}
		left--
		if v.silent && l.t > v.held {
			l.sample.add(v.held-v.joined, 0, 1)
		} else {
			l.sample.add(l.t-v.joined, 1, 0)
		}
	}
}

// holds returns those of the first in the queue.
func (l *line) holds() []eta.Hold {
	known := make([]eta.Hold, 0, nearest)
	rate := max(at(l.sale.Rate, l.t, 1), 1e-3)
	for i := l.head; i < len(l.all) && len(known) < nearest; i++ {
		v := &l.all[i]
		switch {
		case !v.in:
			continue
		case v.silent && l.t > v.leaves:
			left := math.Ceil(max(v.held-l.t, 0))
			known = append(known, eta.Hold{Seconds: left, Silent: left > 0 && v.held-v.checked <= late && l.t-v.checked > (v.held-v.checked)/2})
		default:
			wait := float64(len(known)) / rate
			seconds, rest := hold(wait, rate)
			known = append(known, eta.Hold{Seconds: math.Ceil(seconds - (rest+interval(wait))/2)})
		}
	}
	return known
}

package eta

import (
	"cmp"
	"math"
	"slices"
)

// queueParts is the number of parts of a queue in which present visitors are counted.
const queueParts = 24

// turnout estimates how many visitors will be present when the front of the queue reaches them. The zero value counts all.
type turnout struct {
	waiting float64
	nearest []float64               // present visitors among the first ones, by their holds; empty: no holds are known
	count   [queueParts + 1]float64 // present visitors up to each rank
	share   float64                 // share of present visitors behind the queue
}

// of returns how many of the first n are present at their turn.
func (t *turnout) of(n float64) float64 {
	near := float64(len(t.nearest) - 1)
	switch {
	case t.waiting == 0:
		return n
	case n < near:
		i := int(n)
		return t.nearest[i] + (t.nearest[i+1]-t.nearest[i])*(n-float64(i))
	case n >= t.waiting:
		return t.count[queueParts] + (n-t.waiting)*t.share
	}
	near = max(near, 0)
	i := min(int(queueParts*math.Sqrt((n-near)/(t.waiting-near))), queueParts-1)
	from, to := t.rank(i), t.rank(i+1)
	return t.count[i] + (t.count[i+1]-t.count[i])*ramp(n, from, to)
}

func (t *turnout) rank(i int) float64 {
	near := float64(max(len(t.nearest)-1, 0))
	x := float64(i) / queueParts
	return near + (t.waiting-near)*x*x
}

// foresee calculates the counts. A ticket that the front reaches after some time in the queue is present with the probability that other
// tickets had after that time. For the first tickets the holds are known too: a ticket is present until its hold has ended, and absent
// afterwards if it missed a poll. The counts go from the front to the tail, because the turn of a ticket depends on the present tickets
// before it.
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
	for i := range queueParts {
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

// atTurn returns the probability that the ticket with so many ahead, whose hold is known, is present after a wait.
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

// age returns how long the ticket with so many ahead has been in the queue, s.
func (in *Input) age(ahead float64) float64 {
	now := cmp.Or(in.Tail, in.Now)
	order := now
	switch {
	case in.OrderAt != nil:
		order = in.OrderAt(int64(ahead))
	case in.Oldest > 0 && in.Waiting > 0: // as if arrivals had been even
		order = in.Oldest + int64(float64(now-in.Oldest)*min(ahead/float64(in.Waiting), 1))
	}
	return max(0, float64(now-order)/1e6)
}

package backtest

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/anteroom/anteroom/eta"
)

// queue simulates a room's queue as the store has it: silent departures are in it until they are found.
type queue struct {
	sale     *Sale
	rng      *rand.Rand
	start    int64   // µs
	t        float64 // s since start
	places   places
	limiter  limiter
	sessions sessions
	joining  float64 // fraction of a visitor who is yet to join
	losing   float64 // likewise, to leave
	totals   totals
	buckets  []eta.Bucket
	leaving  map[int64][]int // visitors by the second in which they leave
	presence presenceCounts
	admitted func(followed int, t float64)
}

// limiter holds what the room has left to admit visitors with.
type limiter struct {
	tokens float64 // of the policy's rate
	slots  float64 // of Sale.Flow
}

// totals are counts since the beginning.
type totals struct{ came, gone, admitted, parked int64 }

func newQueue(s *Sale, seed uint64) *queue {
	return &queue{sale: s, rng: rand.New(rand.NewPCG(seed, 7)), start: s.Start.UnixMicro(), leaving: map[int64][]int{}} //nolint:gosec // a simulation
}

func (q *queue) now() int64 { return q.start + int64(math.Round(q.t*1e6)) }

// draw returns a random number of events of which mean are expected. Sale.Exact makes it even; carry then keeps the fraction.
func (q *queue) draw(mean float64, carry *float64) int {
	if q.sale.Exact {
		*carry += mean
		n := math.Floor(*carry + 1e-9)
		*carry -= n
		return int(n)
	}
	if mean > 30 { // by the central limit theorem
		return int(max(0, math.Round(mean+math.Sqrt(mean)*q.rng.NormFloat64())))
	}
	n, p, limit := 0, q.rng.Float64(), math.Exp(-mean)
	for p > limit {
		p *= q.rng.Float64()
		n++
	}
	return n
}

// orderAt returns the order of the visitor with that many ahead.
func (q *queue) orderAt(ahead int64) int64 {
	if i := q.places.at(ahead); i < len(q.places.all) {
		return q.places.all[i].order
	}
	return q.now()
}

// join adds a visitor who joins so many seconds after the tick, and returns the visitor's index.
func (q *queue) join(offset float64) int {
	i := len(q.places.all)
	v := visitor{joined: q.t, order: q.now() + int64(offset*1e6), in: true, followed: -1, noShow: q.rng.Float64() < q.sale.NoShow}
	if i > 0 && v.order <= q.places.all[i-1].order {
		v.order = q.places.all[i-1].order + 1
	}
	waiting, policy := float64(q.places.waiting), at(q.sale.Rate, q.t, 1)
	if q.rng.Float64() < q.sale.Leave {
		rate := policy
		if q.sale.Flow != nil {
			rate = min(rate, q.sale.Flow(q.t))
		}
		wait := waiting / rate
		v.leaves = q.t + max(1, q.rng.Float64()*wait)
		v.silent = q.rng.Float64() < q.sale.Silent
		v.checked, v.held = q.lastHold(wait, rate, v.leaves-q.t)
		due := int64(v.leaves)
		if v.silent {
			due += absence
		}
		q.leaving[due] = append(q.leaving[due], i)
	}
	if q.sale.Gone != nil {
		if seconds, gone := q.sale.Gone(q.t, q.places.waiting, q.rng); gone {
			held, _ := hold(waiting/max(policy, 1e-3), policy)
			v.silent, v.held = true, q.t+seconds
			v.checked = max(q.t, v.held-held)
			v.leaves = v.checked
		}
	}
	q.places.join(v)
	q.totals.came++
	return i
}

// step simulates one tick.
func (q *queue) step() {
	q.t += q.sale.Tick
	q.leave()
	for len(q.sessions) > 0 && q.sessions[0] <= q.t {
		heap.Pop(&q.sessions)
	}
	had := q.places.waiting
	paused := q.sale.Paused != nil && q.sale.Paused(q.t)
	k := q.capacity()
	if paused {
		k = 0
	}
	q.presence.fade(q.sale.Tick)
	q.sample()
	n := q.admit(max(0, k))
	q.limiter.tokens -= float64(n)
	q.limiter.slots -= float64(n)
	q.count(int64(n), had > 0 && !paused)
}

// leave removes the visitors who leave the queue in this tick elsewhere than at its front.
func (q *queue) leave() {
	for second := int64(q.t - q.sale.Tick); second < int64(q.t); second++ {
		for _, i := range q.leaving[second] {
			if q.places.all[i].in {
				q.places.remove(i)
			}
		}
		delete(q.leaving, second)
	}
	for range q.draw(at(q.sale.Losses, q.t, 0)*q.sale.Tick, &q.losing) {
		if q.places.waiting == 0 {
			return
		}
		q.places.remove(q.places.random(q.rng))
	}
}

// capacity refills the limiter and returns how many visitors may be admitted in this tick.
func (q *queue) capacity() int {
	s := q.sale
	rate := at(s.Rate, q.t, 0)
	q.limiter.tokens = min(q.limiter.tokens+rate*s.Tick, max(1, rate, rate*s.Tick))
	k := int(q.limiter.tokens)
	if s.Flow != nil { // unused slots are soon gone
		q.limiter.slots = min(q.limiter.slots+float64(q.draw(s.Flow(q.t)*s.Tick, &q.joining)), max(1, 4*s.Flow(q.t)*s.Tick))
		k = min(k, int(q.limiter.slots))
	}
	if s.Active > 0 {
		k = min(k, int(s.Active)-len(q.sessions))
	}
	return k
}

// admit admits up to k visitors, and removes absent ones before them.
func (q *queue) admit(k int) (n int) {
	for ; q.places.start < len(q.places.all); q.places.start++ {
		v := &q.places.all[q.places.start]
		switch {
		case !v.in:
			continue
		case v.silent && q.t > v.held:
			q.places.remove(q.places.start)
			q.totals.gone++
			q.presence.passed.add(v.held-v.joined, 0, 1)
			q.totals.parked++
			continue
		case n >= k:
			return n
		}
		q.places.remove(q.places.start)
		q.totals.gone++
		q.totals.admitted++
		q.presence.passed.add(q.t-v.joined, 1, 0)
		n++
		stay := claimWindow + 0.0
		switch comes := !v.noShow && !(v.silent && q.t > v.leaves); {
		case comes && q.sale.Stay != nil:
			stay = q.sale.Stay(q.rng)
		case comes && q.sale.Session > 0:
			stay = q.rng.ExpFloat64() * q.sale.Session
		}
		if q.sale.Active > 0 {
			heap.Push(&q.sessions, q.t+stay)
		}
		if v.followed >= 0 {
			q.admitted(v.followed, q.t)
		}
	}
	return n
}

// count adds a tick's admissions to the bucket of its second.
func (q *queue) count(admitted int64, busy bool) {
	tick := q.sale.Tick
	second := q.now() / 1e6
	if int64(q.t) == int64(q.t-tick) || tick >= 1 {
		second = (q.now() - 1) / 1e6
	}
	if m := len(q.buckets); m == 0 || q.buckets[m-1].Second != second {
		q.buckets = append(q.buckets, eta.Bucket{Second: second})
		if len(q.buckets) > 2*eta.MaxBuckets {
			q.buckets = slices.Delete(q.buckets, 0, eta.MaxBuckets-10)
		}
	}
	b := &q.buckets[len(q.buckets)-1]
	b.Admitted += admitted
	if busy {
		b.Busy = min(b.Busy+tick, 1)
	}
}

// input returns what a gateway would read from a snapshot.
func (q *queue) input() eta.Input {
	rate := at(q.sale.Rate, q.t, 0)
	in := eta.Input{
		Now: q.now(), Wall: q.now(), Since: q.start, Buckets: q.buckets, Rate: rate, Set: rate,
		Paused:  q.sale.Paused != nil && q.sale.Paused(q.t),
		Waiting: q.places.waiting, Parked: q.totals.parked, MaxActive: q.sale.Active, Active: int64(len(q.sessions)),
		Came: q.totals.came, Gone: q.totals.gone, Admitted: q.totals.admitted, Ahead: q.places.ahead, OrderAt: q.orderAt,
		Passed: q.presence.passed.list(), Sample: q.presence.sample.list(), Holds: q.holds(),
	}
	if q.sale.Set != nil {
		in.Set = q.sale.Set(q.t)
	}
	if q.sale.Steps != nil {
		in.Schedule = q.sale.Steps(q.t)
	}
	if q.sale.Full != nil {
		in.MaxActive, in.Active = q.sale.Full(q.t)
	}
	if first := q.places.first(); first != nil {
		in.Oldest = first.order
	}
	return in
}

// sessions is a heap of the times at which sessions end.
type sessions []float64

func (s sessions) Len() int           { return len(s) }
func (s sessions) Less(i, j int) bool { return s[i] < s[j] }
func (s sessions) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *sessions) Push(end any)      { *s = append(*s, end.(float64)) }

// Pop removes the last element, as container/heap requires.
func (s *sessions) Pop() any {
	last := len(*s) - 1
	end := (*s)[last]
	*s = (*s)[:last]
	return end
}

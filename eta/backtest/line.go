package backtest

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/anteroom/anteroom/eta"
)

type visitor struct {
	order    int64
	joined   float64 // s
	leaves   float64 // s; 0: never
	silent   bool
	checked  float64 // s: when the store last checked a silent visitor
	held     float64 // s: when they count as absent
	noShow   bool
	in       bool // in the queue
	followed int  // index of the account; -1: none
}

// line is a room's queue as the store has it: silent departures are in it until they are found.
type line struct {
	sale     *Sale
	rng      *rand.Rand
	start    int64 // µs
	t        float64
	all      []visitor
	tree     []int64 // Fenwick: who is in the queue
	head     int
	waiting  int64
	tokens   float64
	slots    float64
	joining  float64
	losing   float64
	parked   int64
	came     int64
	gone     int64
	admitted int64
	active   []float64 // ends of sessions, a heap
	buckets  []eta.Bucket
	leaving  map[int64][]int // by second
	heads    ages            // that the front reached
	sample   ages            // of those who wait
	swept    int             // index of the visitor at which the last sample began
	done     func(index int, t float64)
}

func newLine(s *Sale, seed uint64) *line {
	l := &line{sale: s, rng: rand.New(rand.NewPCG(seed, 7)), start: s.Start.UnixMicro(), leaving: map[int64][]int{}} //nolint:gosec // a simulation
	return l
}

func (l *line) now() int64 { return l.start + int64(math.Round(l.t*1e6)) }

// many draws how many come when mean are expected.
func (l *line) many(mean float64, carry *float64) int {
	if l.sale.Exact {
		*carry += mean
		n := math.Floor(*carry + 1e-9)
		*carry -= n
		return int(n)
	}
	if mean > 30 { // by the central limit theorem
		return int(max(0, math.Round(mean+math.Sqrt(mean)*l.rng.NormFloat64())))
	}
	n, p, limit := 0, l.rng.Float64(), math.Exp(-mean)
	for p > limit {
		p *= l.rng.Float64()
		n++
	}
	return n
}

func (l *line) add(i int, n int64) {
	for i++; i < len(l.tree); i += i & -i {
		l.tree[i] += n
	}
}

// before counts those in the queue among the first i.
func (l *line) before(i int) (n int64) {
	for ; i > 0; i -= i & -i {
		n += l.tree[i]
	}
	return n
}

// ahead returns how many visitors a gateway would count before an order.
func (l *line) ahead(order int64) int64 {
	i, _ := slices.BinarySearchFunc(l.all, order, func(v visitor, o int64) int {
		switch {
		case v.order < o:
			return -1
		case v.order > o:
			return 1
		}
		return 0
	})
	return l.before(i)
}

// orderAt returns the order of the one with that many ahead.
func (l *line) orderAt(ahead int64) int64 {
	i, step := 0, 1
	for step*2 < len(l.tree) {
		step *= 2
	}
	for ; step > 0; step /= 2 { // the largest i of which no more than ahead are among the first i
		if i+step < len(l.tree) && l.tree[i+step] <= ahead {
			i += step
			ahead -= l.tree[i]
		}
	}
	if i >= len(l.all) {
		return l.now()
	}
	return l.all[i].order
}

func (l *line) join(spread float64) int {
	i := len(l.all)
	v := visitor{joined: l.t, order: l.now() + int64(spread*1e6), in: true, followed: -1, noShow: l.rng.Float64() < l.sale.NoShow}
	if i > 0 && v.order <= l.all[i-1].order {
		v.order = l.all[i-1].order + 1
	}
	if l.rng.Float64() < l.sale.Leave {
		rate := at(l.sale.Rate, l.t, 1)
		if l.sale.Flow != nil {
			rate = min(rate, l.sale.Flow(l.t))
		}
		wait := float64(l.waiting) / rate
		v.leaves = l.t + max(1, l.rng.Float64()*wait)
		v.silent = l.rng.Float64() < l.sale.Silent
		v.checked, v.held = l.lastHold(wait, rate, v.leaves-l.t)
		due := int64(v.leaves)
		if v.silent {
			due += absence
		}
		l.leaving[due] = append(l.leaving[due], i)
	}
	if l.sale.Gone != nil {
		if seconds, gone := l.sale.Gone(l.t, l.waiting, l.rng); gone {
			wait := float64(l.waiting) / max(at(l.sale.Rate, l.t, 1), 1e-3)
			held, _ := hold(wait, at(l.sale.Rate, l.t, 1))
			v.silent, v.held = true, l.t+seconds
			v.checked = max(l.t, v.held-held)
			v.leaves = v.checked
		}
	}
	l.all = append(l.all, v)
	if len(l.tree) <= i+1 {
		old := len(l.tree)
		l.tree = append(l.tree, make([]int64, max(1024, old))...)
		clear(l.tree)
		for j := range l.all[:i] {
			if l.all[j].in {
				l.add(j, 1)
			}
		}
	}
	l.add(i, 1)
	l.waiting++
	l.came++
	return i
}

func (l *line) out(i int) {
	l.all[i].in = false
	l.add(i, -1)
	l.waiting--
}

// step simulates one tick.
func (l *line) step() {
	s := l.sale
	l.t += s.Tick
	for second := int64(l.t - s.Tick); second < int64(l.t); second++ {
		for _, i := range l.leaving[second] {
			if l.all[i].in {
				l.out(i)
			}
		}
		delete(l.leaving, second)
	}
	for range l.many(at(s.Losses, l.t, 0)*s.Tick, &l.losing) {
		if l.waiting == 0 {
			break
		}
		i := l.head + l.rng.IntN(len(l.all)-l.head)
		for !l.all[i].in {
			if i++; i == len(l.all) {
				i = l.head
			}
		}
		l.out(i)
	}
	for len(l.active) > 0 && l.active[0] <= l.t {
		l.pop()
	}
	had := l.waiting
	paused := s.Paused != nil && s.Paused(l.t)
	rate := at(s.Rate, l.t, 0)
	l.tokens = min(l.tokens+rate*s.Tick, max(1, rate, rate*s.Tick))
	if s.Flow != nil {
		l.slots = min(l.slots+float64(l.many(s.Flow(l.t)*s.Tick, &l.joining)), max(1, 4*s.Flow(l.t)*s.Tick)) // unused slots are soon gone
	}
	k := int(l.tokens)
	if s.Flow != nil {
		k = min(k, int(l.slots))
	}
	if s.Active > 0 {
		k = min(k, int(s.Active)-len(l.active))
	}
	if paused {
		k = 0
	}
	l.heads.fade(s.Tick / headFade)
	l.takeSample(s.Tick)
	n := l.admit(max(0, k))
	l.tokens -= float64(n)
	l.slots -= float64(n)
	second := l.now() / 1e6
	if int64(l.t) == int64(l.t-s.Tick) || s.Tick >= 1 {
		second = (l.now() - 1) / 1e6
	}
	if m := len(l.buckets); m == 0 || l.buckets[m-1].Second != second {
		l.buckets = append(l.buckets, eta.Bucket{Second: second})
		if len(l.buckets) > 2*eta.MaxBuckets {
			l.buckets = slices.Delete(l.buckets, 0, eta.MaxBuckets-10)
		}
	}
	b := &l.buckets[len(l.buckets)-1]
	b.Admitted += int64(n)
	if had > 0 && !paused {
		b.Busy = min(b.Busy+s.Tick, 1)
	}
}

// admit admits up to k visitors, and removes absent ones before them.
func (l *line) admit(k int) (n int) {
	for l.head < len(l.all) {
		v := &l.all[l.head]
		switch {
		case !v.in:
			l.head++
			continue
		case v.silent && l.t > v.held:
			l.out(l.head)
			l.gone++
			l.heads.add(v.held-v.joined, 0, 1)
			l.parked++
			l.head++
			continue
		case n >= k:
			return n
		}
		l.out(l.head)
		l.gone++
		l.admitted++
		l.heads.add(l.t-v.joined, 1, 0)
		n++
		stay := claimWindow + 0.0
		switch comes := !v.noShow && !(v.silent && l.t > v.leaves); {
		case comes && l.sale.Stay != nil:
			stay = l.sale.Stay(l.rng)
		case comes && l.sale.Session > 0:
			stay = l.rng.ExpFloat64() * l.sale.Session
		}
		if l.sale.Active > 0 {
			l.push(l.t + stay)
		}
		if v.followed >= 0 {
			l.done(v.followed, l.t)
		}
		l.head++
	}
	return n
}

func (l *line) push(end float64) {
	l.active = append(l.active, end)
	for i := len(l.active) - 1; i > 0; {
		parent := (i - 1) / 2
		if l.active[parent] <= l.active[i] {
			break
		}
		l.active[parent], l.active[i] = l.active[i], l.active[parent]
		i = parent
	}
}

func (l *line) pop() {
	last := len(l.active) - 1
	l.active[0] = l.active[last]
	l.active = l.active[:last]
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < last && l.active[child] < l.active[least] {
				least = child
			}
		}
		if least == i {
			return
		}
		l.active[i], l.active[least] = l.active[least], l.active[i]
		i = least
	}
}

// input returns what a gateway would read from a snapshot.
func (l *line) input() eta.Input {
	rate := at(l.sale.Rate, l.t, 0)
	in := eta.Input{
		Now: l.now(), Wall: l.now(), Since: l.start, Buckets: l.buckets, Rate: rate, Set: rate,
		Paused:  l.sale.Paused != nil && l.sale.Paused(l.t),
		Waiting: l.waiting, Parked: l.parked, MaxActive: l.sale.Active, Active: int64(len(l.active)),
		Came: l.came, Gone: l.gone, Admitted: l.admitted, Ahead: l.ahead, OrderAt: l.orderAt,
	}
	in.Heads, in.Sample, in.Holds = l.heads.list(), l.sample.list(), l.holds()
	if l.sale.Set != nil {
		in.Set = l.sale.Set(l.t)
	}
	if l.sale.Steps != nil {
		in.Schedule = l.sale.Steps(l.t)
	}
	if l.sale.Full != nil {
		in.MaxActive, in.Active = l.sale.Full(l.t)
	}
	if l.head < len(l.all) && l.waiting > 0 {
		for l.head < len(l.all) && !l.all[l.head].in {
			l.head++
		}
		in.Head = l.all[l.head].order
	}
	return in
}

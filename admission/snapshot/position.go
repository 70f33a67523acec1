package snapshot

import (
	"slices"
	"sort"
)

// FrontSize returns the length of the front of the queue: 10 s of the rate, from 1,000 to 20,000 tickets. The front is exact in a
// snapshot, and the store checks every poll of a ticket in it.
func FrontSize(rate int64) int64 { return min(20000, max(1000, rate/100)) }

// InFront reports whether an order is in the front of the queue or before it.
func (s *Snapshot) InFront(order int64) bool {
	if !s.Known || int64(len(s.Front)) < FrontSize(s.Policy.Rate) || len(s.Sketch) == 0 {
		return true
	}
	return order <= s.Front[len(s.Front)-1]
}

// Ahead returns the number of enrolled tickets before an order: exact in the front, interpolated between samples behind it.
func (s *Snapshot) Ahead(order int64) int64 {
	n, _ := s.shown(order)
	return n
}

// shown returns Ahead, and Came when the rank was counted.
func (s *Snapshot) shown(order int64) (n, came int64) {
	f := s.Front
	if len(f) == 0 {
		return 0, s.Came
	}
	if order <= f[len(f)-1] || len(s.Sketch) == 0 {
		n, _ := slices.BinarySearch(f, order)
		return s.ceiling(order, int64(n)), s.Came
	}
	i := sort.Search(len(s.Sketch), func(i int) bool { return s.Sketch[i].Order >= order })
	if i == len(s.Sketch) {
		return s.Waiting, s.Came
	}
	to := s.Sketch[i]
	from := Rank{Rank: int64(len(f)) - 1, Order: f[len(f)-1], came: s.Came}
	if i > 0 {
		from = s.Sketch[i-1]
	}
	came = min(from.came, to.came)
	if to.Order <= from.Order {
		return to.Rank, came
	}
	return from.Rank + int64(float64(to.Rank-from.Rank)*float64(order-from.Order)/float64(to.Order-from.Order)+0.5), came
}

// OrderAt returns the order of the ticket with that rank, interpolated behind the front.
func (s *Snapshot) OrderAt(rank int64) int64 {
	f := s.Front
	switch {
	case rank < 0 || len(f) == 0:
		return s.Oldest
	case rank < int64(len(f)):
		return f[rank]
	}
	from := Rank{Rank: int64(len(f)) - 1, Order: f[len(f)-1]}
	i := sort.Search(len(s.Sketch), func(i int) bool { return s.Sketch[i].Rank >= rank })
	if i == len(s.Sketch) {
		return s.Time
	}
	if i > 0 {
		from = s.Sketch[i-1]
	}
	to := s.Sketch[i]
	if to.Rank <= from.Rank {
		return to.Order
	}
	return from.Order + int64(float64(to.Order-from.Order)*float64(rank-from.Rank)/float64(to.Rank-from.Rank))
}

// Unenrolled returns the number of tickets before an order that are signed and not enrolled yet. Within a second they count as
// evenly spread, from signedFrom on.
func (s *Snapshot) Unenrolled(order, signedFrom int64) int64 {
	sec := order / 1e6
	var n int64
	for _, p := range s.Pending { // the tickets of nearly all polls are enrolled before the first of these
		if p.Second >= sec {
			if p.Second == sec {
				n += PartOfSecond(p.Count, order, signedFrom, s.Time)
			}
			break
		}
		n += p.Count
	}
	return n
}

// Extrapolated returns an estimate of the tickets signed between the snapshot and an order, at the rate of the last full second.
func (s *Snapshot) Extrapolated(order int64) int64 {
	after := order - s.Time
	if after <= 0 {
		return 0
	}
	for _, p := range s.Pending {
		if p.Second == s.Time/1e6-1 {
			return p.Count * min(after, 2e6) / 1e6
		}
	}
	return 0
}

// PartOfSecond returns how many of the tickets signed in the second of order come before order. They count as evenly spread over
// the part of that second between from, when signing began, and now.
func PartOfSecond(count, order, from, now int64) int64 {
	second := order / 1e6 * 1e6
	from, till := max(from, second), min(now, second+1e6)
	switch {
	case order <= from:
		return 0
	case order >= till:
		return count
	}
	return count * (order - from) / (till - from)
}

// CapRanks lowers the ranks of a new snapshot so that no ticket gets a larger rank than old showed for it, except for tickets that
// have entered the queue since. Samples are counted anew at different ticks, and the front is more exact than the sketch.
func (s *Snapshot) CapRanks(old *Snapshot) {
	if !old.Known || old.Epoch != s.Epoch || old.Fence != s.Fence || len(old.Sketch) == 0 || old.rough || s.Came < old.Came {
		return
	}
	// most returns the largest rank that an order may get.
	most := func(order int64) int64 {
		rank, came := old.shown(order)
		return rank + s.Came - came
	}
	tail := old.Sketch[len(old.Sketch)-1].Order
	for i := range s.Sketch {
		if k := &s.Sketch[i]; k.Order <= tail {
			k.Rank = min(k.Rank, most(k.Order))
		}
	}
	// Only tickets that were behind the front, or had a ceiling in it, can have been shown a rank that was too small.
	from := len(s.Front)
	if n := len(old.Front); n > 0 {
		from = sort.Search(from, func(i int) bool { return s.Front[i] > old.Front[n-1] })
	}
	note := func(i int) {
		if rank := most(s.Front[i]); rank < int64(i) {
			s.Ceilings = append(s.Ceilings, Rank{Rank: rank, Order: s.Front[i]})
		}
	}
	for _, c := range old.Ceilings {
		if i, ok := slices.BinarySearch(s.Front, c.Order); ok && i < from {
			note(i)
		}
	}
	for i := from; i < len(s.Front) && s.Front[i] <= tail; i++ {
		note(i)
	}
}

// ceiling returns rank, or the ceiling of an order of the front where that is smaller.
func (s *Snapshot) ceiling(order, rank int64) int64 {
	if len(s.Ceilings) == 0 {
		return rank
	}
	i, ok := slices.BinarySearchFunc(s.Ceilings, order, func(r Rank, order int64) int { return int(r.Order - order) })
	if !ok {
		return rank
	}
	return min(rank, s.Ceilings[i].Rank)
}

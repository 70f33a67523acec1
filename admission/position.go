package admission

import (
	"slices"
	"sort"
)

// frontSize is how much of the head of a line is exact and checked with the
// store on every poll: 10 s of the rate, from 1,000 to 20,000.
func frontSize(rate int64) int64 { return min(20000, max(1000, rate/100)) }

// inFront says whether an order lies in the front of the line or before it.
func (r *Room) inFront(s *Snapshot, order int64) bool {
	if !s.Known || int64(len(s.Front)) < frontSize(s.Policy.Rate) || len(s.Sketch) == 0 {
		return true
	}
	return order <= s.Front[len(s.Front)-1]
}

// Ahead is how many are ahead of an order in line (0: next): those enrolled by
// the snapshot or through this gateway since, and those that arrived before it and are not enrolled yet. For 90 s after the store
// lost its data it is counted from the last snapshot before.
func (r *Room) Ahead(order int64) int64 {
	for {
		b := r.beyond.Load()
		s, from := b.snap, r.signedFrom.Load()
		n := s.ahead(order) + s.unenrolled(order, from) + b.recent.ahead(order) + max(s.carried(order), r.untold(b, order))
		if f := b.before; f != nil && r.c.mono() < f.until {
			n = max(n, f.snap.ahead(order)+f.snap.unenrolled(order, from)-(s.Admissions-f.base))
		}
		if r.beyond.Load() == b { // else arrivals may have been counted by another's reckoning
			return max(0, n)
		}
	}
}

// ahead counts the enrolled before an order: exact in the front, interpolated
// between the knots of the sketch beyond it.
func (s *Snapshot) ahead(order int64) int64 {
	n, _ := s.told(order)
	return n
}

// told is ahead with the value that came had when that was counted.
func (s *Snapshot) told(order int64) (n, came int64) {
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

// unenrolled counts the arrivals before an order that the line does not hold
// yet; within a second they are taken to be spread evenly.
func (s *Snapshot) unenrolled(order, from int64) int64 {
	sec := order / 1e6
	var n int64
	for _, p := range s.Pending { // none for nearly all who poll: they are enrolled before the first
		if p.Second >= sec {
			if p.Second == sec {
				n += share(p.Count, order, from, s.Time)
			}
			break
		}
		n += p.Count
	}
	return n
}

// carried is how many arrived between the snapshot and an order, at the rate of
// the last full second.
func (s *Snapshot) carried(order int64) int64 {
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

// OrderAt returns the order of the ticket with that many ahead, interpolated beyond the front.
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

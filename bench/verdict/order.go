package verdict

import (
	"cmp"
	"math"
	"slices"
)

// Admission is one visitor who was let in. Times of the room are microseconds of its clock, times of the client
// microseconds of this machine's.
type Admission struct {
	At       int64 // admitted_at
	Order    int64 // of the waiting token
	Ordered  bool  // false for one who was let in at once, without a token
	Absent   bool  // was out of touch long enough to be passed over
	Sent     int64 // client: when the join was sent first
	Answered int64 // client: when it was answered
}

// Order is what the admissions say about a room's order.
type Order struct {
	Compared   int   `json:"compared"`   // visitors with an order
	AtOnce     int   `json:"at_once"`    // let in at once, without a token: judged by when they asked
	Equal      int   `json:"equal"`      // neighbours with the same order: either may go first
	Together   int   `json:"together"`   // neighbours in the order who were admitted at the same microsecond
	Absent     int   `json:"absent"`     // out of touch so long that they may be passed over
	Inversions int64 `json:"inversions"` // pairs: the later order strictly first, though the earlier was in touch
	Overtaken  int   `json:"overtaken"`  // visitors who were passed over in those pairs
	// OvertakenLong counts the visitors, absent ones too, who saw a later order admitted more than half a second before them.
	OvertakenLong int     `json:"overtaken_over_half_second"`
	OvertakenMost float64 `json:"overtaken_worst_seconds"`
	Queuejumps    int64   `json:"queue_jumps"`
	// Queuejumps are pairs in which somebody was let in at once who asked after a waiting visitor had been answered.
}

// Kept reports whether nobody was overtaken.
func (o Order) Kept() bool { return o.Inversions == 0 && o.Queuejumps == 0 }

// JudgeOrder compares every pair, in n log n.
func JudgeOrder(all []Admission) Order {
	var o Order
	var line, atOnce []Admission
	for _, a := range all {
		if a.Absent {
			o.Absent++
		}
		if a.Ordered {
			line = append(line, a)
		} else {
			atOnce = append(atOnce, a)
		}
	}
	o.Compared, o.AtOnce = len(line), len(atOnce)
	rank := ranks(all)

	slices.SortFunc(line, func(a, b Admission) int { return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.At, b.At)) })
	for i := 1; i < len(line); i++ {
		if line[i].Order == line[i-1].Order {
			o.Equal++
		}
		if line[i].At == line[i-1].At {
			o.Together++
		}
	}
	// From the last order to the first: whoever is already counted has a later order. Those with an equal order are
	// counted only after all of them have been asked.
	later, earliest := make(counter, len(rank)+1), int64(math.MaxInt64)
	for hi := len(line); hi > 0; {
		lo := hi - 1
		for lo > 0 && line[lo-1].Order == line[hi-1].Order {
			lo--
		}
		for _, a := range line[lo:hi] {
			if n := later.below(rank[a.At]); n > 0 && !a.Absent {
				o.Inversions += n
				o.Overtaken++
			}
			if by := a.At - earliest; by > 0 {
				o.OvertakenMost = max(o.OvertakenMost, float64(by)/1e6)
				if by > 500_000 {
					o.OvertakenLong++
				}
			}
		}
		for _, a := range line[lo:hi] {
			earliest = min(earliest, a.At)
			later.add(rank[a.At])
		}
		hi = lo
	}

	// Those let in at once have no order, but whoever was answered before they asked came first.
	slices.SortFunc(line, func(a, b Admission) int { return cmp.Compare(a.Answered, b.Answered) })
	slices.SortFunc(atOnce, func(a, b Admission) int { return cmp.Compare(a.Sent, b.Sent) })
	before, counted, i := make(counter, len(rank)+1), int64(0), 0
	for _, a := range atOnce {
		for ; i < len(line) && line[i].Answered < a.Sent; i++ {
			if !line[i].Absent {
				before.add(rank[line[i].At])
				counted++
			}
		}
		o.Queuejumps += counted - before.below(rank[a.At]+1)
	}
	return o
}

// ranks numbers the distinct admission times from 0.
func ranks(all []Admission) map[int64]int {
	at := make([]int64, len(all))
	for i, a := range all {
		at[i] = a.At
	}
	slices.Sort(at)
	rank := make(map[int64]int, len(at))
	for i, t := range slices.Compact(at) {
		rank[t] = i
	}
	return rank
}

// counter is a Fenwick tree: how many were added below a rank.
type counter []int64

func (c counter) add(rank int) {
	for i := rank + 1; i < len(c); i += i & -i {
		c[i]++
	}
}

func (c counter) below(rank int) (n int64) {
	for i := rank; i > 0; i -= i & -i {
		n += c[i]
	}
	return n
}

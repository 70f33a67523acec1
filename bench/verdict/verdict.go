// Package verdict decides from the admissions of many visitors whether a room kept its rate and its order.
package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Second is the width of the sliding window, in the unit of all times here: microseconds.
const Second = 1_000_000

// Milli is a rate or a burst in thousandths, so that a number with three decimals is exact.
type Milli int64

// ToMilli returns a number in thousandths, or an error if it has more than three decimals or is out of range.
func ToMilli(x float64) (Milli, error) {
	m := math.Round(x * 1000)
	if !(x >= 0 && x <= 1e7) || math.Abs(m-x*1000) > 1e-6 {
		return 0, fmt.Errorf("%v: want a number from 0 to 10000000 with at most three decimals", x)
	}
	return Milli(m), nil
}

// Rate compares the admissions of a room with its rate.
type Rate struct {
	Admissions  int   `json:"admissions"`
	MaxInSecond int   `json:"max_in_a_sliding_second"`
	At          int64 `json:"-"` // when the fullest second began
	Judged      bool  `json:"judged"`
	Allowed     int   `json:"allowed_in_a_second"` // rate + burst, rounded down
	// Excess is by how many visitors the worst interval of any length exceeds rate × length + burst, or 0.
	Excess float64 `json:"excess_in_any_interval"`
}

// Kept reports whether no interval has more admissions than the limit. Without a limit it returns true.
func (r Rate) Kept() bool { return !r.Judged || r.MaxInSecond <= r.Allowed && r.Excess == 0 }

// JudgeRate compares admission times, in microseconds and in any order, with a limit. A negative rate is an unknown limit: then
// only the fullest second is counted. Intervals are closed at both ends.
func JudgeRate(at []int64, rate, burst Milli) Rate {
	at = slices.Sorted(slices.Values(at))
	r := Rate{Admissions: len(at)}
	r.MaxInSecond, r.At = fullest(at, Second)
	if rate < 0 {
		return r
	}
	r.Judged = true
	r.Allowed = int((rate + burst) / 1000)
	if len(at) == 0 {
		return r
	}
	// Within [at[i], at[j]] there are j−i+1 admissions and room for rate·(at[j]−at[i]) + burst. In units of a
	// thousandth of a millionth of a visitor all of it is integer, and the worst i for a j is the one with the smallest
	// i − rate·at[i].
	const unit = 1000 * Second
	worst, least := int64(math.MinInt64), int64(math.MaxInt64)
	for j, t := range at {
		level := int64(j)*unit - int64(rate)*(t-at[0])
		least = min(least, level)
		worst = max(worst, level+unit-least)
	}
	if over := worst - int64(burst)*Second; over > 0 {
		r.Excess = float64(over) / unit
	}
	return r
}

// fullest returns the closed window of a width with the most of the sorted times.
func fullest(at []int64, width int64) (n int, from int64) {
	i := 0
	for j, t := range at {
		for t-at[i] > width {
			i++
		}
		if j-i+1 > n {
			n, from = j-i+1, at[i]
		}
	}
	return n, from
}

// Admission is one admitted visitor. Times are microseconds of the room's clock; those marked client are of this
// machine's.
type Admission struct {
	At       int64 // admitted_at
	Order    int64 // of the waiting token
	Ordered  bool  // false for a visitor who was admitted immediately, without a token
	Absent   bool  // absent for so long that others may be admitted first
	Sent     int64 // client: when the join was first sent
	Answered int64 // client: when it was answered
}

// Order counts the visitors of a room who were overtaken.
type Order struct {
	Compared   int   `json:"compared"`   // visitors with an order
	AtOnce     int   `json:"at_once"`    // admitted immediately, without a token: judged by when they joined
	Equal      int   `json:"equal"`      // neighbours with the same order, of whom either may be admitted first
	Together   int   `json:"together"`   // neighbours in the order with the same time of admission
	Absent     int   `json:"absent"`     // absent for so long that others may be admitted first
	Inversions int64 `json:"inversions"` // pairs in which the later order was admitted first, though the earlier was present
	Overtaken  int   `json:"overtaken"`  // visitors with the earlier order in those pairs
	// OvertakenLong counts the visitors, absent ones too, who saw a later order admitted more than half a second before them.
	OvertakenLong int     `json:"overtaken_over_half_second"`
	OvertakenMost float64 `json:"overtaken_worst_seconds"`
	Queuejumps    int64   `json:"queue_jumps"`
	// Queuejumps are pairs of a visitor who was admitted immediately and a present one who joined before and was admitted later.
}

// Kept reports whether nobody was overtaken.
func (o Order) Kept() bool { return o.Inversions == 0 && o.Queuejumps == 0 }

// JudgeOrder compares every pair, in O(n log n).
func JudgeOrder(all []Admission) Order {
	var o Order
	var queue, atOnce []Admission
	for _, a := range all {
		if a.Absent {
			o.Absent++
		}
		if a.Ordered {
			queue = append(queue, a)
		} else {
			atOnce = append(atOnce, a)
		}
	}
	o.Compared, o.AtOnce = len(queue), len(atOnce)
	rank := ranks(all)

	slices.SortFunc(queue, func(a, b Admission) int { return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.At, b.At)) })
	for i := 1; i < len(queue); i++ {
		if queue[i].Order == queue[i-1].Order {
			o.Equal++
		}
		if queue[i].At == queue[i-1].At {
			o.Together++
		}
	}
	// From the last order to the first, so that the counted visitors have a later order. Visitors with an equal order are
	// counted together.
	later, earliest := make(counter, len(rank)+1), int64(math.MaxInt64)
	for hi := len(queue); hi > 0; {
		lo := hi - 1
		for lo > 0 && queue[lo-1].Order == queue[hi-1].Order {
			lo--
		}
		for _, a := range queue[lo:hi] {
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
		for _, a := range queue[lo:hi] {
			earliest = min(earliest, a.At)
			later.add(rank[a.At])
		}
		hi = lo
	}

	// A visitor who was admitted immediately has no order, but comes after those whose join was answered before.
	slices.SortFunc(queue, func(a, b Admission) int { return cmp.Compare(a.Answered, b.Answered) })
	slices.SortFunc(atOnce, func(a, b Admission) int { return cmp.Compare(a.Sent, b.Sent) })
	before, counted, i := make(counter, len(rank)+1), int64(0), 0
	for _, a := range atOnce {
		for ; i < len(queue) && queue[i].Answered < a.Sent; i++ {
			if !queue[i].Absent {
				before.add(rank[queue[i].At])
				counted++
			}
		}
		o.Queuejumps += counted - before.below(rank[a.At]+1)
	}
	return o
}

// ranks returns the rank of each distinct admission time.
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

// counter is a Fenwick tree that counts the additions below a rank.
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

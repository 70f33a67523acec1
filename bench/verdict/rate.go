// Package verdict decides from the admissions of many visitors whether a room kept its rate and its order.
package verdict

import (
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

package policy

import (
	"slices"
	"strconv"
	"strings"
)

// Schedule is a configured policy together with the policies that its plan makes of it over time. It is immutable.
type Schedule struct {
	Policy Policy // as configured
	spans  []Span
}

// Span is a time in which the policy does not change.
type Span struct {
	from   int64 // µs of Redis's clock
	Policy Policy
	Arg    string // Policy in the form that the room scripts take
}

// NewSchedule returns the schedule of a configured policy.
func NewSchedule(p Policy) *Schedule {
	s := &Schedule{Policy: p}
	for _, from := range append([]int64{0}, p.Plan.changes()...) {
		s.spans = append(s.spans, Span{from: from, Policy: p.At(from)})
	}
	for i := range s.spans {
		var till int64
		if i+1 < len(s.spans) {
			till = s.spans[i+1].from
		}
		s.spans[i].Arg = s.spans[i].Policy.arg(till)
	}
	return s
}

// At returns the span of a time, µs of Redis's clock.
func (s *Schedule) At(now int64) *Span {
	i := len(s.spans) - 1
	for i > 0 && now < s.spans[i].from {
		i--
	}
	return &s.spans[i]
}

// limiters are STRATEGIES of lua/lib/room.lua.
var limiters = []Strategy{StrategyTokenBucket, StrategyLeakyBucket, StrategyFixedWindow, StrategyAdaptive}

// arg returns the policy in the form of the scripts; till is when the plan changes it, 0 for never.
func (p *Policy) arg(till int64) string {
	ints := []int64{ // NAMES of lua/lib/room.lua
		p.Rate, p.Burst, p.MaxActive, p.HeadWindow,
		p.MinWait.Microseconds(), p.Absence.Microseconds(), p.ClaimWindow.Microseconds(), p.SessionTTL.Microseconds(),
		int64(max(0, slices.Index(limiters, p.limiter()))), p.MinRate, p.MaxRate,
		oneIf(p.Method == Lottery), p.PrequeueAt, p.OpensAt, oneIf(p.Budgeted), p.Joins, p.JoinsPer.Microseconds(),
		p.Wide, p.WidePer.Microseconds(), p.PollBudget, oneIf(p.Method == Reject), till, p.PassLife.Microseconds(),
		oneIf(p.SoldOutCloses),
	}
	words := make([]string, len(ints))
	for i, n := range ints {
		words[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(words, " ")
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/verdict"
)

// judgement counts the promises to the guests that the room broke.
type judgement struct {
	Rate           verdict.Rate  // in room time
	Order          verdict.Order // of guests whose join the store confirmed
	Late, LateOver int           // guests that were confirmed late, and those of them that were overtaken
	Examples       []string      // of the latter
	Unconfirmed    int           // admitted without a response that confirmed the place
	MostActive     int           // admitted and active at a time
	Early          int           // admissions while Redis was stopped, or in the presence hold after
	Undelivered    int           // admissions that no guest received
	Excused        int           // how many of these may be: tickets that left the queue, and joins whose response was lost
}

// judge returns the judgement of the guests' records, given the times when Redis was stopped and the number of admissions that the
// room has counted.
func judge(o options, guests []*record, frozen []span, counted int) judgement {
	var j judgement
	slices.SortFunc(frozen, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	rate, _ := verdict.ToMilli(o.rate) // options were checked
	burst, _ := verdict.ToMilli(o.burst)

	var at []int64
	var queue, late []*record
	var all []verdict.Admission
	for _, g := range guests {
		j.Excused += g.lostJoins
		if g.at == 0 && g.left {
			j.Excused++
		}
		if g.at == 0 {
			if g.waiting && g.confirmed > 0 {
				queue = append(queue, g)
			}
			continue
		}
		at = append(at, g.at)
		queue = append(queue, g)
		switch {
		case !g.waited || g.confirmed == g.answered:
		case g.confirmed > 0:
			late = append(late, g)
		default:
			// Admitted before a confirmation: the order in its token is a gateway's estimate.
			j.Unconfirmed++
			continue
		}
		all = append(all, verdict.Admission{At: g.at, Order: g.order, Ordered: g.waited, Absent: g.absent || g.waited && g.confirmed != g.answered, Sent: g.sent, Answered: g.answered})
	}
	for i := range at {
		for _, s := range frozen {
			if at[i] > s.from && at[i] < s.to-grain {
				j.Early++ // while Redis was stopped
			}
			if s.to-s.from > gap.Microseconds() && at[i] >= s.to && at[i] < s.to+hold.Microseconds() {
				j.Early++
			}
		}
	}
	j.Undelivered = max(0, counted-len(at))
	room := make([]int64, len(at))
	for i := range at {
		room[i] = roomTime(at[i], frozen)
	}
	j.Rate = verdict.JudgeRate(room, rate, burst)
	j.Order = verdict.JudgeOrder(all)
	// Guests that still wait or were confirmed late are compared pair by pair. Such a guest was overtaken if a later order was
	// admitted first, after the store had confirmed the guest's place.
	j.Late = len(late)
	for _, x := range queue {
		xAt := x.at
		if xAt == 0 {
			xAt = math.MaxInt64
		} else if !slices.Contains(late, x) {
			continue
		}
		if x.absent {
			continue
		}
		for _, y := range queue {
			if y.at > 0 && y.at < xAt && y.at > x.confirmed && y.confirmed > 0 && y.order > x.order {
				j.LateOver++
				j.Examples = append(j.Examples, fmt.Sprintf("order %d, confirmed at %d, admitted at %d, after order %d (confirmed at %d, joined at %d) at %d",
					x.order, x.confirmed, x.at, y.order, y.confirmed, y.answered, y.at), strings.Join(x.trace, "\n\t"))
				break
			}
		}
	}
	j.MostActive = mostActive(guests)
	return j
}

// grain is the largest delay of a signal, in µs.
const grain = 1000

// roomTime converts a time of Redis's clock to room time, in which a silence over gap counts as one second. The room observes a
// slightly longer silence than the time between the two signals, so its own time is never ahead of the result.
func roomTime(at int64, frozen []span) int64 {
	t := at
	for _, s := range frozen {
		if length := s.to - s.from; length > gap.Microseconds() && at >= s.to {
			t -= length - 1_000_000
		}
	}
	return t
}

// mostActive returns the largest number of guests that were certainly admitted at once: from admitted_at until they left.
func mostActive(guests []*record) int {
	type event struct {
		at    int64
		delta int
	}
	var events []event
	for _, g := range guests {
		if g.at == 0 {
			continue
		}
		events = append(events, event{g.at, 1})
		if g.out > 0 {
			events = append(events, event{g.out, -1})
		}
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.delta, b.delta)) })
	n, most := 0, 0
	for _, e := range events {
		n += e.delta
		most = max(most, n)
	}
	return most
}

// broken returns the promises that were not kept.
func (j judgement) broken(o options) (out table.Broken) {
	out.If(!j.Rate.Kept(), "over the limit")
	out.If(!j.Order.Kept() || j.LateOver > 0, "out of order")
	out.If(o.maxActive > 0 && j.MostActive > o.maxActive, "over max_active")
	out.If(j.Early > 0, "admitted while Redis was stopped, or in the presence hold after")
	out.If(j.Undelivered > j.Excused, "admitted without a response")
	return out
}

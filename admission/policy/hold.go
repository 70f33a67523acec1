package policy

import "time"

const (
	// HoldSlack is how much later than advised a poll may come.
	HoldSlack = 10 * time.Second
	// leastPoll is the shortest advised polling interval, whatever the policy.
	leastPoll = 2 * time.Second
	// leastHold is the shortest presence hold.
	leastHold = 20 * time.Second
	// mostHold is the longest presence hold that the store records.
	mostHold = (1<<15 - 1) * time.Second
	// mostRest limits the part of a presence hold that covers polls without the store.
	mostRest = 10 * time.Minute
	// joinRest is that part for a ticket that has just joined.
	joinRest = 90 * time.Second
)

// A presence hold is the time for which a ticket counts as present after the store has seen it. It covers the next two polls
// and, behind the front of the queue, a quarter of the expected wait: polls in that time need no call of the store.
// A visitor who leaves silently is still admitted within it.

// LongestPoll returns the longest polling interval that may be advised: a visitor who polls at it keeps the place, with a
// quarter of Absence, and learns of the admission in time to claim it.
func (p *Policy) LongestPoll() time.Duration {
	return max(leastPoll, min(p.Absence/4, p.ClaimWindow-HoldSlack))
}

// Hold returns the presence hold of a ticket that the store checks now. front: it is in the front of the queue, where every poll
// is checked.
func (p *Policy) Hold(interval, wait time.Duration, front bool) time.Duration {
	rest := min(p.Absence/4, mostRest)
	if wait > 0 {
		rest = min(wait/4, rest)
	}
	if front {
		rest = 0
	}
	return holdFor(rest, interval)
}

// FrontHold returns the presence hold of a new ticket in the front of the queue.
func FrontHold(interval time.Duration) time.Duration { return holdFor(0, interval) }

// JoinHold returns the presence hold of a new ticket anywhere in the queue that polls first after interval.
func JoinHold(interval time.Duration) time.Duration { return holdFor(joinRest, interval) }

// PrequeueHold returns the presence hold of a ticket in a pre-queue: for a quarter of Absence polls need no call of the store,
// and each may advise the next one as much later.
func (p *Policy) PrequeueHold() time.Duration {
	return min((p.Absence/2 + HoldSlack).Truncate(time.Second), mostHold)
}

// Covers reports whether a presence hold that began age ago lasts until the poll that interval advises.
func Covers(hold, age, interval time.Duration) bool {
	return age+advised(interval)+HoldSlack <= hold
}

func holdFor(rest, interval time.Duration) time.Duration {
	d := rest + 2*advised(interval) + HoldSlack
	return min(max((d+time.Second-1).Truncate(time.Second), leastHold), mostHold)
}

// advised returns interval, or 10 s where a response advises none.
func advised(interval time.Duration) time.Duration {
	if interval <= 0 {
		return 10 * time.Second
	}
	return interval
}

package admission

import "time"

const (
	// HoldSlack is how late a poll may come after the time that it was advised for.
	HoldSlack = 10 * time.Second
	// leastPoll is the shortest interval that polls are advised at, whatever the policy.
	leastPoll = 2 * time.Second
	// leastHold is the shortest hold.
	leastHold = 20 * time.Second
	// Behind the front a check holds a ticket beyond its next polls for a quarter of the expected wait, at most mostRest.
	mostRest = 10 * time.Minute
	// joinRest is the same for a ticket that has just joined.
	joinRest = 90 * time.Second
	// mostHold is the longest that the store records.
	mostHold = (1<<15 - 1) * time.Second
)

// LongestPoll returns the longest polling interval that visitors may be advised: one who polls at it keeps the place, with a
// quarter of Absence, and learns of the admission in time to claim it.
func (p *Policy) LongestPoll() time.Duration {
	return max(leastPoll, min(p.Absence/4, p.ClaimWindow-HoldSlack))
}

// Hold returns for how long a ticket counts as present after a check by the store: for two more polls, and, unless it is near,
// for a part of the expected wait. Polls in the front are all checked; those behind it need no check until then. A visitor who
// leaves without a word is admitted unseen for as long.
func (p *Policy) Hold(interval, wait time.Duration, near bool) time.Duration {
	rest := min(p.Absence/4, mostRest)
	if wait > 0 {
		rest = min(wait/4, rest)
	}
	if near {
		rest = 0
	}
	return holdFor(rest, interval)
}

// joinHold is hold for a ticket that joins now and polls first after interval.
func joinHold(interval time.Duration) time.Duration { return holdFor(joinRest, interval) }

// gatherHold is hold for a ticket that gathers for a lottery: a poll may be answered without the store for a quarter of Absence,
// and advise the next one as much later.
func (p *Policy) gatherHold() time.Duration {
	return min((p.Absence/2 + HoldSlack).Truncate(time.Second), mostHold)
}

func holdFor(rest, interval time.Duration) time.Duration {
	d := rest + 2*advised(interval) + HoldSlack
	return min(max((d+time.Second-1).Truncate(time.Second), leastHold), mostHold)
}

// advised is the interval of an answer, 10 s where that advises none.
func advised(interval time.Duration) time.Duration {
	if interval <= 0 {
		return 10 * time.Second
	}
	return interval
}

// covers reports whether a ticket that was checked age ago stays present until the poll that the answer is about to advise.
func (t *Ticket) covers(age time.Duration) bool { return age+advised(t.Interval)+HoldSlack <= t.Hold }

// renew takes over what the store confirmed of the ticket.
func (t *Ticket) renew(by *Ticket) {
	t.Order, t.Seen, t.Hold, t.Heard, t.Epoch, t.Fence = by.Order, by.Seen, by.Hold, by.Heard, by.Epoch, by.Fence
}

package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A split group has a record, a part, on each of several shards, all with its id. A job is in the part that the hash of its id selects.
// The first part is that of the group's home: it decides whether the group is sealed, paused or cancelled, and ends the group, in
// one step each. The others follow it, and Join makes up for what a process left undone.

// checkSplit returns an error for a group that cannot be split.
func checkSplit(g *GroupSpec) error {
	n := float64(g.Split)
	switch {
	case g.ExpectedJobs < 0:
		return refuse(CodeInvalid, "expected %d: use the number of jobs", g.ExpectedJobs)
	case g.Split < 0 || g.Split > MaxShards:
		return refuse(CodeInvalid, "split %d: use 1 to the number of shards", g.Split)
	case g.Split <= 1:
		g.Split = 0
		return nil
	case g.Concurrency > 0 && g.Concurrency < int64(g.Split):
		return refuse(CodeInvalid, "concurrency %d: each of %d parts (split) needs one at least; use %d or more, or a smaller split", g.Concurrency, g.Split, g.Split)
	case g.Rate > 0 && g.Rate < 10*n:
		return refuse(CodeInvalid, "rate %v: each of %d parts (split) has a fixed part of it, and of its burst less than a job; use at least %d, or a smaller split", g.Rate, g.Split, 10*g.Split)
	}
	return nil
}

// splitAbove is the number of expected jobs above which a group is split, into parts of at most so many jobs where there are enough shards.
const splitAbove = 50_000

// splitFor returns into how many parts a group with expected jobs is split on so many shards: fewer if a limit of it could not be
// divided.
func (g *GroupSpec) splitFor(shards int) int {
	if g.ExpectedJobs <= splitAbove {
		return 0
	}
	n := min(int64(shards), (g.ExpectedJobs+splitAbove-1)/splitAbove)
	if g.Concurrency > 0 {
		n = min(n, g.Concurrency)
	}
	if g.Rate > 0 {
		n = min(n, int64(g.Rate/10))
	}
	if n < 2 {
		return 0
	}
	return int(n)
}

// partNumber returns the part for scripts, from 1; 0 for a whole group.
func (g *GroupSpec) partNumber() int {
	if g.Split < 2 {
		return 0
	}
	return g.Part + 1
}

// waitsForJobs reports whether the group has its callback only once it is sealed with jobs: a redrive that finds none is removed.
func (g *GroupSpec) waitsForJobs() bool { return g.Split > 1 && g.RedriveOf != "" }

// shardsOf returns the shards of the parts, nil for a whole group.
func (g *GroupSpec) shardsOf() ([]int, error) {
	if g.Split < 2 {
		return nil, nil
	}
	var all []int
	for word := range strings.FieldsSeq(g.Parts) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || n >= MaxShards {
			return nil, fmt.Errorf("group %q: cannot read the shards %q", g.ID, g.Parts)
		}
		all = append(all, n)
	}
	if len(all) != g.Split {
		return nil, fmt.Errorf("group %q: it has %d parts, on the shards %q", g.ID, g.Split, g.Parts)
	}
	return all, nil
}

// share returns what part i of n has of a number.
func share(whole int64, n, i int) int64 {
	if n < 2 {
		return whole
	}
	part := whole / int64(n)
	if int64(i) < whole%int64(n) {
		part++
	}
	return part
}

// ofPart returns the spec as the part i has it: limits are divided, and what concerns the whole group is with the first.
func (g *GroupSpec) ofPart(i int) GroupSpec {
	p := *g
	p.Part = i
	if i > 0 {
		p.CallbackURL, p.Unique, p.StopAt, p.MaxGroups = "", Unique{}, Tolerance{}, 0
	}
	return p
}

// wholeOf returns the rate and the concurrency of the group from those of one part: of a whole group, they are the same.
func (g *GroupSpec) wholeOf(rate, concurrency int64) (float64, int64) {
	if g.Split < 2 {
		return float64(rate) / 1000, concurrency
	}
	n := int64(g.Split)
	r, c := g.Rate, g.Concurrency
	if share(thousandths(r), g.Split, g.Part) != rate {
		r = float64(rate*n) / 1000
	}
	if share(c, g.Split, g.Part) != concurrency {
		c = concurrency * n
	}
	return r, c
}

// partOf returns the index of the part of a job among n.
func partOf(job string, n int) int { return int(rendezvous(job, MaxShards) % uint64(n)) }

// settled reports whether a part has nothing left to do: its jobs have ended, or it has.
func (g *Group) settled() bool {
	return g.Status == Aggregating || g.Status == Completed || g.Status == Failed || g.Status == Cancelled && g.swept > 0
}

// joined reports whether a part has ended with its group.
func (g *Group) joined() bool {
	return g.Status == Completed || g.Status == Failed || g.Status == Cancelled && g.swept > 1
}

// othersWords are the counts of the other parts, as the first part keeps them.
func othersWords(parts []*found) string {
	var total, succeeded, failed, dead, cancelled, throttles, gone int64
	for _, p := range parts {
		if p == nil {
			continue
		}
		total, succeeded, failed, dead, cancelled = total+p.Total, succeeded+p.Succeeded, failed+p.Failed, dead+p.Dead, cancelled+p.Cancelled
		throttles, gone = throttles+p.Throttles, gone+p.Gone
	}
	return fmt.Sprintf("%d %d %d %d %d %d %d", total, succeeded, failed, dead, cancelled, throttles, gone)
}

// joinCounts adds the counts that othersWords has.
func (g *Group) joinCounts(others string) {
	w := strings.Fields(others)
	if len(w) < 7 {
		return
	}
	for i, to := range []*int64{&g.Total, &g.Succeeded, &g.Failed, &g.Dead, &g.Cancelled, &g.Throttles, &g.Gone} {
		*to += asInt(w[i])
	}
	for _, word := range w[7:] { // shards that have lost their part
		g.Lost = append(g.Lost, int(asInt(word)))
	}
}

// merge adds the other parts to the first one. parts has nil for a part that was lost, or whose shard is away.
func (g *Group) merge(parts []*found) {
	all := true // parts have settled
	rate, slots := g.partRate, g.partSlots
	shards, _ := g.shardsOf()
	for i, p := range parts {
		switch {
		case i == 0: // that is g
			continue
		case p == nil:
			all = all && i < len(shards) && slices.Contains(g.Lost, shards[i])
			continue
		}
		g.mergePart(&p.Group)
		rate, slots = rate+p.partRate, slots+p.partSlots
		all = all && p.settled()
	}
	known := len(g.Away)+len(g.Lost) == 0 // else those of a part stand for the others
	if known && !g.lentRate {
		g.Rate = float64(rate) / 1000
	}
	if known && !g.lentSlots {
		g.Concurrency = slots
	}
	if g.Status == Cancelled { // jobs of the other parts are cancelled too, as soon as these have followed
		g.Cancelled = g.Total - g.Succeeded - g.Failed - g.Dead - g.InFlight
		g.Pending, g.NonReady, g.Ready, g.Unserved = 0, 0, 0, 0
	}
	if g.Status == Aggregating && !all || g.Status == Dispatched && !g.StartedAt.IsZero() {
		g.Status = Running
	}
}

func (g *Group) mergePart(p *Group) {
	g.Total, g.Pending, g.Ready, g.NonReady = g.Total+p.Total, g.Pending+p.Pending, g.Ready+p.Ready, g.NonReady+p.NonReady
	g.InFlight, g.Unserved = g.InFlight+p.InFlight, g.Unserved+p.Unserved
	g.Succeeded, g.Failed, g.Dead, g.Cancelled = g.Succeeded+p.Succeeded, g.Failed+p.Failed, g.Dead+p.Dead, g.Cancelled+p.Cancelled
	g.Throttles, g.Rate1, g.Expected = g.Throttles+p.Throttles, g.Rate1+p.Rate1, g.Expected+p.Expected
	g.Reduced, g.Redriven, g.Gone = g.Reduced+p.Reduced, g.Redriven+p.Redriven, g.Gone+p.Gone
	g.Backoff, g.Expired = max(g.Backoff, p.Backoff), g.Expired || p.Expired
	if !p.Gated && !p.settled() && g.Status != Cancelled {
		g.Gated, g.GatedBy, g.GatedUntil = false, "", time.Time{} // jobs of one part may start
	}
	if !p.StartedAt.IsZero() && (g.StartedAt.IsZero() || p.StartedAt.Before(g.StartedAt)) {
		g.StartedAt = p.StartedAt
	}
	if p.LastAddedAt.After(g.LastAddedAt) {
		g.LastAddedAt = p.LastAddedAt
	}
	if p.LastOutcomeAt.After(g.LastOutcomeAt) {
		g.LastOutcomeAt = p.LastOutcomeAt
	}
}

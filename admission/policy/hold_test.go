package policy

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestHold_CoversTheNextTwoPolls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := func(name string, least, most int) time.Duration {
			return time.Duration(rapid.IntRange(least*1000, most*1000).Draw(t, name)) * time.Millisecond
		}
		p := Policy{Absence: seconds("absence", 60, 86_400), ClaimWindow: seconds("claim window", 15, 3600)}
		interval, wait := min(seconds("interval", 0, 300), p.LongestPoll()), seconds("wait", 0, 86_400)
		for name, hold := range map[string]time.Duration{
			"front": p.Hold(interval, wait, true), "behind": p.Hold(interval, wait, false),
			"new in front": FrontHold(interval), "new": JoinHold(interval),
		} {
			if hold < leastHold || hold > mostHold || hold%time.Second != 0 {
				t.Fatalf("%s: hold %v", name, hold)
			}
			if !Covers(hold, advised(interval), interval) {
				t.Fatalf("%s: hold %v ends before the second poll at intervals of %v", name, hold, interval)
			}
		}
		if front, behind := p.Hold(interval, wait, true), p.Hold(interval, wait, false); front > behind {
			t.Fatalf("hold %v in the front, %v behind", front, behind)
		}
	})
}

func TestLongestPoll_LeavesTimeToClaim(t *testing.T) {
	for _, row := range []struct{ absence, window, want time.Duration }{
		{time.Minute, time.Hour, 15 * time.Second},
		{time.Hour, time.Minute, 50 * time.Second},
		{time.Hour, 11 * time.Second, leastPoll},
	} {
		p := Policy{Absence: row.absence, ClaimWindow: row.window}
		if got := p.LongestPoll(); got != row.want {
			t.Errorf("absence %v, claim_window %v: %v, want %v", row.absence, row.window, got, row.want)
		}
	}
}

func TestLocalRate_IsTheRoomsShareOfTheBudget(t *testing.T) {
	for _, row := range []struct{ rate, weights, want int64 }{
		{30_000, 4000, 20_000}, // a quarter of 80/s
		{5_000, 4000, 5_000},   // no more than the room's own
		{100_000, 0, 80_000},   // the only room
		{100_000, 500, 80_000}, // weights of the configuration that miss this room's
	} {
		p := Policy{Rate: row.rate, Burst: row.rate / 2, Budgeted: true, Budget: Budget{Rate: 80_000, Burst: 40_000, Weight: 1000, Weights: row.weights}}
		if p.LocalRate() != row.want || p.LocalBurst() != row.want/2 {
			t.Errorf("rate %d of weights %d: %d and a burst of %d, want %d and %d", row.rate, row.weights, p.LocalRate(), p.LocalBurst(), row.want, row.want/2)
		}
		if p.Budgeted = false; p.LocalRate() != p.Rate || p.LocalBurst() != p.Burst {
			t.Errorf("without a budget: %d and a burst of %d, want %d and %d", p.LocalRate(), p.LocalBurst(), p.Rate, p.Burst)
		}
	}
}

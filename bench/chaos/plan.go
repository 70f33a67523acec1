package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// what happens to a process.
type what uint8

const (
	kill   what = iota // SIGKILL, and a new start at the end
	pause              // SIGSTOP, SIGCONT at the end
	freeze             // the same, of Redis
)

// fault is something that happens to gateway number who, or to Redis.
type fault struct {
	what     what
	who      int
	at, last time.Duration
}

const (
	// gap is the silence that is taken out of room time (DESIGN §1), hold the time after it without admissions (§6).
	gap  = 5 * time.Second
	hold = 5 * time.Second
)

// schedule is a plan of faults for so long, the same for the same seed. At least half of the gateways run at any time.
// Two freezes a minute outlast gap, the others are short; between the end of a long one and the next fault of Redis the
// room has time to let somebody in.
func schedule(seed uint64, gateways int, length time.Duration) []fault {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the seed repeats the run
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)+1))
	}
	var plan []fault
	busy := make([]time.Duration, gateways) // until when a gateway is out
	for at := between(time.Second, 2*time.Second); at < length; at += between(300*time.Millisecond, 2*time.Second) {
		f := fault{what: kill, who: rng.IntN(gateways), at: at, last: between(100*time.Millisecond, 3*time.Second)}
		if rng.IntN(4) == 0 {
			f.what = pause
		}
		out := 0
		for _, until := range busy {
			if until > at {
				out++
			}
		}
		if busy[f.who] > at || out >= gateways/2 || f.at+f.last > length {
			continue
		}
		// A start takes a while.
		busy[f.who] = f.at + f.last + 500*time.Millisecond
		plan = append(plan, f)
	}
	short := func() time.Duration { return between(300*time.Millisecond, 2*time.Second) }
	for at, n := between(2*time.Second, 4*time.Second), 0; at < length; n++ {
		f := fault{what: freeze, at: at, last: short()}
		rest := between(time.Second, 4*time.Second)
		if n%4 == 1 {
			f.last = between(gap+300*time.Millisecond, gap+3*time.Second)
			rest += hold
		}
		if f.at+f.last > length {
			break
		}
		plan = append(plan, f)
		at += f.last + rest
	}
	slices.SortStableFunc(plan, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	return plan
}

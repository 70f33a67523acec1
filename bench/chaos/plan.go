package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// kind is the kind of a fault.
type kind uint8

const (
	kill   kind = iota // SIGKILL, and a restart at the end
	pause              // SIGSTOP, SIGCONT at the end
	freeze             // the same, for Redis
)

// fault is a fault of a gateway, by its number, or of Redis.
type fault struct {
	kind       kind
	gateway    int
	at, length time.Duration
}

const (
	// Room time stops while Redis is silent for longer than gap. For the time hold after that no visitor is admitted, so
	// that visitors who poll can become present again.
	gap  = 5 * time.Second
	hold = 5 * time.Second
)

// schedule returns the plan of a seed. At least half of the gateways run at any time. Two freezes a minute are longer than
// gap, the others are short; between a long one and the next fault of Redis there is time for admissions.
func schedule(seed uint64, gateways int, length time.Duration) []fault {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the seed repeats the run
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)+1))
	}
	var plan []fault
	busy := make([]time.Duration, gateways) // until when a gateway is down
	for at := between(time.Second, 2*time.Second); at < length; at += between(300*time.Millisecond, 2*time.Second) {
		f := fault{kind: kill, gateway: rng.IntN(gateways), at: at, length: between(100*time.Millisecond, 3*time.Second)}
		if rng.IntN(4) == 0 {
			f.kind = pause
		}
		out := 0
		for _, until := range busy {
			if until > at {
				out++
			}
		}
		if busy[f.gateway] > at || out >= gateways/2 || f.at+f.length > length {
			continue
		}
		busy[f.gateway] = f.at + f.length + 500*time.Millisecond // with the time to start
		plan = append(plan, f)
	}
	short := func() time.Duration { return between(300*time.Millisecond, 2*time.Second) }
	for at, n := between(2*time.Second, 4*time.Second), 0; at < length; n++ {
		f := fault{kind: freeze, at: at, length: short()}
		rest := between(time.Second, 4*time.Second)
		if n%4 == 1 {
			f.length = between(gap+300*time.Millisecond, gap+3*time.Second)
			rest += hold
		}
		if f.at+f.length > length {
			break
		}
		plan = append(plan, f)
		at += f.length + rest
	}
	slices.SortStableFunc(plan, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	return plan
}

package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/visitor"
)

// crowd is the guests and what they count.
type crowd struct {
	o       options
	clients []*visitor.Client // one for each gateway
	guests  []*guest

	table.Counts
	counts report // so far; report completes the rest
	times  []time.Duration
}

func newCrowd(o options, gateways []*rig.Gateway) *crowd {
	c := &crowd{o: o, counts: report{Seed: o.seed, Gateways: o.gateways, Visitors: o.visitors,
		Wrong: table.Causes{}, Lost: table.Causes{}, Doubles: table.Causes{}, Odd: table.Causes{}}}
	for _, g := range gateways {
		c.clients = append(c.clients, rig.Must(visitor.New(visitor.Options{URLs: []string{g.URL()}, Room: "sale", Connections: 512, Timeout: 3 * time.Second})))
	}
	rng := rand.New(rand.NewPCG(o.seed, 2)) //nolint:gosec // the seed repeats the run
	for range o.visitors {
		g := &guest{crowd: c, rng: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))} //nolint:gosec // likewise
		g.cred.Cookies = g.rng.IntN(2) == 0
		if g.rng.IntN(5) > 0 {
			var key [16]byte
			for i := range key {
				key[i] = byte(g.rng.Uint32())
			}
			g.cred.Key = hex.EncodeToString(key[:])
		}
		g.habits.leaves = g.rng.IntN(12) == 0
		// Clients without cookies on one machine are one client: they cannot rob each other.
		g.habits.copied = g.cred.Cookies && !g.habits.leaves && g.rng.IntN(3) == 0
		g.habits.repeats = g.rng.IntN(3) == 0
		c.guests = append(c.guests, g)
	}
	return c
}

// arrivals returns when the guests arrive: a fifth at once, two more waves of as many, the rest evenly.
func (c *crowd) arrivals(length time.Duration) []time.Duration {
	rng := rand.New(rand.NewPCG(c.o.seed, 4)) //nolint:gosec // the seed repeats the run
	waves := []time.Duration{0, time.Duration(rng.Int64N(int64(length / 2))), time.Duration(rng.Int64N(int64(length / 2)))}
	at := make([]time.Duration, len(c.guests))
	for i := range at {
		if n := rng.IntN(5); n < len(waves) {
			at[i] = waves[n] + time.Duration(rng.Int64N(int64(time.Second)))
		} else {
			at[i] = time.Duration(rng.Int64N(int64(length * 4 / 5)))
		}
	}
	slices.Sort(at)
	return at
}

// run returns when all visits have ended or ctx ends.
func (c *crowd) run(ctx context.Context) {
	began := time.Now()
	var all sync.WaitGroup
	for i, at := range c.arrivals(c.o.duration) {
		if !rig.Sleep(ctx, time.Until(began.Add(at))) {
			break
		}
		all.Go(func() { c.guests[i].visit(ctx) })
	}
	all.Wait()
}

// pollRemaining polls, after all faults, the tickets that still wait and those that left the queue.
func (c *crowd) pollRemaining(ctx context.Context) {
	var all sync.WaitGroup
	for _, g := range c.guests {
		switch {
		case g.waiting && g.cred.Token != "":
			// A gateway checks a ticket once a second: a response that was lost is repeated after that.
			all.Go(func() {
				for range 3 {
					if !g.poll(ctx) || g.at != 0 || !rig.Sleep(ctx, 1500*time.Millisecond) {
						return
					}
				}
			})
		case g.left:
			all.Go(func() {
				a, ok := g.ask(ctx, func(v *visitor.Client) (visitor.Response, error) { return v.Status(&g.cred) })
				// If the response to a claim was lost, the ticket was a session before it left.
				if !ok || a.Status.State == "ended" || a.Status.State == "active" {
					return
				}
				// The store does not remember a ticket that left before the store held it.
				if g.confirmed == 0 {
					c.odd("a ticket that the store never confirmed left the queue and is " + a.Status.State)
				} else {
					c.double("a ticket that left the queue is %s", a.Status.State)
					c.explain(g)
				}
			})
		}
	}
	all.Wait()
}

func (c *crowd) close() {
	for _, v := range c.clients {
		v.Close()
	}
}

func (c *crowd) fault(format string, args ...any) {
	c.Note(c.counts.Wrong, fmt.Sprintf(format, args...), 1)
}
func (c *crowd) lose(format string, args ...any) {
	c.Note(c.counts.Lost, fmt.Sprintf(format, args...), 1)
}
func (c *crowd) double(format string, args ...any) {
	c.Note(c.counts.Doubles, fmt.Sprintf(format, args...), 1)
}
func (c *crowd) odd(what string) { c.Note(c.counts.Odd, what, 1) }

func (c *crowd) took(d time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.times = append(c.times, d)
}

// explain stores the trace of a guest with a wrong response; three are enough.
func (c *crowd) explain(g *guest) {
	c.Lock()
	defer c.Unlock()
	if len(c.counts.Traces) < 3 {
		c.counts.Traces = append(c.counts.Traces, fmt.Sprintf("ticket %s, cookies %t, nonce %t, key %t\n\t%s", g.ticket, g.cred.Cookies, g.cred.Nonce != "", g.cred.Key != "", strings.Join(g.trace, "\n\t")))
	}
}

package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/visitor"
)

// crowd is the guests and what broke while they came.
type crowd struct {
	o       options
	clients []*visitor.Client // one a gateway
	guests  []*guest

	in, polls, passes, repeated, robbed, unanswered atomic.Int64

	mu      sync.Mutex
	wrong   map[string]int // answers that no fault excuses
	lost    map[string]int // places
	doubles map[string]int // tickets spent twice
	odd     map[string]int // refusals that were tried again
	times   []time.Duration
	traces  []string
}

func newCrowd(o options, addrs []string) (*crowd, error) {
	c := &crowd{o: o, wrong: map[string]int{}, lost: map[string]int{}, doubles: map[string]int{}, odd: map[string]int{}}
	for _, addr := range addrs {
		v, err := visitor.New(visitor.Options{URLs: []string{"http://" + addr}, Room: "sale", Connections: 512, Timeout: 3 * time.Second})
		if err != nil {
			return nil, err
		}
		c.clients = append(c.clients, v)
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
		g.leaves = g.rng.IntN(12) == 0
		// Clients without cookies on one machine are one client: they cannot rob each other.
		g.copied = g.cred.Cookies && !g.leaves && g.rng.IntN(3) == 0
		g.repeats = g.rng.IntN(3) == 0
		c.guests = append(c.guests, g)
	}
	return c, nil
}

// arrivals are when the guests come: a fifth at once, two waves of as many, the rest evenly.
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

// run sends the guests; it returns when all are through or ctx ends.
func (c *crowd) run(ctx context.Context) {
	began := time.Now()
	var all sync.WaitGroup
	for i, at := range c.arrivals(c.o.duration) {
		if !sleep(ctx, time.Until(began.Add(at))) {
			break
		}
		all.Go(func() { c.guests[i].visit(ctx) })
	}
	all.Wait()
}

// last asks, when all faults are over, where those stand who still waited, and tries the tickets that were given up.
func (c *crowd) last(ctx context.Context) {
	var all sync.WaitGroup
	for _, g := range c.guests {
		switch {
		case g.waiting && g.cred.Token != "":
			// An answer that was lost meanwhile comes with the next: a gateway looks a ticket up once a second.
			all.Go(func() {
				for range 3 {
					if !g.poll(ctx) || g.at != 0 || !sleep(ctx, 1500*time.Millisecond) {
						return
					}
				}
			})
		case g.left:
			all.Go(func() {
				a, ok := g.ask(ctx, func(v *visitor.Client) (visitor.Answer, error) { return v.Status(&g.cred) })
				// Where the answer to a claim was lost it had become a session before.
				if !ok || a.Status.State == "ended" || a.Status.State == "active" {
					return
				}
				// A ticket that joined while the store was away and was given up before the store knew it leaves nothing behind.
				if g.confirmed == 0 {
					c.note("a ticket that the store never confirmed was given up and is " + a.Status.State)
				} else {
					c.double("a ticket that was given up is %s", a.Status.State)
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
	http.DefaultClient.CloseIdleConnections()
}

func (c *crowd) count(in map[string]int, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key := fmt.Sprintf(format, args...); in[key] > 0 || len(in) < 100 {
		in[key]++
	}
}

func (c *crowd) fault(format string, args ...any)  { c.count(c.wrong, format, args...) }
func (c *crowd) lose(format string, args ...any)   { c.count(c.lost, format, args...) }
func (c *crowd) double(format string, args ...any) { c.count(c.doubles, format, args...) }
func (c *crowd) note(what string)                  { c.count(c.odd, "%s", what) }

func (c *crowd) took(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times = append(c.times, d)
}

// explain keeps what a few of those were told who were treated wrongly.
func (c *crowd) explain(g *guest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.traces) < 3 {
		c.traces = append(c.traces, fmt.Sprintf("ticket %s, cookies %t, key %t\n\t%s", g.place.ID, g.cred.Cookies, g.cred.Key != "", strings.Join(g.trace, "\n\t")))
	}
}

// quantile of the times of answers.
func (c *crowd) quantile(q float64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.times) == 0 {
		return 0
	}
	slices.Sort(c.times)
	return c.times[int(q*float64(len(c.times)-1))]
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/rig"
)

// span is a time in which Redis was stopped, in µs of this machine's clock, which is also Redis's.
type span struct{ from, to int64 }

// fleet is one Redis, or three under sentinels, and the gateways over it.
type fleet struct {
	program  string
	redis    *rig.Redis // nil with a trio
	trio     *trio
	gateways []*rig.Gateway
	turn     []sync.Mutex // of each gateway, held during a fault

	mu      sync.Mutex // guards the rest, and gateways[i].Child
	frozen  []span
	crashes []string // logs with a programming error
	stopped bool
	counts  struct{ kills, pauses, short, long, failed int }
}

// crash matches the log of a programming error.
var crash = regexp.MustCompile(`DATA RACE|(?m)^panic:|fault in a request|fatal error:`)

func startFleet(r *rig.Run, o options) *fleet {
	f := &fleet{program: o.gateway, turn: make([]sync.Mutex, o.gateways)}
	var url string
	if o.store == "sentinels" {
		f.trio = startTrio(r)
		url = f.trio.url
	} else {
		f.redis = r.Redis()
		url = f.redis.URL()
	}
	settings := rig.SharedStore(url) + fmt.Sprintf(`origins: [{id: site, servers: ["http://%s"]}]
rooms:
  - {id: sale, origin: site, admission: {rate: %g, burst: %g, max_active: %d}, session: {ttl: 1m}, guard: {joins_per_ip: ""}}
`, r.Serve(rig.Site), o.rate, o.burst, o.maxActive)
	r.Cleanup(f.stop)
	for range o.gateways {
		f.gateways = append(f.gateways, r.Gateway(o.gateway, settings))
	}
	return f
}

// end kills a gateway and reads its log. mu is held.
func (f *fleet) end(g *rig.Gateway) {
	g.Kill()
	if log := g.Log.String(); crash.MatchString(log) {
		f.crashes = append(f.crashes, g.Config+":\n"+log)
	}
}

// stop kills all gateways. It may be called again.
func (f *fleet) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.stopped = true
		for _, g := range f.gateways {
			f.end(g)
		}
	}
}

// run inflicts the faults of a plan, which may overlap, and returns when all have ended and everything runs.
func (f *fleet) run(ctx context.Context, plan []fault) error {
	began := time.Now()
	var faults errgroup.Group
	for _, p := range plan {
		if !rig.Sleep(ctx, time.Until(began.Add(p.at))) {
			break
		}
		faults.Go(func() error { return f.inflict(ctx, p) })
	}
	return faults.Wait()
}

// inflict begins a fault, waits and ends it, also when ctx has ended.
func (f *fleet) inflict(ctx context.Context, p fault) error {
	if p.kind == fail {
		f.mu.Lock()
		f.counts.failed++
		f.mu.Unlock()
		return f.trio.fail(ctx, p.gateway%2 == 0)
	}
	if p.kind == freeze {
		if err := f.redis.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		from := time.Now()
		rig.Sleep(ctx, p.length)
		to := time.Now()
		f.mu.Lock()
		f.frozen = append(f.frozen, span{from.UnixMicro(), to.UnixMicro()})
		if to.Sub(from) > gap {
			f.counts.long++
		} else {
			f.counts.short++
		}
		f.mu.Unlock()
		return f.redis.Signal(syscall.SIGCONT)
	}
	f.turn[p.gateway].Lock() // on a slow machine the fault before may not have ended
	defer f.turn[p.gateway].Unlock()
	g := f.gateways[p.gateway]
	if p.kind == pause {
		f.mu.Lock()
		f.counts.pauses++
		f.mu.Unlock()
		if err := g.Signal(syscall.SIGSTOP); err != nil {
			return fmt.Errorf("gateway %d: %w\n%s", p.gateway, err, g.Log)
		}
		rig.Sleep(ctx, p.length)
		return g.Signal(syscall.SIGCONT)
	}
	select {
	case <-g.Ended():
		return fmt.Errorf("gateway %d exited by itself:\n%s", p.gateway, g.Log)
	default:
	}
	f.mu.Lock()
	f.end(g)
	f.counts.kills++
	f.mu.Unlock()
	rig.Sleep(ctx, p.length)
	c, err := rig.Start("gateway", f.program, "serve", "--config", g.Config)
	if err != nil {
		return err
	}
	f.mu.Lock()
	g.Child = c
	f.mu.Unlock()
	return nil
}

// admissions returns how many admissions the room has counted, from the first gateway that responds.
func (f *fleet) admissions(ctx context.Context) (n float64, err error) {
	for _, g := range f.gateways {
		if n, err = g.Metric(ctx, "anteroom_admissions_total", `room="sale"`); err == nil {
			break
		}
	}
	return n, err
}

// check returns an error for each gateway that has not recovered from the faults.
func (f *fleet) check(ctx context.Context) (failed []string) {
	for i, g := range f.gateways {
		up, err := g.Metric(ctx, "anteroom_store_up")
		age, err2 := g.Metric(ctx, "anteroom_snapshot_age_seconds", `room="sale"`)
		if up != 1 || age > 2 || err != nil || err2 != nil {
			failed = append(failed, fmt.Sprintf("gateway %d at the end: store_up %g, snapshot %.1f s old %v %v\n%s", i, up, age, err, err2, g.Log))
		}
	}
	return failed
}

// kind is the kind of a fault.
type kind uint8

const (
	kill   kind = iota // SIGKILL, and a restart at the end
	pause              // SIGSTOP, SIGCONT at the end
	freeze             // the same, for Redis
	fail               // the master is killed or stopped, until a replica has been promoted
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

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/anteroom/anteroom/bench/load"
	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

// With checkAbsence, renewals are due within a minute of the fill.
const (
	checkAbsence = 4 * time.Minute
	checkRate    = 20
)

// check fills queues, keeps them polling, and prints what they take beside what is calculated.
func check(r *rig.Run, c *Calibration, o options) {
	fmt.Fprintf(r.Out, "\nMeasured with one gateway and a redis-server on this machine (absence %s, %d admitted a second who do not shop; %s of polling; load %s):\n\n",
		checkAbsence, checkRate, o.window, rig.LoadAverage())
	for _, n := range o.check {
		var m Outcome
		var admitted float64
		rig.Check(rig.Do(r, r.Out, func(r *rig.Run) { m, admitted = measure(r, o, n) }))
		room := Room{Waiting: float64(n), Rate: checkRate, Absence: checkAbsence, Claim: 5 * time.Minute, Budget: 20_000, Visit: 450 * time.Second, TTL: 5 * time.Minute, Gateways: 1, Cores: 2}
		u := room.Outcome(c)
		u.RedisMem = c.RedisBase + room.Waiting*c.at(room.Waiting).Bytes + admitted*c.Gone // no ticket has been forgotten yet
		w := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "%s waiting\tsimulated\tmeasured\terror\t\n", table.Number(float64(n)))
		for _, row := range []struct {
			name      string
			sim, real float64
		}{
			{"polls/s", u.Polls, m.Polls}, {"scripts/s", u.Calls, m.Calls}, {"store commands/s", u.Commands, m.Commands},
			{"Redis CPU, % of a core", 100 * u.RedisCPU, 100 * m.RedisCPU}, {"Redis memory, MB", u.RedisMem / 1e6, m.RedisMem / 1e6},
			{"to Redis, Mbit/s", mbit(u.RedisIn), mbit(m.RedisIn)}, {"from Redis, Mbit/s", mbit(u.RedisOut), mbit(m.RedisOut)},
			{"gateway CPU, % of a core", 100 * u.CPU, 100 * m.CPU}, {"gateway memory, MB", u.Memory / 1e6, m.Memory / 1e6},
		} {
			fmt.Fprintf(w, "%s\t%s\t%s\t%+.0f %%\t\n", row.name, table.Number(row.sim), table.Number(row.real), 100*(row.sim/row.real-1))
		}
		fmt.Fprintln(w, "\t\t\t\t")
		rig.Check(w.Flush())
	}
}

// measure fills a queue and measures it when its polls have spread: a longest polling interval after the fill. It also
// returns how many visitors were admitted.
func measure(r *rig.Run, o options, n int) (m Outcome, admitted float64) {
	redis := r.Redis()
	g := r.Gateway(o.gateway, rig.SharedStore(redis.URL())+fmt.Sprintf(`origins: [{id: site, servers: ["http://%s"]}]
rooms: [{id: line, paths: ["/"], origin: site, admission: {rate: %d}, queue: {absence: %s}}]
`, r.Serve(rig.Site), checkRate, checkAbsence))
	opened := time.Now()
	filling, cancel := context.WithCancel(r)
	ended, end := context.WithCancelCause(context.Background())
	tokens := filepath.Join(r.Dir, "tokens")
	go func() {
		var report load.FillReport
		end(fmt.Errorf("the fill ended early: %w", rig.Report(filling, &report, o.loadgen, "fill", "--json", "--url", g.URL(), "--room", "line",
			"--tickets", fmt.Sprint(n), "--connections", "512", "--sample", "0", "--tokens-out", tokens, "--hold", "1h", "--timeout", "15m")))
	}()
	r.Cleanup(func() { cancel(); <-ended.Done() })
	for { // the file is written when all tickets are in the store
		if _, err := os.Stat(tokens); err == nil {
			break
		}
		r.Wait(100 * time.Millisecond)
		rig.Check(context.Cause(ended))
	}
	rig.Say("%d tickets have joined and poll", n)
	r.Wait(checkAbsence/4 + 5*time.Second)
	type counts struct {
		redis rig.Stats
		polls float64
		cpu   time.Duration
	}
	count := func() counts {
		return counts{rig.Must(redis.Stats(r)), rig.Must(g.Metric(r, "anteroom_requests_total", `room="line"`)), rig.Must(rig.CPU(g.PID()))}
	}
	before := count()
	r.Wait(o.window)
	after := count()
	d := after.redis.Since(before.redis)
	s := after.redis.At.Sub(before.redis.At).Seconds()
	return Outcome{
		Polls: (after.polls - before.polls) / s, Calls: float64(d.Calls) / s, Commands: float64(d.Commands) / s, RedisCPU: d.CPU.Seconds() / s,
		RedisMem: float64(after.redis.Memory - after.redis.Clients), RedisIn: float64(d.In) / s, RedisOut: float64(d.Out) / s,
		CPU: (after.cpu - before.cpu).Seconds() / s, Memory: float64(rig.Must(rig.Memory(g.PID()))),
	}, checkRate * time.Since(opened).Seconds()
}

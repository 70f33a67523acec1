// Command chaos admits visitors to one room through several gateways over one Redis, while gateways are killed, stopped and
// restarted and Redis is stopped at random. It then judges what the visitors received: never over the limit, in order, no
// place lost, no ticket spent twice. With --store sentinels, masters fail instead, and replicas are promoted. The seed that it
// prints repeats the faults.
package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

func main() { rig.Main(command()) }

type options struct {
	gateway     string
	store       string // redis or sentinels
	gateways    int
	duration    time.Duration // of the faults
	drain       time.Duration // after them, for visitors that still wait
	seed        uint64
	visitors    int
	rate, burst float64
	maxActive   int
}

func command() *cobra.Command {
	var o options
	var cmd *cobra.Command
	cmd = rig.Command("chaos", "Admit visitors through several gateways while they and Redis are killed and stopped, and judge the result", "", func(r *rig.Run) {
		rig.Require(o.gateways >= 2 && o.duration >= 5*time.Second && o.visitors >= 1 && o.rate > 0 && o.burst >= 1 && o.maxActive >= 0 && o.drain >= time.Second,
			"--gateways %d, --duration %s, --drain %s, --visitors %d, --rate %g, --burst %g, --max-active %d: want at least 2 gateways, 5s, 1s and a visitor, a rate above 0 and a burst of at least 1",
			o.gateways, o.duration, o.drain, o.visitors, o.rate, o.burst, o.maxActive)
		rig.Require(o.store == "redis" || o.store == "sentinels", "--store %q: want redis or sentinels", o.store)
		if !cmd.Flags().Changed("seed") {
			o.seed = rand.Uint64() >> 32 //nolint:gosec // it identifies a run
		}
		report := run(r, o)
		rig.Check(report.print(r.Out))
		rig.Require(len(report.Broken) == 0, "not kept with --seed %d: %q", o.seed, report.Broken)
	})
	f := cmd.Flags()
	f.StringVar(&o.gateway, "gateway", "bin/gateway", "the gateway's program")
	f.StringVar(&o.store, "store", "redis", "redis, which is stopped, or sentinels: the master of three servers fails, at most every 12 s")
	f.IntVar(&o.gateways, "gateways", 8, "how many")
	f.DurationVar(&o.duration, "duration", time.Minute, "how long there are faults")
	f.DurationVar(&o.drain, "drain", 15*time.Second, "how long waiting visitors poll after that")
	f.Uint64Var(&o.seed, "seed", 0, "repeats the faults and the visitors' behaviour; random if not given")
	f.IntVar(&o.visitors, "visitors", 1500, "how many arrive")
	f.Float64Var(&o.rate, "rate", 40, "the room's rate, a second")
	f.Float64Var(&o.burst, "burst", 20, "the room's burst")
	f.IntVar(&o.maxActive, "max-active", 150, "the room's max_active; 0: no limit")
	return cmd
}

// report is the result of a run.
type report struct {
	Seed                    uint64
	Gateways, Kills, Pauses int     // Pauses: gateways that were stopped
	Short, Long, Failed     int     // times that Redis was stopped, up to 2 s and over 5 s, and that a master failed
	Frozen                  float64 // seconds that Redis was stopped
	Visitors, Left, Waiting int     // Left: left the queue; Waiting: still wait
	Admitted, Robbed        int64   // Robbed: the session was taken with a copied token
	Polls, Passes, Repeated int64   // requests: polls, with a pass, and repeated claims
	Unanswered              int64   // requests
	P50, P99                float64 // of responses, in ms
	Judgement               judgement
	Lost, Doubles, Wrong    table.Causes // places, tickets that were spent twice, responses
	Odd                     table.Causes // refusals that were tried again
	Traces                  []string     // of a few visitors with a wrong response
	Broken                  table.Broken // promises
}

func run(r *rig.Run, o options) report {
	f := startFleet(r, o)
	c := newCrowd(o, f.gateways)
	defer c.close()
	crowded, end := context.WithCancel(r)
	defer end()
	done := make(chan struct{})
	go func() { c.run(crowded); close(done) }()
	plan := schedule(o.seed, o.gateways, o.duration)
	if f.trio != nil {
		plan = failovers(plan)
	}
	err := f.run(r, plan)
	if err == nil {
		select {
		case <-done:
		case <-time.After(o.drain):
		case <-r.Done():
		}
	}
	end()
	<-done
	rig.Check(err)
	rig.Check(r.Err())
	counted := rig.Must(f.admissions(r))
	for _, failed := range f.check(r) {
		c.fault("%s", failed)
	}
	asking, cancel := context.WithTimeout(r, 30*time.Second)
	c.pollRemaining(asking)
	cancel()
	f.stop()
	for _, log := range f.crashes {
		c.fault("a programming error in a gateway: %s", log)
	}
	rig.Check(r.Err())
	return c.report(f, int(counted))
}

// report judges the run, given how many admissions the room has counted.
func (c *crowd) report(f *fleet, counted int) report {
	r := c.counts
	r.Kills, r.Pauses, r.Short, r.Long, r.Failed = f.counts.kills, f.counts.pauses, f.counts.short, f.counts.long, f.counts.failed
	r.P50, r.P99 = float64(table.Quantile(c.times, 0.5))/1e6, float64(table.Quantile(c.times, 0.99))/1e6
	for _, s := range f.frozen {
		r.Frozen += float64(s.to-s.from) / 1e6
	}
	var records []*record
	for _, g := range c.guests {
		records = append(records, &g.record)
		if g.left {
			r.Left++
		} else if g.at == 0 && g.waiting {
			r.Waiting++
		}
	}
	r.Judgement = judge(c.o, records, f.frozen, counted)
	r.Broken = r.Judgement.broken(c.o)
	r.Broken.If(len(r.Lost) > 0, "places were lost")
	r.Broken.If(len(r.Doubles) > 0, "tickets were spent twice")
	r.Broken.If(len(r.Wrong) > 0, "wrong answers")
	slices.Sort(r.Broken)
	return r
}

func (r report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	row := func(what, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", what, fmt.Sprintf(format, args...)) }
	row("seed", "%d", r.Seed)
	row("faults", "%d gateways: %d killed (kill -9), %d stopped; Redis stopped %d times up to 2 s, %d times over 5 s, %.1f s in all; %d failovers",
		r.Gateways, r.Kills, r.Pauses, r.Short, r.Long, r.Frozen, r.Failed)
	row("visitors", "%d: %d admitted, %d left the queue, %d still waiting", r.Visitors, r.Admitted+r.Robbed, r.Left, r.Waiting)
	row("requests", "%d polls, %d with a pass, %d repeated claims; %d without a response; p50 %.1f ms, p99 %.0f ms",
		r.Polls, r.Passes, r.Repeated, r.Unanswered, r.P50, r.P99)
	j := r.Judgement
	row("over-admissions", "%.3f in any interval of room time; fullest second %d of %d", j.Rate.Excess, j.Rate.MaxInSecond, j.Rate.Allowed)
	row("admitted + active", "%d at most", j.MostActive)
	row("order", "%d compared (%d admitted immediately): %d inversions, %d queue jumps; %d joined without the store, %d of these and of the waiting were overtaken; %d never received their order",
		j.Order.Compared, j.Order.AtOnce, j.Order.Inversions, j.Order.Queuejumps, j.Late, j.LateOver, j.Unconfirmed)
	for _, e := range j.Examples {
		row("  ", "%s", e)
	}
	row("while Redis was stopped, or in the presence hold after", "%d admissions", j.Early)
	row("admissions that no visitor received", "%d (%d are possible: left the queue, or a join without a key lost its response)", j.Undelivered, j.Excused)
	row("copied tokens", "%d sessions went to the copy, %d twice", r.Robbed, r.Doubles.Sum())
	row("lost places", "%d", r.Lost.Sum())
	for _, causes := range []table.Causes{r.Lost, r.Doubles, r.Wrong, r.Odd} {
		causes.Print(w, "  %[2]s\t%[1]d times\n")
	}
	for _, t := range r.Traces {
		fmt.Fprintln(w, t)
	}
	return w.Flush()
}

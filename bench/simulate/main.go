// Command simulate calculates what a long queue takes, from ten thousand to ten million waiting: gateways, store commands,
// processor time, memory and network. It applies the rules that the gateway follows to the measured costs of each operation
// in calibration.json. With --check it fills real queues and compares.
package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

func main() { rig.Main(command()) }

type options struct {
	gateway, loadgen string
	calibration      string
	lengths, check   []int
	window           time.Duration
	room             Room
	within, opening  time.Duration
}

func command() *cobra.Command {
	var o options
	cmd := rig.Command("simulate", "Calculate what a long queue takes: gateways, store commands, processor time, memory, network",
		`The costs of operations are those that were measured on an idle machine of two cores, or those in the file --calibration. With --check,
queues of these lengths are filled and polled, and what they take is printed beside what is calculated.`,
		func(r *rig.Run) {
			rig.Require(o.within > 0 && o.opening > 0 && o.room.Absence >= 3*time.Minute && o.room.Claim >= 15*time.Second && o.room.Budget >= 1 && o.room.Cores > 0 && o.room.TTL > 0 && o.window > 0 && o.room.Requests >= 0,
				"--within %s, --opening %s, --absence %s, --claim-window %s, --budget %d, --cores %v, --ttl %s, --window %s, --requests %v: want more than 0, an absence of 3m or more, a claim window of 15s or more, requests of 0 or more",
				o.within, o.opening, o.room.Absence, o.room.Claim, o.room.Budget, o.room.Cores, o.room.TTL, o.window, o.room.Requests)
			c := rig.Must(loadCalibration(o.calibration))
			tables(r.Out, c, o)
			if len(o.check) > 0 {
				check(r, c, o)
			}
		})
	f := cmd.Flags()
	f.StringVar(&o.gateway, "gateway", "bin/gateway", "the gateway's program")
	f.StringVar(&o.loadgen, "loadgen", "bin/loadgen", "the load generator's program")
	f.StringVar(&o.calibration, "calibration", "", "read the costs of operations from this file, in the form of bench/simulate/calibration.json")
	f.IntSliceVar(&o.lengths, "waiting", []int{10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000}, "queue lengths")
	f.IntSliceVar(&o.check, "check", nil, "queue lengths that are filled and compared")
	f.DurationVar(&o.window, "window", 70*time.Second, "how long a filled queue is measured; at least the longest polling interval")
	f.DurationVar(&o.within, "within", 2*time.Hour, "every visitor is admitted within: the rate is the length of the queue over it")
	f.DurationVar(&o.opening, "opening", 5*time.Minute, "at the opening all visitors arrive within")
	f.DurationVar(&o.room.Absence, "absence", 10*time.Minute, "queue.absence")
	f.DurationVar(&o.room.Claim, "claim-window", 5*time.Minute, "queue.claim_window")
	f.IntVar(&o.room.Budget, "budget", 20_000, "poll_budget")
	f.DurationVar(&o.room.Visit, "visit", 5*time.Minute, "how long an admitted visitor uses the site")
	f.Float64Var(&o.room.Requests, "requests", 0.2, "requests a second of an admitted visitor, images and scripts included")
	f.DurationVar(&o.room.TTL, "ttl", 5*time.Minute, "session.ttl")
	f.Float64Var(&o.room.Cores, "cores", 2, "of a gateway's machine; three fifths are planned with")
	f.BoolVar(&o.room.Direct, "direct", false, "visitors connect to the gateways and not to a balancer in front of them")
	return cmd
}

// scenario returns the room with a queue of that length, in which every visitor is admitted within some time.
func (o options) scenario(waiting int) Room {
	r := o.room
	r.Waiting = float64(waiting)
	r.Rate = r.Waiting / o.within.Seconds()
	r.Arrivals = r.Rate
	return r
}

func tables(out io.Writer, c *Calibration, o options) {
	connections := "behind a balancer"
	if o.room.Direct {
		connections = "with the visitors' own connections"
	}
	fmt.Fprintf(out, "costs measured on %s\n\n", c.Machine)
	fmt.Fprintf(out, "The queue is stable: as many join as are admitted, each within %s; absence %s, poll budget %d/s, visits of %s with %v requests/s;\ngateways of %v cores %s.\n\n",
		o.within, o.room.Absence, o.room.Budget, o.room.Visit, o.room.Requests, o.room.Cores, connections)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "waiting\tadmitted/s\tpolls/s\tchecks/s\tscripts/s\tcommands/s\tRedis CPU\tRedis MB\tto/from Redis Mbit/s\tgateways\ttheir CPU\tMB each\tvisitors Mbit/s in/out\t")
	for _, n := range o.lengths {
		r := o.scenario(n)
		u := r.Outcome(c)
		fmt.Fprintf(w, "%s\t%.1f\t%s\t%s\t%s\t%s\t%.1f %%\t%s\t%.1f/%.1f\t%d\t%.2f\t%.0f\t%.0f/%.0f\t\n", table.Number(r.Waiting), r.Rate, table.Number(u.Polls), table.Number(u.Front+u.Renewals),
			table.Number(u.Calls), table.Number(u.Commands), 100*u.RedisCPU, table.Number(u.RedisMem/1e6), mbit(u.RedisIn), mbit(u.RedisOut), u.Gateways, u.CPU, u.Memory/1e6, mbit(u.In), mbit(u.Out))
	}
	rig.Check(w.Flush())
	fmt.Fprintf(out, "\nThe opening: all visitors arrive within %s and poll.\n\n", o.opening)
	fmt.Fprintln(w, "come\tjoins/s\tscripts/s\tRedis CPU\tgateways\ttheir CPU\tvisitors Mbit/s in/out\tone Redis core\t")
	for _, n := range o.lengths {
		r := o.scenario(n)
		r.Arrivals = r.Waiting / o.opening.Seconds()
		u := r.Outcome(c)
		fits := "enough"
		if !u.Fits {
			fits = "NOT enough: more rooms, or a slower opening"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f %%\t%d\t%.2f\t%.0f/%.0f\t%s\t\n", table.Number(r.Waiting), table.Number(r.Arrivals), table.Number(u.Calls), 100*u.RedisCPU, u.Gateways, u.CPU, mbit(u.In), mbit(u.Out), fits)
	}
	rig.Check(w.Flush())
}

func mbit(bytes float64) float64 { return bytes * 8 / 1e6 }

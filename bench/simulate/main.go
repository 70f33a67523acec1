package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

type options struct {
	tools
	calibration, save string
	lengths           []int
	sizes             []int
	check             []int
	window            time.Duration
	room              Room
	within            time.Duration
	opening           time.Duration
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Work out what a long line takes: gateways, store commands, processor time, memory, network",
		Long: `What one operation costs is measured first, in half a minute or so, on a redis-server and a gateway that are started for it,
or read with --calibration from a file that --save has written. With --check, lines of these lengths are filled and kept
polling, and what they took is printed beside what was worked out.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.within <= 0 || o.opening <= 0 || o.room.Absence < 3*time.Minute || o.room.Claim < 15*time.Second || o.room.Budget < 1 || o.room.Cores <= 0 || o.room.TTL <= 0 || o.window <= 0 || o.room.Requests < 0 {
				return fmt.Errorf("--within %s, --opening %s, --absence %s, --claim-window %s, --budget %d, --cores %v, --ttl %s, --window %s, --requests %v: want more than 0, an absence of 3m or more, a claim window of 15s or more, requests of 0 or more",
					o.within, o.opening, o.room.Absence, o.room.Claim, o.room.Budget, o.room.Cores, o.room.TTL, o.window, o.room.Requests)
			}
			return run(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.gateway, "gateway", "bin/gateway", "the gateway's program")
	f.StringVar(&o.loadgen, "loadgen", "bin/loadgen", "the load generator's program")
	f.StringVar(&o.calibration, "calibration", "", "read what operations cost from this file in place of measuring it")
	f.StringVar(&o.save, "save", "", "write what was measured to this file")
	f.IntSliceVar(&o.sizes, "sizes", []int{1_000, 10_000, 100_000, 1_000_000}, "lines whose costs in the store are measured")
	f.IntSliceVar(&o.lengths, "waiting", []int{10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000}, "lines that are worked out")
	f.IntSliceVar(&o.check, "check", nil, "lines that are filled and compared")
	f.DurationVar(&o.window, "window", 70*time.Second, "how long a filled line is watched; of the length of the longest interval at least")
	f.DurationVar(&o.within, "within", 2*time.Hour, "everybody is let in within: the rate is that of the line over it")
	f.DurationVar(&o.opening, "opening", 5*time.Minute, "at the opening all come within")
	f.DurationVar(&o.room.Absence, "absence", 10*time.Minute, "queue.absence")
	f.DurationVar(&o.room.Claim, "claim-window", 5*time.Minute, "queue.claim_window")
	f.IntVar(&o.room.Budget, "budget", 20_000, "poll_budget")
	f.DurationVar(&o.room.Visit, "visit", 5*time.Minute, "how long somebody shops who was let in")
	f.Float64Var(&o.room.Requests, "requests", 0.2, "requests a second that they make meanwhile, images and scripts included")
	f.DurationVar(&o.room.TTL, "ttl", 5*time.Minute, "session.ttl")
	f.Float64Var(&o.room.Cores, "cores", 2, "of a gateway's machine, of which three fifths are planned with")
	f.BoolVar(&o.room.Direct, "direct", false, "visitors' connections end at the gateways, and not at a balancer in front of them")
	return cmd
}

func run(ctx context.Context, out io.Writer, o options) (err error) {
	dir, err := os.MkdirTemp("", "anteroom-simulate-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var c *Calibration
	if o.calibration != "" {
		c, err = loadCalibration(o.calibration)
	} else {
		c, err = calibrate(ctx, o, dir)
	}
	if err != nil {
		return err
	}
	if o.save != "" {
		if err := c.save(o.save); err != nil {
			return err
		}
	}
	if err := tables(out, c, o); err != nil {
		return err
	}
	if len(o.check) == 0 {
		return nil
	}
	return check(ctx, out, c, o, dir)
}

func calibrate(ctx context.Context, o options, dir string) (*Calibration, error) {
	say("measuring what operations cost the store, and a gateway")
	c := &Calibration{Machine: machine()}
	k, err := newKit(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer k.redis.Stop()
	c.RedisBase = k.base
	if err := k.letIn(ctx, c); err != nil {
		return nil, err
	}
	if st, err := k.redis.Stats(ctx); err != nil {
		return nil, err
	} else {
		k.base = float64(st.Memory - st.Clients)
	}
	if c.Sizes, err = k.sizes(ctx, o.sizes); err != nil {
		return nil, err
	}
	c.Gateway, err = measureGateway(ctx, o.tools, dir)
	return c, err
}

// scenario is a line of that length, of whom everybody is let in within some time.
func (o options) scenario(waiting int) Room {
	r := o.room
	r.Waiting = float64(waiting)
	r.Rate = r.Waiting / o.within.Seconds()
	r.Arrivals = r.Rate
	return r
}

func tables(out io.Writer, c *Calibration, o options) error {
	connections := "behind a balancer"
	if o.room.Direct {
		connections = "with the visitors' own connections"
	}
	fmt.Fprintf(out, "costs measured on %s\n\n", c.Machine)
	fmt.Fprintf(out, "The line stands: as many join as are let in, everybody within %s; absence %s, poll budget %d/s, visits of %s with %v requests/s;\ngateways of %v cores %s.\n\n",
		o.within, o.room.Absence, o.room.Budget, o.room.Visit, o.room.Requests, o.room.Cores, connections)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "waiting\tlet in/s\tpolls/s\tchecks/s\tscripts/s\tcommands/s\tRedis CPU\tRedis MB\tto/from Redis Mbit/s\tgateways\ttheir CPU\tMB each\tvisitors Mbit/s in/out\t")
	for _, n := range o.lengths {
		r := o.scenario(n)
		u := r.Outcome(c)
		fmt.Fprintf(w, "%s\t%.1f\t%s\t%s\t%s\t%s\t%.1f %%\t%s\t%.1f/%.1f\t%d\t%.2f\t%.0f\t%.0f/%.0f\t\n", number(r.Waiting), r.Rate, number(u.Polls), number(u.Front+u.Renewals),
			number(u.Calls), number(u.Commands), 100*u.RedisCPU, number(u.RedisMem/1e6), mbit(u.RedisIn), mbit(u.RedisOut), u.Gateways, u.CPU, u.Memory/1e6, mbit(u.In), mbit(u.Out))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nThe opening: all come within %s, and poll meanwhile.\n\n", o.opening)
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "come\tjoins/s\tscripts/s\tRedis CPU\tgateways\ttheir CPU\tvisitors Mbit/s in/out\tone Redis core\t")
	for _, n := range o.lengths {
		r := o.scenario(n)
		r.Arrivals = r.Waiting / o.opening.Seconds()
		u := r.Outcome(c)
		fits := "enough"
		if !u.Fits {
			fits = "NOT enough: more rooms, or a slower opening"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f %%\t%d\t%.2f\t%.0f/%.0f\t%s\t\n", number(r.Waiting), number(r.Arrivals), number(u.Calls), 100*u.RedisCPU, u.Gateways, u.CPU, mbit(u.In), mbit(u.Out), fits)
	}
	return w.Flush()
}

func mbit(bytes float64) float64 { return bytes * 8 / 1e6 }

// number has blanks between thousands, and no more than three digits that matter below.
func number(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.3g", x)
	}
	s := fmt.Sprintf("%.0f", x)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
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
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

type options struct {
	gateway     string
	gateways    int
	duration    time.Duration // of the faults
	drain       time.Duration // after them, for those who still wait
	seed        uint64
	visitors    int
	rate, burst float64
	maxActive   int
	json        bool
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:          "chaos",
		Short:        "Let a crowd in through several gateways while they and Redis are killed and stopped, and judge what happened",
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.gateways < 2 || o.duration < 5*time.Second || o.visitors < 1 || o.rate <= 0 || o.burst < 1 || o.maxActive < 0 || o.drain < time.Second {
				return fmt.Errorf("--gateways %d, --duration %s, --drain %s, --visitors %d, --rate %g, --burst %g, --max-active %d: want at least 2 gateways, 5s, 1s and a visitor, a rate above 0 and a burst of at least 1",
					o.gateways, o.duration, o.drain, o.visitors, o.rate, o.burst, o.maxActive)
			}
			if !cmd.Flags().Changed("seed") {
				o.seed = rand.Uint64() >> 32 //nolint:gosec // it names a run
			}
			r, err := run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if err := r.print(cmd.OutOrStdout(), o.json); err != nil {
				return err
			}
			if len(r.Broken) > 0 {
				return fmt.Errorf("not kept with --seed %d: %q", o.seed, r.Broken)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.gateway, "gateway", "bin/gateway", "the gateway's program")
	f.IntVar(&o.gateways, "gateways", 8, "how many")
	f.DurationVar(&o.duration, "duration", time.Minute, "how long there are faults")
	f.DurationVar(&o.drain, "drain", 15*time.Second, "how long those who still wait go on polling after that")
	f.Uint64Var(&o.seed, "seed", 0, "repeats the faults and the visitors' habits; a random one otherwise")
	f.IntVar(&o.visitors, "visitors", 1500, "how many come")
	f.Float64Var(&o.rate, "rate", 40, "the room's, a second")
	f.Float64Var(&o.burst, "burst", 20, "the room's")
	f.IntVar(&o.maxActive, "max-active", 150, "the room's; 0: no limit")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// report is what a run printed, and what of the promises was broken.
type report struct {
	Seed       uint64         `json:"seed"`
	Gateways   int            `json:"gateways"`
	Kills      int            `json:"gateways_killed"`
	Pauses     int            `json:"gateways_stopped"`
	Short      int            `json:"redis_stopped_up_to_2s"`
	Long       int            `json:"redis_stopped_over_5s"`
	Frozen     float64        `json:"redis_stopped_seconds"`
	Visitors   int            `json:"visitors"`
	In         int64          `json:"let_in"`
	Left       int            `json:"gave_up"`
	Waiting    int            `json:"still_waiting"`
	Polls      int64          `json:"polls"`
	Passes     int64          `json:"requests_with_a_pass"`
	Repeated   int64          `json:"claims_repeated"`
	Robbed     int64          `json:"sessions_taken_with_a_copied_token"`
	Unanswered int64          `json:"requests_not_answered"`
	P50        float64        `json:"answer_p50_ms"`
	P99        float64        `json:"answer_p99_ms"`
	Judgement  judgement      `json:"judgement"`
	Lost       map[string]int `json:"lost_places"`
	Doubles    map[string]int `json:"tickets_spent_twice"`
	Wrong      map[string]int `json:"wrong_answers"`
	Odd        map[string]int `json:"refusals_tried_again"`
	Traces     []string       `json:"traces,omitempty"` // of a few who were treated wrongly
	Broken     []string       `json:"broken"`
}

func run(ctx context.Context, o options) (r report, err error) {
	dir, err := os.MkdirTemp("", "anteroom-chaos-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	origin, err := startOrigin()
	if err != nil {
		return r, err
	}
	defer origin.stop()
	f := &fleet{dir: dir, program: o.gateway}
	defer f.stop()
	if err := f.start(ctx, o, origin.addr); err != nil {
		return r, err
	}
	c, err := newCrowd(o, f.addrs)
	if err != nil {
		return r, err
	}
	defer c.close()

	crowded, end := context.WithCancel(ctx)
	defer end()
	done := make(chan struct{})
	go func() { c.run(crowded); close(done) }()
	err = f.run(ctx, schedule(o.seed, o.gateways, o.duration))
	if err == nil {
		select {
		case <-done:
		case <-time.After(o.drain):
		case <-ctx.Done():
		}
	}
	end()
	<-done
	if err := errors.Join(err, ctx.Err()); err != nil {
		return r, err
	}
	counted, err := f.metric(ctx, `anteroom_admissions_total{room="sale"}`)
	if err != nil {
		return r, err
	}
	for i, admin := range f.admins {
		up, err := metricOf(ctx, admin, "anteroom_store_up")
		age, err2 := metricOf(ctx, admin, `anteroom_snapshot_age_seconds{room="sale"}`)
		if up != 1 || age > 2 || err != nil || err2 != nil {
			c.fault("gateway %d at the end: store_up %g, snapshot %.1f s old %v\n%s", i, up, age, errors.Join(err, err2), f.gateways[i].Log)
		}
	}
	asking, cancel := context.WithTimeout(ctx, 30*time.Second)
	c.last(asking)
	cancel()
	f.stop()
	for _, log := range f.faults {
		c.fault("a fault of the gateway: %s", log)
	}
	return c.report(f, int(counted)), ctx.Err()
}

func (c *crowd) report(f *fleet, counted int) report {
	j := judge(c.o, c.guests, f.frozen, counted)
	r := report{
		Seed: c.o.seed, Gateways: c.o.gateways, Kills: f.counts.kills, Pauses: f.counts.pauses, Short: f.counts.short, Long: f.counts.long,
		Visitors: len(c.guests), In: c.in.Load(), Polls: c.polls.Load(), Passes: c.passes.Load(), Repeated: c.repeated.Load(),
		Robbed: c.robbed.Load(), Unanswered: c.unanswered.Load(),
		P50: float64(c.quantile(0.5)) / 1e6, P99: float64(c.quantile(0.99)) / 1e6,
		Judgement: j, Lost: c.lost, Doubles: c.doubles, Wrong: c.wrong, Odd: c.odd, Traces: c.traces, Broken: j.broken(c.o),
	}
	for _, s := range f.frozen {
		r.Frozen += float64(s.to-s.from) / 1e6
	}
	for _, g := range c.guests {
		switch {
		case g.left:
			r.Left++
		case g.at == 0 && g.waiting:
			r.Waiting++
		}
	}
	for what, m := range map[string]map[string]int{"places were lost": c.lost, "tickets were spent twice": c.doubles, "wrong answers": c.wrong} {
		if len(m) > 0 {
			r.Broken = append(r.Broken, what)
		}
	}
	slices.Sort(r.Broken)
	return r
}

func (r report) print(out io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	row := func(what, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", what, fmt.Sprintf(format, args...)) }
	row("seed", "%d", r.Seed)
	row("faults", "%d gateways: %d killed (kill -9), %d stopped; Redis stopped %d times up to 2 s, %d times over 5 s, %.1f s in all",
		r.Gateways, r.Kills, r.Pauses, r.Short, r.Long, r.Frozen)
	row("visitors", "%d: %d let in, %d gave up, %d still in line", r.Visitors, r.In+r.Robbed, r.Left, r.Waiting)
	row("requests", "%d polls, %d with a pass, %d repeated claims; %d got no answer; p50 %.1f ms, p99 %.0f ms",
		r.Polls, r.Passes, r.Repeated, r.Unanswered, r.P50, r.P99)
	j := r.Judgement
	row("over-admissions", "%.3f in any interval of room time; fullest second %d of %d", j.Rate.Excess, j.Rate.MaxInSecond, j.Rate.Allowed)
	row("admitted + active", "%d at most", j.MostActive)
	row("order", "%d compared (%d let in at once): %d inversions, %d queue jumps; %d joined without the store, %d of these and of those in line were overtaken; %d never heard their order",
		j.Order.Compared, j.Order.AtOnce, j.Order.Inversions, j.Order.Queuejumps, j.Late, j.LateOver, j.Untold)
	for _, e := range j.Examples {
		row("  ", "%s", e)
	}
	row("within a silence or its hold", "%d admissions", j.Early)
	row("never told of their admission", "%d (%d may be: gave up, or the answer to a join without a key was lost)", j.Unheard, j.Excused)
	row("copied tokens", "%d sessions went to the copy, %v twice", r.Robbed, sum(r.Doubles))
	row("lost places", "%d", sum(r.Lost))
	for _, m := range []map[string]int{r.Lost, r.Doubles, r.Wrong, r.Odd} {
		for _, what := range slices.Sorted(maps.Keys(m)) {
			row("  "+what, "%d times", m[what])
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, t := range r.Traces {
		fmt.Fprintln(out, t)
	}
	return nil
}

func sum(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}

// origin answers everything; /bye ends the visitor's session.
type origin struct {
	addr string
	stop func()
}

func startOrigin() (*origin, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bye" {
			w.Header().Set("X-Waiting-Room-Command", "revoke")
		}
	})}
	served := make(chan struct{})
	go func() {
		_ = s.Serve(ln) // it ends by Close
		close(served)
	}()
	return &origin{ln.Addr().String(), func() { _ = s.Close(); <-served }}, nil
}

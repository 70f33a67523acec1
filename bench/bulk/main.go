package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/table"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bulk:", err)
		os.Exit(1)
	}
}

type options struct {
	bulkworker   string
	rounds, jobs int
	batch        int
	aof          bool
	only         string
	profiles     string
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:          "bulk",
		Short:        "Compare the bulk worker with asynq in one run",
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.rounds < 1 || o.jobs < 1000 {
				return fmt.Errorf("--rounds %d, --jobs %d: want at least 1, 1000", o.rounds, o.jobs)
			}
			return run(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.bulkworker, "bulkworker", "bin/bulkworker", "the bulk worker's program")
	f.IntVar(&o.rounds, "rounds", 5, "how often each is measured; the median is printed")
	f.IntVar(&o.jobs, "jobs", 20_000, "of one measurement of processing")
	f.IntVar(&o.batch, "batch", 50, "our worker.batch: most jobs of one pull")
	f.BoolVar(&o.aof, "aof", false, "let Redis keep an append-only file, synced every second")
	f.StringVar(&o.only, "only", "", "measure just these, by comma: "+strings.Join(partNames(), ", "))
	f.StringVar(&o.profiles, "profiles", "", "write a processor profile of our side of each measurement into this directory")
	cmd.AddCommand(holdCommand())
	return cmd
}

// part is one of the measurements.
type part struct {
	name string
	run  func(ctx context.Context, b *bench) ([]table.Row, error)
}

var parts = []part{
	{"enqueue", enqueueing},
	{"process", processing},
	{"groups", manyGroups},
	{"fairness", fairness},
	{"unequal", unequalShares},
	{"latency", latency},
	{fleetPart, fleet},
	{scriptsPart, scripts},
	{memoryPart, memories},
}

const (
	recoveryPart = "recovery"
	scriptsPart  = "scripts" // measured only when they are named
	fleetPart    = "fleet"
	memoryPart   = "memory"
)

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return append(names, recoveryPart)
}

// bench is what all measurements share.
type bench struct {
	options
	dir   string
	redis *redisServer
	sides [2]side // asynq, ours
}

func run(ctx context.Context, out io.Writer, o options) (err error) {
	wanted := map[string]bool{}
	for _, name := range partNames() {
		wanted[name] = o.only == "" && name != scriptsPart && name != fleetPart && name != memoryPart
	}
	for name := range strings.SplitSeq(o.only, ",") {
		if _, is := wanted[name]; is {
			wanted[name] = true
		} else if name != "" {
			return fmt.Errorf("--only %s: no such measurement; there are %s", name, strings.Join(partNames(), ", "))
		}
	}
	dir, err := os.MkdirTemp("", "anteroom-bench-bulk-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	redis, err := startRedis(ctx, dir, o.aof)
	if err != nil {
		return err
	}
	defer redis.stop()
	b := &bench{options: o, dir: dir, redis: redis, sides: [2]side{newAsynq(redis), &ours{redis: redis, lease: defaultLease, batch: o.batch}}}

	ctx, cancel := context.WithCancel(ctx)
	// What takes minutes of waiting runs beside the rest, on a Redis of its own.
	recovered := make(chan recovery, 1)
	go func() {
		var r recovery
		if wanted[recoveryPart] {
			r = recoveries(ctx, dir, o.aof)
		}
		recovered <- r
	}()
	defer func() {
		cancel()
		if recovered != nil {
			<-recovered
		}
	}()

	began, load := time.Now(), loadAverage()
	var rows []table.Row
	for _, p := range parts {
		if !wanted[p.name] {
			continue
		}
		more, err := p.run(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		rows = append(rows, more...)
	}
	if wanted[recoveryPart] {
		say("waiting for asynq to find the jobs of a killed worker")
	}
	r := <-recovered
	recovered = nil
	if r.err != nil {
		return fmt.Errorf("%s: %w", recoveryPart, r.err)
	}
	if wanted[recoveryPart] {
		rows = append(rows, table.Row{What: "a killed worker's jobs start again (our lease 2 s)", Unit: "s", Peers: []float64{r.asynq.Seconds()}, Ours: r.ours.Seconds(),
			Bars: []table.Bar{{Limit: 3, AtMost: true}}})
	}
	fsync := "no persistence"
	if o.aof {
		fsync = "appendfsync everysec"
	}
	if _, err := fmt.Fprintf(out, "\n%s/%s, %d cores, %s, load %s before and %s after %s; %d rounds of %d jobs taking turns, 100-byte payloads, redis-server with %s\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), began.UTC().Format(time.DateOnly), load, loadAverage(), time.Since(began).Round(time.Second), o.rounds, o.jobs, fsync); err != nil {
		return err
	}
	return table.Print(out, []string{"asynq"}, "bulkworker", rows)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// loadAverage is how busy the machine is, where it tells.
func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(raw), " ")
	return first
}

// inTurns runs f for both sides n times, each round beginning with the other.
func inTurns(n int, f func(round, side int) error) error {
	for r := range n {
		for k := range 2 {
			if err := f(r, (r+k)%2); err != nil {
				return err
			}
		}
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
)

// configured is the flags' value for returning to the configuration.
const configured = "configured"

func newLimits() *cobra.Command {
	var processor, rate, concurrency string
	cmd := newReport("limits", "Show the rates in force, or change a processor's limits", cobra.NoArgs,
		func(ctx context.Context, c *client.Client, cmd *cobra.Command, _ []string) (*client.Limits, error) {
			change, given, err := limitsOf(processor, rate, concurrency)
			switch {
			case err != nil:
				return nil, err
			case given:
				l, err := c.SetProcessor(ctx, processor, change)
				if err == nil && !change.Reset {
					noteUnknown(ctx, cmd.ErrOrStderr(), c, processor)
				}
				return l, err
			}
			return c.Limits(ctx)
		}, writeLimits)
	cmd.Long = `limits prints the rates in force. With --processor it changes the limits of the jobs of one type at once, in all processes;
that needs the operators' token. A type that no process runs is accepted, with a note on stderr: its limits apply to
workers that lease its jobs over HTTP, and to processes that run it later.`
	f := cmd.Flags()
	f.StringVar(&processor, "processor", "", "change the limits of jobs of this `TYPE`")
	f.StringVar(&rate, "rate", "", "start at most `N` of them a second; 0: no limit; "+configured+": reset both limits to the configuration")
	f.StringVar(&concurrency, "concurrency", "", "run at most `N` of them at once; 0: no limit")
	return cmd
}

// noteUnknown writes a note if no process runs jobs of that type. The type need not be mistyped: its first process may start later, or workers
// lease its jobs over HTTP, and processes do not list those types.
func noteUnknown(ctx context.Context, w io.Writer, c *client.Client, jobType string) {
	workers, err := c.Workers(ctx, client.WorkersQuery{Limit: 1})
	if err != nil {
		return // the limits are set; the note is an aid
	}
	var known []string
	for _, p := range workers.Processes {
		known = append(known, p.Types...)
	}
	slices.Sort(known)
	if known = slices.Compact(known); slices.Contains(known, jobType) {
		return
	}
	names := "none"
	if len(known) > 0 {
		names = strings.Join(known, ", ")
	}
	_, _ = fmt.Fprintf(w, "note: no process runs jobs of type %q; the limits apply to workers that lease such jobs over HTTP, and to processes that run them later. Types that processes run: %s. "+
		"To remove the limits: bulkworker limits --processor %s --rate %s\n", jobType, names, jobType, configured)
}

// limitsOf parses the flags.
func limitsOf(processor, rate, concurrency string) (p client.ProcessorPatch, given bool, err error) {
	switch {
	case processor == "" && rate == "" && concurrency == "":
		return p, false, nil
	case processor == "":
		return p, false, misuse("--rate and --concurrency need --processor, the type of the jobs")
	case rate == "" && concurrency == "":
		return p, false, misuse("--processor needs --rate, --concurrency or both")
	}
	if rate == configured {
		p.Reset = true
	} else if rate != "" {
		n, err := strconv.ParseFloat(rate, 64)
		if err != nil {
			return p, false, misuse("--rate is %q; use a number such as 14 or 2.5, or %s", rate, configured)
		}
		p.Rate = &n
	}
	if concurrency != "" {
		n, err := strconv.ParseInt(concurrency, 10, 64)
		if err != nil {
			return p, false, misuse("--concurrency is %q; use a whole number such as 5", concurrency)
		}
		p.Concurrency = &n
	}
	return p, true, nil
}

func writeLimits(w io.Writer, l *client.Limits) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { _, _ = fmt.Fprintf(t, format+"\n", args...) }
	from := map[bool]string{true: "live", false: configured}
	row("global\t%v a second\t%s", l.Global, from[l.Live])
	if l.PerTenant > 0 {
		row("each tenant\t%v a second\t%s", l.PerTenant, from[l.Live])
	}
	for _, name := range slices.Sorted(maps.Keys(l.Processors)) {
		p := l.Processors[name]
		rate, most := "any rate", "any number at once"
		if p.Rate > 0 {
			rate = fmt.Sprintf("%v a second", p.Rate)
		}
		if p.Concurrency > 0 {
			most = fmt.Sprintf("%d at once (%d run)", p.Concurrency, p.InFlight)
		}
		row("%s\t%s, %s\t%s", name, rate, most, from[p.Live])
	}
	noteAway(t, l.Shards)
	return t.Flush()
}

// Command loadgen sends crowds to a gateway through its visitor API, and judges what became of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/verdict"
	"github.com/anteroom/anteroom/bench/visitor"
)

// errBroken means that the run worked and the room did not keep its promises: the report says which.
var errBroken = errors.New("the room did not keep its promises")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	switch {
	case errors.Is(err, errBroken):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(2)
	}
}

// shared are the flags that every mode has.
type shared struct {
	to      visitor.Options
	json    bool
	workers int
}

func (s *shared) client() (*visitor.Client, error) {
	if s.workers < 1 {
		return nil, fmt.Errorf("--connections %d: want at least 1", s.workers)
	}
	s.to.Connections = s.workers
	return visitor.New(s.to)
}

func command() *cobra.Command {
	var s shared
	root := crowdCommand(&s)
	f := root.PersistentFlags()
	f.StringSliceVar(&s.to.URLs, "url", []string{"http://127.0.0.1:8080"}, "the gateway; give several and requests take turns")
	f.StringVar(&s.to.Room, "room", "default", "the room's id")
	f.IntVar(&s.workers, "connections", 256, "requests under way at a time")
	f.DurationVar(&s.to.Timeout, "request-timeout", 10*time.Second, "of one request")
	f.BoolVar(&s.json, "json", false, "print the report as JSON")
	root.AddCommand(fillCommand(&s), pollsCommand(&s), mixCommand(&s), slowCommand(&s))
	root.AddCommand(streamsCommand(&s))
	return root
}

func crowdCommand(s *shared) *cobra.Command {
	var opt crowdOptions
	var arrive, mode string
	var rate, burst float64
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "loadgen",
		Short: "Send a crowd to a waiting room and judge whether it kept its rate, its order and every place",
		Long: `Every visitor joins, polls as often as the gateway advises, is let in, makes a few requests and leaves.
Connection errors and restarts are waited out. The report on stdout ends with exit status 1 if somebody was not let in,
lost a place or was overtaken, or if the rate was exceeded; 2 if the run itself was impossible.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if opt.Arrive, err = parseArrive(arrive); err != nil {
				return err
			}
			if opt.Page, err = parseMode(mode); err != nil {
				return err
			}
			opt.Page = opt.Page || opt.Browser
			if opt.Visitors < 1 || opt.Requests < 0 || opt.Abandon < 0 || opt.Silent < 0 || opt.Abandon+opt.Silent > 1 {
				return fmt.Errorf("--visitors %d, --requests %d, --abandon %v, --silent %v: want at least 1, at least 0, 0–1 together", opt.Visitors, opt.Requests, opt.Abandon, opt.Silent)
			}
			r, b, err := limit(cmd.Flags().Changed("rate"), rate, cmd.Flags().Changed("burst"), burst)
			if err != nil {
				return err
			}
			client, err := s.client()
			if err != nil {
				return err
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			c := newCrowd(opt, client, s.workers)
			watched(ctx, c, c.run)
			report := c.report(r, b)
			return s.finish(cmd.OutOrStdout(), report, report.Kept)
		},
	}
	f := cmd.Flags()
	f.IntVar(&opt.Visitors, "visitors", 200, "how many come")
	f.StringVar(&arrive, "arrive", "10s", "they come spread over this, or all-at-once")
	f.StringVar(&mode, "mode", "api", "how they join: api (POST tickets) or page (GET --path)")
	f.BoolVar(&opt.Browser, "browser-like", false, "behave as browsers: GET --path for HTML, keep cookies (implies --mode page)")
	f.StringVar(&opt.Path, "path", "/", "the page they ask for")
	f.IntVar(&opt.Requests, "requests", 3, "requests each makes once let in")
	f.DurationVar(&opt.Think, "think", 200*time.Millisecond, "pause between those requests")
	f.BoolVar(&opt.Buy, "buy", false, "end the visit with a purchase at the demo shop, which gives the slot back")
	f.Float64Var(&opt.Abandon, "abandon", 0, "share who leave the line after two polls, 0–1")
	f.Float64Var(&opt.Silent, "silent", 0, "share who stop polling without a word at some time of the wait that they were first shown, 0–1")
	f.DurationVar(&opt.JudgeAfter, "judge-estimates-after", 0, "judge the waits that are shown from then on")
	f.BoolVar(&opt.Idempotent, "idempotent", false, "join with an Idempotency-Key, so that a repeated join finds its place (asks the store each time)")
	f.Float64Var(&rate, "rate", 0, "the room's rate, to judge by; not given: the rate is reported and not judged")
	f.Float64Var(&burst, "burst", 0, "the room's burst, to judge by (default max(1, rate))")
	f.DurationVar(&timeout, "timeout", 10*time.Minute, "of the whole run")
	return cmd
}

func pollsCommand(s *shared) *cobra.Command {
	var o mixOptions
	var tokens int
	var prepare time.Duration
	var file string
	cmd := &cobra.Command{
		Use:   "polls",
		Short: "Poll the status of many tokens at a steady rate, each poll another token",
		Long: `The tokens are gathered by joining, or come from a file that fill --tokens-out has written. A file is read once and not
written: tokens that the gateway renews meanwhile are kept in memory, as a visitor would keep them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.mix(cmd, o, blend{Polls: 1}, tokens, 0, prepare, file)
		},
	}
	mixFlags(cmd, &o, &tokens, &prepare, 15_000)
	cmd.Flags().StringVar(&file, "tokens-in", "", "take the tokens from this file, one a line, in place of joining; --tokens and --prepare are then of no account")
	return cmd
}

func mixCommand(s *shared) *cobra.Command {
	var o mixOptions
	var b blend
	var tokens, passes int
	var prepare time.Duration
	cmd := &cobra.Command{
		Use:   "mix",
		Short: "Send polls, requests with a pass, and joins at a steady rate",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.mix(cmd, o, b, tokens, passes, prepare, "")
		},
	}
	mixFlags(cmd, &o, &tokens, &prepare, 30_000)
	f := cmd.Flags()
	f.IntVar(&b.Polls, "polls", 60, "share of status polls")
	f.IntVar(&b.Proxied, "proxied", 35, "share of requests with a pass")
	f.IntVar(&b.Joins, "joins", 5, "share of joins")
	f.IntVar(&passes, "passes", 50, "passes wanted; fewer do if the room lets fewer in")
	f.StringVar(&o.Path, "path", "/", "the page that is asked for with a pass")
	return cmd
}

func mixFlags(cmd *cobra.Command, o *mixOptions, tokens *int, prepare *time.Duration, rate float64) {
	f := cmd.Flags()
	f.Float64Var(&o.Schedule.Rate, "rate", rate, "requests a second, all threads together; 0: as fast as they are answered")
	f.DurationVar(&o.Schedule.Duration, "duration", 10*time.Second, "how long")
	f.DurationVar(&o.Schedule.Ramp, "ramp", 0, "before that, the rate rises evenly from nothing; of this time only the errors are reported")
	f.IntVar(&o.Threads, "threads", 1, "that send; one does for some 50,000 requests a second")
	f.IntVar(tokens, "tokens", 10_000, "waiting tokens to poll with")
	f.DurationVar(prepare, "prepare", time.Minute, "time to gather tokens and passes")
}

func (s *shared) mix(cmd *cobra.Command, o mixOptions, b blend, tokens, passes int, prepare time.Duration, file string) error {
	if r := o.Schedule; r.Rate < 0 || r.Duration <= 0 || r.Ramp < 0 || r.Rate == 0 && r.Ramp > 0 || o.Threads < 1 {
		return fmt.Errorf("--rate %v, --duration %s, --ramp %s, --threads %d: want at least 0, more than 0s, 0s (and a rate), 1", r.Rate, r.Duration, r.Ramp, o.Threads)
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := b.cycle(); err != nil {
		return err
	}
	if _, _, err := plain(s.to.URLs); err != nil {
		return err
	}
	if b.Polls > 0 {
		tokens = max(tokens, o.Threads) // each has its own, since a poll may renew them
	} else {
		tokens = 0
	}
	if b.Proxied == 0 {
		passes = 0
	}
	threads := min(o.Threads, s.workers)
	var h hand
	if file != "" {
		if h.tokens, h.total, err = loadTokens(file, threads); err != nil {
			return fmt.Errorf("--tokens-in: %w", err)
		}
	} else {
		gathering, cancel := context.WithTimeout(cmd.Context(), prepare)
		p, err := visitor.Gather(gathering, client, s.workers, tokens, passes)
		cancel()
		if err != nil {
			return err
		}
		h = deal(p, threads)
	}
	client.Close() // or they would be connections of which nothing is asked
	fmt.Fprintf(os.Stderr, "gathered %d tokens and %d passes\n", h.total, len(h.passes))
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // a million tokens have no pointers in them; their garbage need not pile up to their size
	r, err := runMix(cmd.Context(), s.to, o, b, h)
	if err != nil {
		return err
	}
	return s.finish(cmd.OutOrStdout(), r, r.Errors == 0)
}

// watched runs the crowd with its progress line on stderr.
func watched(ctx context.Context, c *crowd, run func(context.Context)) {
	showing, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { progress(showing, os.Stderr, c.line()) })
	run(ctx)
	stop()
	wg.Wait()
}

// printed is a report.
type printed interface {
	json(io.Writer) error
	text(io.Writer) error
}

func (s *shared) finish(w io.Writer, r printed, kept bool) error {
	var err error
	if s.json {
		err = r.json(w)
	} else {
		err = r.text(w)
	}
	if err == nil && !kept {
		return errBroken
	}
	return err
}

func parseArrive(s string) (time.Duration, error) {
	if s == "all-at-once" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("--arrive %q: want a duration such as 10s, or all-at-once", s)
	}
	return d, nil
}

func parseMode(s string) (page bool, err error) {
	switch s {
	case "api":
		return false, nil
	case "page":
		return true, nil
	}
	return false, fmt.Errorf("--mode %q: want api or page", s)
}

// limit turns the flags into what is judged by; without a rate nothing is.
func limit(hasRate bool, rate float64, hasBurst bool, burst float64) (r, b verdict.Milli, err error) {
	if !hasRate {
		if hasBurst {
			return 0, 0, errors.New("--burst without --rate: give both, or only --rate")
		}
		return -1, 0, nil
	}
	if !hasBurst {
		burst = max(1, rate)
	}
	if r, err = verdict.ToMilli(rate); err != nil {
		return 0, 0, fmt.Errorf("--rate %w", err)
	}
	if b, err = verdict.ToMilli(burst); err != nil {
		return 0, 0, fmt.Errorf("--burst %w", err)
	}
	return r, b, nil
}

// Package load is the load generator: it sends visitors to a gateway through the visitor API and judges the results.
package load

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/verdict"
	"github.com/anteroom/anteroom/bench/visitor"
)

// ErrBroken is returned if the run succeeded and the report names a promise that the room has broken.
var ErrBroken = errors.New("the room did not keep its promises")

// shared are the flags of every command.
type shared struct {
	to   visitor.Options
	json bool
}

// open returns a client. The caller closes it.
func (s *shared) open() *visitor.Client {
	s.checkConnections()
	return rig.Must(visitor.New(s.to))
}

func (s *shared) checkConnections() {
	rig.Require(s.to.Connections >= 1, "--connections %d: use at least 1", s.to.Connections)
}

// command returns a command without arguments, which an error that rig.Check finds ends.
func command(name, short, long string, run func(cmd *cobra.Command)) *cobra.Command {
	cmd := rig.Command(name, short, long, nil)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return rig.Try(func() { run(cmd) }) }
	return cmd
}

// Command returns the load generator's command.
func Command() *cobra.Command {
	s := shared{to: visitor.Options{Timeout: 10 * time.Second}} // of one request
	root := crowdCommand(&s)
	f := root.PersistentFlags()
	f.StringSliceVar(&s.to.URLs, "url", []string{"http://127.0.0.1:8080"}, "the gateway; several are used in turn")
	f.StringVar(&s.to.Room, "room", "default", "the room's id")
	f.IntVar(&s.to.Connections, "connections", 256, "requests at the same time")
	f.BoolVar(&s.json, "json", false, "print the report as JSON")
	root.AddCommand(fillCommand(&s), pollsCommand(&s), mixCommand(&s), slowCommand(&s), streamsCommand(&s))
	return root
}

func crowdCommand(s *shared) *cobra.Command {
	var opt crowdOptions
	var arrive string
	var rate, burst float64
	var timeout time.Duration
	cmd := command("loadgen", "Send a crowd to a waiting room and report whether the room kept its rate, its order and every place",
		`Every visitor joins, polls at the advised interval, is admitted, makes a few requests and leaves. Visitors wait and try again
when connections break. The report is on stdout. Exit status 1: a visitor was not admitted, lost the place or was overtaken, or
the rate was exceeded; 2: the run itself failed.`,
		func(cmd *cobra.Command) {
			var err error
			opt.Arrive, err = time.ParseDuration(strings.Replace(arrive, "all-at-once", "0", 1))
			rig.Require(err == nil && opt.Arrive >= 0, "--arrive %q: use a duration such as 10s, or all-at-once", arrive)
			rig.Require(opt.Visitors >= 1 && opt.Requests >= 0 && opt.Silent >= 0 && opt.Silent <= 1,
				"--visitors %d, --requests %d, --silent %v: use at least 1, at least 0, and a share from 0 to 1", opt.Visitors, opt.Requests, opt.Silent)
			r, b := limit(cmd.Flags().Changed("rate"), rate, cmd.Flags().Changed("burst"), burst)
			client := s.open()
			defer client.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			c := newCrowd(opt, client, s.to.Connections)
			stop := progress(c.line())
			c.run(ctx)
			stop()
			report := c.report(r, b)
			s.finish(cmd.OutOrStdout(), report, report.Kept)
		})
	f := cmd.Flags()
	f.IntVar(&opt.Visitors, "visitors", 200, "how many visitors arrive")
	f.StringVar(&arrive, "arrive", "10s", "the time over which they arrive, or all-at-once")
	f.IntVar(&opt.Requests, "requests", 3, "requests of each visitor after the admission")
	f.Float64Var(&opt.Silent, "silent", 0, "share of visitors who stop polling at some time of the wait that they were first shown, 0–1")
	f.DurationVar(&opt.JudgeAfter, "judge-estimates-after", 0, "judge the estimates that are shown from then on")
	f.Float64Var(&rate, "rate", 0, "the room's rate, to judge by; without it the rate is reported and not judged")
	f.Float64Var(&burst, "burst", 0, "the room's burst, to judge by (default max(1, rate))")
	f.DurationVar(&timeout, "timeout", 10*time.Minute, "of the whole run")
	return cmd
}

// limit returns the limit that the report compares with; without a rate, -1.
func limit(hasRate bool, rate float64, hasBurst bool, burst float64) (r, b verdict.Milli) {
	if !hasRate {
		rig.Require(!hasBurst, "--burst without --rate: give both, or only --rate")
		return -1, 0
	}
	if !hasBurst {
		burst = max(1, rate)
	}
	r, err := verdict.ToMilli(rate)
	rig.Require(err == nil, "--rate %v", err)
	b, err = verdict.ToMilli(burst)
	rig.Require(err == nil, "--burst %v", err)
	return r, b
}

func fillCommand(s *shared) *cobra.Command {
	var o fillOptions
	cmd := command("fill", "Join as many tickets as fast as possible and keep them polling",
		`Every ticket joins and polls once, so that the store holds it, as fast as the gateway responds. Then all tickets poll at the
advised interval for the time --hold. The report says whether a place was lost, whether a position grew that was shown when all
tickets had joined (before that, a gateway receives the arrivals at another one a moment late), whether tickets were admitted in
order, and whether the positions of a sample of tickets agree with their orders when all have joined and at the end. Exit
status 1: a promise was broken.`,
		func(cmd *cobra.Command) {
			rig.Require(o.Tickets >= 1 && o.Tickets <= 1<<30 && o.Processors >= 1 && o.Sample >= 0 && o.Hold >= 0 && o.Timeout > 0,
				"--tickets %d, --threads %d, --sample %d, --hold %s, --timeout %s: use 1 to %d, at least 1, at least 0, at least 0s, more than 0s",
				o.Tickets, o.Processors, o.Sample, o.Hold, o.Timeout, 1<<30)
			s.checkConnections()
			r := runFill(cmd.Context(), s.to, o)
			s.finish(cmd.OutOrStdout(), r, r.Kept)
		})
	f := cmd.Flags()
	f.IntVar(&o.Tickets, "tickets", 10_000, "how many join")
	f.IntVar(&o.Processors, "threads", 2, "processors that the generator may use at a time")
	f.IntVar(&o.Sample, "sample", 1000, "tickets whose positions are compared with their orders")
	f.DurationVar(&o.Hold, "hold", 0, "keep them polling for this time after all have joined")
	f.DurationVar(&o.Timeout, "timeout", 10*time.Minute, "for all to join and to poll once")
	f.StringVar(&o.TokensOut, "tokens-out", "", "write the tokens to this file when all have joined, one a line, for polls --tokens-in")
	return cmd
}

// supply is where the tokens and passes of a mix come from.
type supply struct {
	tokens, passes int
	file           string // of tokens, instead of gathering
}

func pollsCommand(s *shared) *cobra.Command {
	var o mixOptions
	var from supply
	cmd := command("polls", "Poll the status of many tokens at a steady rate, each poll with another token",
		`The tokens are gathered by joining, or read from a file that fill --tokens-out has written. Tokens that the gateway renews
are kept in memory and not written to the file.`,
		func(cmd *cobra.Command) { s.mix(cmd, o, blend{Polls: 1}, from) })
	mixFlags(cmd, &o, &from, 15_000)
	cmd.Flags().StringVar(&from.file, "tokens-in", "", "read the tokens from this file, one a line; --tokens is then ignored")
	return cmd
}

func mixCommand(s *shared) *cobra.Command {
	var o mixOptions
	var b blend
	var from supply
	cmd := command("mix", "Send polls, requests with a pass, and joins at a steady rate", "",
		func(cmd *cobra.Command) { s.mix(cmd, o, b, from) })
	mixFlags(cmd, &o, &from, 30_000)
	f := cmd.Flags()
	f.IntVar(&b.Polls, "polls", 60, "share of status polls")
	f.IntVar(&b.Proxied, "proxied", 35, "share of requests with a pass")
	f.IntVar(&b.Joins, "joins", 5, "share of joins")
	f.IntVar(&from.passes, "passes", 50, "passes wanted; fewer are enough if the room admits fewer")
	f.StringVar(&o.Path, "path", "/", "the page that is requested with a pass")
	return cmd
}

func mixFlags(cmd *cobra.Command, o *mixOptions, from *supply, rate float64) {
	f := cmd.Flags()
	f.Float64Var(&o.Rate, "rate", rate, "requests a second; 0: each connection sends the next request when the last is answered")
	f.DurationVar(&o.Duration, "duration", 10*time.Second, "how long")
	f.DurationVar(&o.Ramp, "ramp", 0, "before that, the rate rises evenly from 0; of this time only the errors are reported")
	f.IntVar(&o.Processors, "threads", 1, "processors that the generator may use at a time")
	f.IntVar(&from.tokens, "tokens", 10_000, "waiting tokens to poll with")
}

func (s *shared) mix(cmd *cobra.Command, o mixOptions, b blend, from supply) {
	rig.Require(o.Rate >= 0 && o.Duration > 0 && o.Ramp >= 0 && (o.Rate > 0 || o.Ramp == 0) && o.Processors >= 1 && s.to.Connections >= 1,
		"--rate %v, --duration %s, --ramp %s, --threads %d, --connections %d: use at least 0, more than 0s, 0s (or more with a rate), at least 1, at least 1",
		o.Rate, o.Duration, o.Ramp, o.Processors, s.to.Connections)
	rig.Must(b.cycle())
	plain(s.to.URLs)
	if b.Polls == 0 {
		from.tokens = 0
	}
	if b.Proxied == 0 {
		from.passes = 0
	}
	p := from.gather(cmd.Context(), s.to)
	rig.Say("gathered %d tokens and %d passes", len(p.Waiting), len(p.Admitted))
	r := runMix(cmd.Context(), s.to, o, b, p)
	s.finish(cmd.OutOrStdout(), r, r.Errors == 0)
}

// gather returns the tokens and passes.
func (f supply) gather(ctx context.Context, to visitor.Options) *visitor.Pool {
	if f.file != "" {
		p, err := loadTokens(f.file)
		rig.Require(err == nil, "--tokens-in: %v", err)
		return p
	}
	if f.tokens+f.passes == 0 {
		return &visitor.Pool{}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return rig.Must(visitor.Gather(ctx, to, f.tokens, f.passes))
}

func slowCommand(s *shared) *cobra.Command {
	var o slowOptions
	var duration time.Duration
	cmd := command("slow", "Hold many connections that are idle, send a byte a second or never read",
		`A quarter of the clients connect and send nothing, a quarter send a byte of their header each second, a quarter a byte of
their body, and a quarter request a long response and do not read it. A client that is disconnected connects again. When all
are connected the command prints so on stdout; at the end, or when interrupted, it prints the report as JSON.`,
		func(cmd *cobra.Command) {
			rig.Require(o.Clients >= 1 && duration > 0, "--clients %d, --duration %s: use at least 1, more than 0s", o.Clients, duration)
			addrs := plain(s.to.URLs)
			ctx, cancel := context.WithTimeout(cmd.Context(), duration)
			defer cancel()
			s.to.Connections = 1
			p := rig.Must(visitor.Gather(ctx, s.to, 0, 1))
			o.Addr, o.Pass = addrs[0].String(), p.Admitted[0].Pass
			clients := newSlowClients(o)
			report := make(chan SlowReport, 1)
			go func() { report <- clients.run(ctx) }()
			select {
			case <-clients.ready:
				fmt.Fprintln(cmd.OutOrStdout(), "holding", o.Clients)
			case <-ctx.Done():
			}
			printJSON(cmd.OutOrStdout(), <-report)
		})
	f := cmd.Flags()
	f.IntVar(&o.Clients, "clients", 10_000, "how many; each needs a file descriptor here and up to two in the gateway")
	f.DurationVar(&duration, "duration", time.Minute, "how long")
	f.StringVar(&o.Upload, "upload", "/", "a path whose origin reads a body to its end before it responds")
	f.StringVar(&o.Long, "long", "/", "a path with a long response")
	return cmd
}

func streamsCommand(s *shared) *cobra.Command {
	var n int
	var hold, opening time.Duration
	cmd := command("streams", "Join and wait for the admission on event streams, without a poll",
		`Each visitor joins and opens an event stream, which alone has to keep the place. A visitor that receives the event admitted
claims. A stream that ends is opened again with the newest token after the delay that the gateway requested. Exit status 1: a
stream received no event, a place was lost, or a visitor was admitted and received no event.`,
		func(cmd *cobra.Command) {
			rig.Require(n >= 1 && hold > 0, "--streams %d, --hold %s: use at least 1, more than 0s", n, hold)
			addrs, client := plain(s.to.URLs), s.open()
			defer client.Close()
			l := newListeners(client, s.to.Room, addrs, s.to.Connections, n)
			stop := progress(l.line)
			defer stop()
			r := l.run(cmd.Context(), hold, opening)
			stop()
			printJSON(cmd.OutOrStdout(), r)
			keep(r.Kept)
		})
	f := cmd.Flags()
	f.IntVar(&n, "streams", 20_000, "how many; each needs a file descriptor here and one in the gateway")
	f.DurationVar(&hold, "hold", 30*time.Second, "how long they stay open after the last was opened, unless all are admitted sooner")
	f.DurationVar(&opening, "open-wait", time.Minute, "how long the last may take to receive an event")
	return cmd
}

// finish prints a report, and ends the command with ErrBroken if a promise was not kept.
func (s *shared) finish(w io.Writer, r interface{ text(io.Writer) }, kept bool) {
	if s.json {
		printJSON(w, r)
	} else {
		var b bytes.Buffer
		r.text(&b)
		rig.Must(b.WriteTo(w))
	}
	keep(kept)
}

func printJSON(w io.Writer, report any) {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	rig.Check(e.Encode(report))
}

// keep ends the command with ErrBroken if a promise was not kept.
func keep(kept bool) {
	if !kept {
		rig.Check(ErrBroken)
	}
}

// progress prints line() on stderr until stop is called. On a terminal it replaces the line each second; otherwise it prints a new
// line every five seconds.
func progress(line func() string) (stop func()) {
	terminal := term.IsTerminal(int(os.Stderr.Fd()))
	every, format := 5*time.Second, "%s\n"
	if terminal {
		every, format = time.Second, "\r%s\x1b[K"
	}
	end := make(chan struct{})
	var printing sync.WaitGroup
	printing.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for running := true; running; {
			select {
			case <-tick.C:
			case <-end:
				running = false
			}
			fmt.Fprintf(os.Stderr, format, line())
		}
		if terminal {
			fmt.Fprintln(os.Stderr)
		}
	})
	return sync.OnceFunc(func() { close(end); printing.Wait() })
}

// plain returns the addresses of gateways. It is an error if one needs TLS.
func plain(urls []string) (addrs []*net.TCPAddr) {
	for _, raw := range urls {
		u, err := url.Parse(raw)
		rig.Require(err == nil, "--url %q: %v", raw, err)
		rig.Require(u.Scheme == "http", "--url %q: this mode measures over plain HTTP; give an http:// address of the gateway", raw)
		addr, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")))
		rig.Require(err == nil, "--url %q: %v", raw, err)
		addrs = append(addrs, addr)
	}
	return addrs
}

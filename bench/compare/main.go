package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/visitor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

type options struct {
	gateway, loadgen         string
	rounds, seconds, waiting int
	connections, mixRate     int
	slow, million            int
	only                     []string
}

// parts are what --only can name.
var parts = []string{"pass", "poll", "join", "mix", "slow", "million"}

// wants says whether a part is run: all but the million are, where none is named.
func (o options) wants(part string) bool {
	if len(o.only) == 0 {
		return part != "million"
	}
	return slices.Contains(o.only, part)
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:          "compare",
		Short:        "Compare the gateway with nginx and HAProxy in one run",
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.rounds < 1 || o.seconds < 1 || o.waiting < 100 || o.connections < 1 || o.slow < 1 || o.million < 10_000 {
				return fmt.Errorf("--rounds %d, --seconds %d, --waiting %d, --connections %d, --slow %d, --million %d: want at least 1, 1, 100, 1, 1, 10000", o.rounds, o.seconds, o.waiting, o.connections, o.slow, o.million)
			}
			for _, part := range o.only {
				if !slices.Contains(parts, part) {
					return fmt.Errorf("--only %q: want some of %s", part, strings.Join(parts, ", "))
				}
			}
			return run(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.gateway, "gateway", "bin/gateway", "the gateway's program")
	f.StringVar(&o.loadgen, "loadgen", "bin/loadgen", "the load generator's program")
	f.IntVar(&o.rounds, "rounds", 5, "how often each is measured; the median is printed")
	f.IntVar(&o.seconds, "seconds", 3, "how long each measurement takes")
	f.IntVar(&o.waiting, "waiting", 20_000, "tickets that wait beyond the front while statuses are polled")
	f.IntVar(&o.million, "million", 1_000_000, "tickets that wait in the part of that name")
	f.IntVar(&o.connections, "connections", 64, "of wrk")
	f.IntVar(&o.slow, "slow", 10_000, "clients that hang on the gateway while others are served")
	f.StringSliceVar(&o.only, "only", nil, "run only these parts: "+strings.Join(parts, ", "))
	f.IntVar(&o.mixRate, "mix-rate", 30_000, "requests a second of the mix")
	return cmd
}

// frontOfLine is more tickets than a line's front has at the rates that are configured here.
const frontOfLine = 1_500

func run(ctx context.Context, out io.Writer, o options) (err error) {
	wrk, err := child.Find("wrk")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "anteroom-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &stage{dir: dir}
	defer s.stop()
	if err := os.Chmod(dir, 0o755); err != nil { // a master that is root has workers that are not
		return err
	}
	if err := s.open(ctx, o.gateway); err != nil {
		return err
	}
	b := &bench{wrk: wrk, script: filepath.Join(dir, "requests.lua"), connections: o.connections, threads: min(2, runtime.NumCPU()), seconds: o.seconds}
	if err := os.WriteFile(b.script, []byte(script), 0o600); err != nil {
		return err
	}
	var rows []table.Row
	for _, part := range []struct {
		names []string
		rows  func(context.Context, *stage, *bench, options) ([]table.Row, error)
	}{
		{[]string{"pass", "poll", "join"}, besides},
		{[]string{"mix"}, mixRows},
		{[]string{"slow"}, slowRows},
		{[]string{"million"}, millionRows},
	} {
		if !slices.ContainsFunc(part.names, o.wants) {
			continue
		}
		more, err := part.rows(ctx, s, b, o)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	if _, err := fmt.Fprintf(out, "\n%s/%s, %d cores, %s; wrk -t%d -c%d, %d rounds of %d s taking turns; the generator and the origin share the cores\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly), b.threads, b.connections, o.rounds, b.seconds); err != nil {
		return err
	}
	return table.Print(out, []string{"nginx", "HAProxy"}, "gateway", rows)
}

// besides measures one kind of request at a time, beside what others do that is like it.
func besides(ctx context.Context, s *stage, b *bench, o options) (rows []table.Row, err error) {
	say("gathering passes and %d waiting tickets", o.waiting+frontOfLine)
	passes, err := gather(ctx, s, "open", 0, 100)
	if err != nil {
		return nil, err
	}
	line, err := gather(ctx, s, "line", o.waiting+frontOfLine, 0)
	if err != nil {
		return nil, err
	}
	status, err := check(ctx, s, passes, line)
	if err != nil {
		return nil, err
	}
	if err := s.openNginx(ctx, status); err != nil {
		return nil, err
	}
	if err := same(ctx, s, passes.LetIn[0].Pass); err != nil {
		return nil, err
	}
	withPass := load{Header: "X-Waiting-Room-Pass", Method: "GET", Path: "/"}
	withToken := load{Header: "X-Waiting-Room-Token", Method: "GET", Path: "/.waiting-room/line/status"}
	joins := load{Method: "POST", Path: "/.waiting-room/line/tickets", Body: "{}"}
	for _, c := range []struct {
		load  *load
		name  string
		lines []string
	}{
		{&withPass, "passes", pick(passes.LetIn, func(c visitor.Credentials) string { return c.Pass })},
		{&withToken, "tokens", pick(line.Waiting[frontOfLine:], func(c visitor.Credentials) string { return c.Token })},
		{&joins, "none", []string{""}},
	} {
		c.load.Credentials = filepath.Join(s.dir, c.name)
		if err := os.WriteFile(c.load.Credentials, []byte(strings.Join(c.lines, "\n")+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	if o.wants("pass") {
		before, err := passed(s)
		if err != nil {
			return nil, err
		}
		r, err := rounds(ctx, b, o.rounds, "request with a pass", withPass, contest{s.nginx, s.proxyAddr}, contest{s.haproxy, s.haproxyAddr}, contest{s.gateway, s.gatewayAddr})
		if err != nil {
			return nil, err
		}
		after, err := passed(s)
		if err != nil {
			return nil, err
		}
		if n := after - before; n < r[2].Requests {
			return nil, fmt.Errorf("the gateway counts %.0f requests with a pass, wrk has sent it %.0f: something else was measured", n, r[2].Requests)
		}
		rows = append(rows,
			table.Row{What: "request with a pass", Unit: "/s", Peers: []float64{r[0].Rate, r[1].Rate}, Ours: r[2].Rate, Bars: []table.Bar{{Limit: 30_000}, {Limit: 0.8, Ratio: true}}},
			table.Row{What: "request with a pass", Unit: "CPU µs", Peers: []float64{r[0].CPU, r[1].CPU}, Ours: r[2].CPU, Bars: []table.Bar{{Limit: 1.25, AtMost: true, Ratio: true}}},
			table.Row{What: "… of HAProxy's CPU", Unit: "×", Ours: over(r[2].CPU, r[1].CPU)},
			table.Row{What: "request with a pass", Unit: "p99 ms", Peers: []float64{r[0].P99, r[1].P99}, Ours: r[2].P99})
	}
	if o.wants("poll") {
		r, err := rounds(ctx, b, o.rounds, "status poll", withToken, contest{s.nginx, s.statusAddr}, contest{s.gateway, s.gatewayAddr})
		if err != nil {
			return nil, err
		}
		rows = append(rows,
			table.Row{What: fmt.Sprintf("status poll, %s waiting", table.Figure(float64(o.waiting))), Unit: "/s", Peers: []float64{r[0].Rate, 0}, Ours: r[1].Rate, Bars: []table.Bar{{Limit: 100_000}, {Limit: 0.5, Ratio: true}}},
			table.Row{What: "status poll", Unit: "CPU µs", Peers: []float64{r[0].CPU, 0}, Ours: r[1].CPU},
			table.Row{What: "status poll", Unit: "p99 ms", Peers: []float64{r[0].P99, 0}, Ours: r[1].P99})
	}
	if o.wants("join") {
		r, err := rounds(ctx, b, min(o.rounds, 3), "join in a long line", joins, contest{s.gateway, s.gatewayAddr})
		if err != nil {
			return nil, err
		}
		rows = append(rows, table.Row{What: "join in a long line", Unit: "/s", Ours: r[0].Rate, Bars: []table.Bar{{Limit: 80_000}}})
	}
	return rows, nil
}

func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func gather(ctx context.Context, s *stage, room string, tokens, passes int) (*visitor.Pool, error) {
	c, err := visitor.New(visitor.Options{URLs: []string{"http://" + s.gatewayAddr}, Room: room, Connections: 64, Timeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	p, err := visitor.Gather(ctx, c, 64, tokens, passes)
	if err != nil {
		return nil, fmt.Errorf("room %s: %w\n%s", room, err, s.gateway.Log)
	}
	return p, nil
}

// check looks at one answer of each kind, so that what is measured is known to be what it should be, and returns a
// status answer for nginx to repeat.
func check(ctx context.Context, s *stage, passes, line *visitor.Pool) (status string, err error) {
	for _, q := range []struct {
		path, header, credential string
		ok                       func(answer) bool
	}{
		{"/", "X-Waiting-Room-Pass", passes.LetIn[0].Pass, func(a answer) bool { return a.code == 200 && len(a.body) == originBytes && a.room != "waiting" }},
		{"/.waiting-room/line/status", "X-Waiting-Room-Token", line.Waiting[frontOfLine].Token, func(a answer) bool { return a.code == 200 && len(a.body) > 20 }},
	} {
		a, err := fetch(ctx, "http://"+s.gatewayAddr+q.path, q.header, q.credential)
		if err != nil {
			return "", err
		}
		if !q.ok(a) {
			return "", fmt.Errorf("GET %s: %d, %d bytes, X-Waiting-Room %q: not what should be measured\n%s\n%s", q.path, a.code, len(a.body), a.room, a.body, s.gateway.Log)
		}
		status = string(a.body)
	}
	if !json.Valid([]byte(status)) {
		return "", fmt.Errorf("the status answer is not JSON: %s", status)
	}
	return status, nil
}

func pick(from []visitor.Credentials, what func(visitor.Credentials) string) []string {
	all := make([]string, len(from))
	for i, c := range from {
		all[i] = what(c)
	}
	return all
}

// contest is one server that takes part.
type contest struct {
	server *child.Child
	addr   string
}

// rounds lets the servers take turns, each round beginning with another, and returns each one's medians.
func rounds(ctx context.Context, b *bench, n int, what string, l load, contests ...contest) ([]shot, error) {
	requests := make([]float64, len(contests))
	rates, cpus, p99s := make([][]float64, len(contests)), make([][]float64, len(contests)), make([][]float64, len(contests))
	for r := range n {
		for k := range contests {
			i := (r + k) % len(contests)
			s, err := b.fire(ctx, contests[i].server, contests[i].addr, l)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", what, err)
			}
			say("%s, round %d of %d: %-8s %9.0f/s  %6.2f µs CPU  p99 %.2f ms", what, r+1, n, contests[i].server.Name, s.Rate, s.CPU, s.P99)
			requests[i] += s.Requests
			rates[i], cpus[i], p99s[i] = append(rates[i], s.Rate), append(cpus[i], s.CPU), append(p99s[i], s.P99)
		}
	}
	all := make([]shot, len(contests))
	for i := range all {
		all[i] = shot{Requests: requests[i], Rate: table.Median(rates[i]), CPU: table.Median(cpus[i]), P99: table.Median(p99s[i])}
	}
	return all, nil
}

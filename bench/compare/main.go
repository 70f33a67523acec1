package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
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
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:          "compare",
		Short:        "Compare the gateway with nginx and HAProxy in one run",
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.rounds < 1 || o.seconds < 1 || o.waiting < 100 || o.connections < 1 {
				return fmt.Errorf("--rounds %d, --seconds %d, --waiting %d, --connections %d: want at least 1, 1, 100, 1", o.rounds, o.seconds, o.waiting, o.connections)
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
	f.IntVar(&o.connections, "connections", 64, "of wrk")
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

	say("gathering passes and %d waiting tickets", o.waiting+frontOfLine)
	passes, err := gather(ctx, s, "open", 0, 100)
	if err != nil {
		return err
	}
	line, err := gather(ctx, s, "line", o.waiting+frontOfLine, 0)
	if err != nil {
		return err
	}
	status, err := check(ctx, s, passes, line)
	if err != nil {
		return err
	}
	if err := s.openNginx(ctx, status); err != nil {
		return err
	}

	b := &bench{wrk: wrk, script: filepath.Join(dir, "requests.lua"), connections: o.connections, threads: min(2, runtime.NumCPU()), seconds: o.seconds}
	if err := os.WriteFile(b.script, []byte(script), 0o600); err != nil {
		return err
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
		c.load.Credentials = filepath.Join(dir, c.name)
		if err := os.WriteFile(c.load.Credentials, []byte(strings.Join(c.lines, "\n")+"\n"), 0o600); err != nil {
			return err
		}
	}

	proxying, err := rounds(ctx, b, o.rounds, "request with a pass", withPass, contest{s.nginx, s.proxyAddr}, contest{s.haproxy, s.haproxyAddr}, contest{s.gateway, s.gatewayAddr})
	if err != nil {
		return err
	}
	polling, err := rounds(ctx, b, o.rounds, "status poll", withToken, contest{s.nginx, s.statusAddr}, contest{s.gateway, s.gatewayAddr})
	if err != nil {
		return err
	}
	joining, err := rounds(ctx, b, min(o.rounds, 3), "join in a long line", joins, contest{s.gateway, s.gatewayAddr})
	if err != nil {
		return err
	}
	mix, err := runMix(ctx, s, o)
	if err != nil {
		return err
	}

	if _, err := fmt.Fprintf(out, "\n%s/%s, %d cores, %s; wrk -t%d -c%d, %d rounds of %d s taking turns; the generator and the origin share the cores\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly), b.threads, b.connections, o.rounds, b.seconds); err != nil {
		return err
	}
	return table.Print(out, []string{"nginx", "HAProxy"}, "gateway", []table.Row{
		{What: "request with a pass", Unit: "/s", Peers: []float64{proxying[0].Rate, proxying[1].Rate}, Ours: proxying[2].Rate, Bars: []table.Bar{{Limit: 30_000}, {Limit: 0.8, Ratio: true}}},
		{What: "request with a pass", Unit: "CPU µs", Peers: []float64{proxying[0].CPU, proxying[1].CPU}, Ours: proxying[2].CPU, Bars: []table.Bar{{Limit: 1.25, AtMost: true, Ratio: true}}},
		{What: "request with a pass", Unit: "p99 ms", Peers: []float64{proxying[0].P99, proxying[1].P99}, Ours: proxying[2].P99},
		{What: fmt.Sprintf("status poll, %s waiting", table.Figure(float64(o.waiting))), Unit: "/s", Peers: []float64{polling[0].Rate, 0}, Ours: polling[1].Rate, Bars: []table.Bar{{Limit: 100_000}, {Limit: 0.5, Ratio: true}}},
		{What: "status poll", Unit: "CPU µs", Peers: []float64{polling[0].CPU, 0}, Ours: polling[1].CPU},
		{What: "status poll", Unit: "p99 ms", Peers: []float64{polling[0].P99, 0}, Ours: polling[1].P99},
		{What: "join in a long line", Unit: "/s", Ours: joining[0].Rate, Bars: []table.Bar{{Limit: 80_000}}},
		{What: fmt.Sprintf("mix, %s/s asked for", table.Figure(float64(o.mixRate))), Unit: "/s", Ours: mix.Achieved},
		{What: "mix", Unit: "p99 ms", Ours: mix.All.P99, Bars: []table.Bar{{Limit: 10, AtMost: true}}},
	})
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
		ok                       func(code, size int, room string) bool
	}{
		{"/", "X-Waiting-Room-Pass", passes.LetIn[0].Pass, func(code, size int, room string) bool { return code == 200 && size == originBytes && room != "waiting" }},
		{"/.waiting-room/line/status", "X-Waiting-Room-Token", line.Waiting[frontOfLine].Token, func(code, size int, _ string) bool { return code == 200 && size > 20 }},
	} {
		body, code, room, err := fetch(ctx, "http://"+s.gatewayAddr+q.path, q.header, q.credential)
		if err != nil {
			return "", err
		}
		if !q.ok(code, len(body), room) {
			return "", fmt.Errorf("GET %s: %d, %d bytes, X-Waiting-Room %q: not what should be measured\n%s\n%s", q.path, code, len(body), room, body, s.gateway.Log)
		}
		status = string(body)
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
	rates, cpus, p99s := make([][]float64, len(contests)), make([][]float64, len(contests)), make([][]float64, len(contests))
	for r := range n {
		for k := range contests {
			i := (r + k) % len(contests)
			s, err := b.fire(ctx, contests[i].server, contests[i].addr, l)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", what, err)
			}
			say("%s, round %d of %d: %-8s %9.0f/s  %6.2f µs CPU  p99 %.2f ms", what, r+1, n, contests[i].server.Name, s.Rate, s.CPU, s.P99)
			rates[i], cpus[i], p99s[i] = append(rates[i], s.Rate), append(cpus[i], s.CPU), append(p99s[i], s.P99)
		}
	}
	all := make([]shot, len(contests))
	for i := range all {
		all[i] = shot{Rate: table.Median(rates[i]), CPU: table.Median(cpus[i]), P99: table.Median(p99s[i])}
	}
	return all, nil
}

// mixResult is the part of loadgen's report that the table shows.
type mixResult struct {
	Achieved float64 `json:"achieved_per_second"`
	All      struct {
		P99 float64 `json:"p99_ms"`
	} `json:"all"`
	Errors int64  `json:"errors"`
	First  string `json:"first_error"`
}

func runMix(ctx context.Context, s *stage, o options) (mixResult, error) {
	var r mixResult
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.loadgen, "mix", "--json", "--url", "http://"+s.gatewayAddr, "--room", "mix", "--path", "/mix",
		"--rate", fmt.Sprint(o.mixRate), "--tokens", "5000", "--connections", "128", "--duration", "10s")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if jsonErr := json.Unmarshal(out, &r); jsonErr != nil {
		return r, fmt.Errorf("loadgen mix: %w", errors.Join(err, jsonErr))
	}
	say("mix: %.0f/s of %d/s asked for, p99 %.2f ms, %d errors %s", r.Achieved, o.mixRate, r.All.P99, r.Errors, r.First)
	return r, nil
}

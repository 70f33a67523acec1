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
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/bench/site"
	"github.com/anteroom/anteroom/bench/visitor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

type options struct {
	gateway, loadgen    string
	duration, every     time.Duration
	reload              time.Duration
	rate, slow, sockets int
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:          "soak",
		Short:        "Run mixed load through a gateway and fail if it grows or answers wrongly",
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.duration < 20*o.every || o.every <= 0 || o.reload <= 0 || o.rate < 1 || o.slow < 0 || o.sockets < 0 {
				return fmt.Errorf("--duration %s, --every %s, --reload %s, --rate %d, --slow %d, --sockets %d: want at least 20 samples, and no negative numbers",
					o.duration, o.every, o.reload, o.rate, o.slow, o.sockets)
			}
			return run(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.gateway, "gateway", "bin/gateway", "the gateway's program")
	f.StringVar(&o.loadgen, "loadgen", "bin/loadgen", "the load generator's program")
	f.DurationVar(&o.duration, "duration", 10*time.Minute, "how long")
	f.DurationVar(&o.every, "every", 10*time.Second, "how often the gateway is looked at")
	f.DurationVar(&o.reload, "reload", 30*time.Second, "how often its configuration changes and is read again")
	f.IntVar(&o.rate, "rate", 5000, "polls, requests with a pass and joins a second")
	f.IntVar(&o.slow, "slow", 400, "clients that are idle, dribble or do not read")
	f.IntVar(&o.sockets, "sockets", 20, "upgraded connections")
	return cmd
}

const config = `listen: "%s"
admin: {listen: "%s"}
log: {level: warn, access: false}
store: {dir: "%s/store"}
origins:
  - {id: site, servers: ["http://%s"]}
rooms:
  - {id: open, paths: ["/"], origin: site, admission: {rate: 100000}, session: {ttl: 6h}, page: {title: "%s"}}
  - {id: mix, paths: ["/mix"], origin: site, admission: {rate: 10, burst: 200}, queue: {absence: 6h}, session: {ttl: 6h}}
`

func run(ctx context.Context, out io.Writer, o options) (err error) {
	dir, err := os.MkdirTemp("", "anteroom-soak-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	origin, err := site.Start()
	if err != nil {
		return err
	}
	defer origin.Close()
	addr, err := child.FreePort()
	if err != nil {
		return err
	}
	admin, err := child.FreePort()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "gateway.yaml")
	configure := func(title string) error {
		return os.WriteFile(path, fmt.Appendf(nil, config, addr, admin, dir, origin.Addr, title), 0o600)
	}
	if err := configure("at first"); err != nil {
		return err
	}
	gateway, err := child.Start("gateway", o.gateway, "serve", "--config", path)
	if err != nil {
		return err
	}
	defer gateway.Stop()
	if err := gateway.Ready(ctx, addr); err != nil {
		return err
	}
	pass, err := passFor(ctx, addr)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, gateway.Log)
	}

	ctx, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	faults := &faults{}
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.mix(gctx, addr, faults) })
	if o.slow > 0 {
		group.Go(func() error { return o.dawdle(gctx, addr) })
	}
	group.Go(func() error { return reload(gctx, gateway, o.reload, configure) })
	work := &work{addr: addr, pass: pass, faults: faults}
	for _, w := range work.all(o.sockets) {
		group.Go(func() error { w(gctx); return nil })
	}
	samples, err := watch(gctx, gateway.PID(), "http://"+admin+"/metrics", o.every)
	cancel()
	if err := errors.Join(err, group.Wait()); err != nil {
		return fmt.Errorf("%w\n%s", err, gateway.Log)
	}
	work.print(out)
	grown := judge(out, samples)
	if n := faults.print(out); n > 0 {
		grown = append(grown, fmt.Sprintf("%d wrong answers", n))
	}
	if log := gateway.Log.String(); log != "" {
		fmt.Fprintf(out, "\nthe gateway's last words:\n%s", log)
	}
	if len(grown) > 0 {
		return fmt.Errorf("%q", grown)
	}
	return nil
}

func passFor(ctx context.Context, addr string) (string, error) {
	c, err := visitor.New(visitor.Options{URLs: []string{"http://" + addr}, Room: "open", Connections: 1, Timeout: 10 * time.Second})
	if err != nil {
		return "", err
	}
	defer c.Close()
	p, err := visitor.Gather(ctx, c, 1, 0, 1)
	if err != nil {
		return "", err
	}
	return p.LetIn[0].Pass, nil
}

// mix runs the load generator. It ends a little sooner than the rest, so that its own end is no fault.
func (o options) mix(ctx context.Context, addr string, f *faults) error {
	end, _ := ctx.Deadline()
	cmd := exec.CommandContext(ctx, o.loadgen, "mix", "--json", "--url", "http://"+addr, "--room", "mix", "--path", "/mix", "--rate", fmt.Sprint(o.rate),
		"--tokens", "5000", "--connections", "64", "--ramp", "2s", "--duration", (time.Until(end) - 15*time.Second).Round(time.Second).String())
	own(cmd)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var r struct {
		Achieved float64 `json:"achieved_per_second"`
		All      struct {
			P99 float64 `json:"p99_ms"`
		} `json:"all"`
		Errors int64            `json:"errors"`
		Kinds  map[string]int64 `json:"errors_by_kind"`
	}
	if jsonErr := json.Unmarshal(out, &r); jsonErr != nil {
		return fmt.Errorf("loadgen mix: %w", errors.Join(err, jsonErr))
	}
	fmt.Fprintf(os.Stderr, "mix: %.0f/s, p99 %.2f ms, %d errors\n", r.Achieved, r.All.P99, r.Errors)
	for why, n := range r.Kinds {
		f.add(n, "mix: "+why)
	}
	return nil
}

func (o options) dawdle(ctx context.Context, addr string) error {
	cmd := exec.CommandContext(ctx, o.loadgen, "slow", "--url", "http://"+addr, "--room", "open", "--clients", fmt.Sprint(o.slow), "--duration", "24h",
		"--upload", "/slow", "--long", "/long?bytes=100000000")
	own(cmd)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("loadgen slow: %w", err)
	}
	fmt.Fprintf(os.Stderr, "slow: %s\n", out)
	return nil
}

// own puts a child into a process group of its own and ends it by SIGTERM.
func own(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
}

func reload(ctx context.Context, gateway *child.Child, every time.Duration, configure func(string) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := configure(fmt.Sprint("after reload ", n)); err != nil {
			return err
		}
		if err := gateway.Signal(syscall.SIGHUP); err != nil {
			return fmt.Errorf("reload %d: %w", n, err)
		}
	}
}

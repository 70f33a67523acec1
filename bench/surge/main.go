package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/bench/site"
	"github.com/anteroom/anteroom/bench/store"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "surge:", err)
		os.Exit(1)
	}
}

type options struct {
	gateway, loadgen string
	visitors         int
	rate, raised     float64       // visitors a second
	after            time.Duration // from the first join to the change
	paused           bool          // the change ends a pause; else it raises the rate
	overtaken        int           // visitors who may be overtaken by more than half a second
	longest          float64       // time to admit everybody, as a multiple of the ideal
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "surge",
		Short: "Raise a room's rate, or end its pause, while a crowd waits at two gateways, and report who was overtaken",
		Long: `The crowd joins within ten seconds and polls when the gateways advise. After --after the rate rises from --rate to --raised, or
with --paused a pause ends. Exit status 1: a place was lost, more than --overtaken visitors saw a later order admitted more than
half a second before them, or the room took longer than --longest times (visitors that wait / --raised).`,
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.visitors < 1 || o.rate <= 0 || o.raised < 1 || o.after < 15*time.Second || o.overtaken < 0 || o.longest < 1 {
				return errors.New("want --visitors of at least 1, --rate above 0, --raised of at least 1, --after of at least 15s, --overtaken of at least 0, --longest of at least 1")
			}
			return run(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.gateway, "gateway", "bin/gateway", "the gateway's program")
	f.StringVar(&o.loadgen, "loadgen", "bin/loadgen", "the load generator's program")
	f.IntVar(&o.visitors, "visitors", 3000, "how many join")
	f.Float64Var(&o.rate, "rate", 2, "admissions a second before the change")
	f.Float64Var(&o.raised, "raised", 200, "admissions a second after the change")
	f.DurationVar(&o.after, "after", 170*time.Second, "time from the first join to the change")
	f.BoolVar(&o.paused, "paused", false, "the room is paused until the change")
	f.IntVar(&o.overtaken, "overtaken", 15, "visitors who may be overtaken by more than half a second")
	f.Float64Var(&o.longest, "longest", 1.3, "time to admit everybody, as a multiple of the ideal")
	return cmd
}

const config = `listen: "%s"
admin: {listen: "%s"}
log: {level: warn, access: false}
store: {url: "%s"}
tokens: {keys: [{id: k1, alg: HS256, secret: "surge-signing-secret-of-40-bytes-or-more", active: true}]}
origins: [{id: site, servers: ["http://%s"]}]
rooms:
  - {id: sale, origin: site, admission: {rate: %g, burst: 1}, guard: {joins_per_ip: ""}}
`

func run(ctx context.Context, out io.Writer, o options) (err error) {
	dir, err := os.MkdirTemp("", "anteroom-surge-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	redis, err := store.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer redis.Stop()
	origin, err := site.Start()
	if err != nil {
		return err
	}
	defer origin.Close()
	var addrs, admins []string
	for i := range 2 {
		addr, admin, stop, err := startGateway(ctx, o, dir, i, redis.URL, origin.Addr)
		if err != nil {
			return err
		}
		defer stop()
		addrs, admins = append(addrs, "http://"+addr), append(admins, "http://"+admin+"/admin/v1/rooms/sale")
	}
	raise := fmt.Sprintf(`{"rate":%g,"burst":%g}`, o.raised, max(1, o.raised/4)) // a burst below rate/40 prevents the full rate
	if o.paused {
		if err := errors.Join(operate(ctx, http.MethodPost, admins[0]+"/pause", ""), operate(ctx, http.MethodPatch, admins[0], raise)); err != nil {
			return err
		}
	}
	crowd := exec.CommandContext(ctx, o.loadgen, "--json", "--url", strings.Join(addrs, ","), "--room", "sale", "--visitors", fmt.Sprint(o.visitors),
		"--requests", "0", "--timeout", (o.after + 5*time.Minute).String())
	crowd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	crowd.Cancel = func() error { return crowd.Process.Signal(syscall.SIGTERM) }
	crowd.WaitDelay = 10 * time.Second
	crowd.Stderr = os.Stderr
	var changed time.Time
	change := make(chan error, 1)
	go func() {
		select {
		case <-time.After(o.after):
		case <-ctx.Done():
			change <- ctx.Err()
			return
		}
		changed = time.Now()
		if o.paused {
			change <- operate(ctx, http.MethodPost, admins[0]+"/resume", "")
			return
		}
		change <- operate(ctx, http.MethodPatch, admins[0], raise)
	}()
	raw, crowdErr := crowd.Output()
	var exit *exec.ExitError
	if crowdErr != nil && !errors.As(crowdErr, &exit) {
		return crowdErr
	}
	if err := <-change; err != nil {
		return err
	}
	var r crowdReport
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("loadgen: %w\n%s", errors.Join(err, crowdErr), raw)
	}
	return r.judge(out, o, changed)
}

func startGateway(ctx context.Context, o options, dir string, i int, storeURL, origin string) (addr, admin string, stop func(), err error) {
	if addr, err = child.FreePort(); err != nil {
		return "", "", nil, err
	}
	if admin, err = child.FreePort(); err != nil {
		return "", "", nil, err
	}
	path := filepath.Join(dir, fmt.Sprintf("gateway-%d.yaml", i))
	if err := os.WriteFile(path, fmt.Appendf(nil, config, addr, admin, storeURL, origin, o.rate), 0o600); err != nil {
		return "", "", nil, err
	}
	g, err := child.Start(fmt.Sprintf("gateway %d", i), o.gateway, "serve", "--config", path)
	if err != nil {
		return "", "", nil, err
	}
	if err := g.Ready(ctx, addr); err != nil {
		g.Stop()
		return "", "", nil, err
	}
	return addr, admin, g.Stop, nil
}

// operate sends a request of an operator.
func operate(ctx context.Context, method, url, body string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return nil
}

// crowdReport is the part of the load generator's report that is judged here.
type crowdReport struct {
	Visitors int            `json:"visitors"`
	Admitted int            `json:"admitted"`
	Lost     map[string]int `json:"lost_places"`
	Order    struct {
		Overtaken int     `json:"overtaken_over_half_second"`
		Worst     float64 `json:"overtaken_worst_seconds"`
	} `json:"order"`
	Admissions []int64 `json:"admission_times"` // µs since 1970, ascending
}

func (r crowdReport) judge(out io.Writer, o options, changed time.Time) error {
	lost, before := 0, 0
	for _, n := range r.Lost {
		lost += n
	}
	for _, at := range r.Admissions {
		if at < changed.UnixMicro() {
			before++
		}
	}
	ideal := float64(r.Visitors-before) / o.raised
	took := 0.0
	if n := len(r.Admissions); n > 0 {
		took = float64(r.Admissions[n-1]-changed.UnixMicro()) / 1e6
	}
	fmt.Fprintf(out, "visitors   %d: %d admitted, %d of them before the change; %d places lost %v\n", r.Visitors, r.Admitted, before, lost, r.Lost)
	fmt.Fprintf(out, "overtaken  %d by more than half a second (at most %d), at worst by %.2f s\n", r.Order.Overtaken, o.overtaken, r.Order.Worst)
	fmt.Fprintf(out, "time       %.1f s from the change to the last admission, %.2f times the ideal %.1f s (at most %.2f)\n", took, took/ideal, ideal, o.longest)
	var errs []error
	if lost > 0 || r.Admitted < r.Visitors {
		errs = append(errs, fmt.Errorf("%d places were lost and %d visitors were not admitted", lost, r.Visitors-r.Admitted))
	}
	if r.Order.Overtaken > o.overtaken {
		errs = append(errs, fmt.Errorf("%d visitors were overtaken by more than half a second, want at most %d", r.Order.Overtaken, o.overtaken))
	}
	if took > o.longest*ideal {
		errs = append(errs, fmt.Errorf("the last admission came %.2f times the ideal time after the change, want at most %.2f", took/ideal, o.longest))
	}
	return errors.Join(errs...)
}

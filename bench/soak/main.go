// Command soak sends everything that a site receives through one gateway for a long time: polls, passes, joins, uploads,
// downloads, upgraded connections, clients that leave or send slowly, and reloads. It fails if a response was wrong, or if
// memory, goroutines or file descriptors grow.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/load"
	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/visitor"
)

func main() { rig.Main(command()) }

type options struct {
	gateway, loadgen string
	duration         time.Duration
	rate             int // polls, requests with a pass and joins a second
}

const (
	every   = 10 * time.Second // the interval of the samples
	reload  = 30 * time.Second // the interval at which the configuration changes and is reloaded
	slow    = 400              // clients that are idle, send slowly or do not read
	sockets = 20               // upgraded connections
)

func command() *cobra.Command {
	var o options
	cmd := rig.Command("soak", "Run mixed load through a gateway and fail if it grows or responds wrongly", "", func(r *rig.Run) {
		rig.Require(o.duration >= 20*every && o.rate >= 1, "--duration %s, --rate %d: want at least %s and 1", o.duration, o.rate, 20*every)
		o.run(r)
	})
	f := cmd.Flags()
	f.StringVar(&o.gateway, "gateway", "bin/gateway", "the gateway's program")
	f.StringVar(&o.loadgen, "loadgen", "bin/loadgen", "the load generator's program")
	f.DurationVar(&o.duration, "duration", 10*time.Minute, "how long")
	f.IntVar(&o.rate, "rate", 5000, "polls, requests with a pass and joins a second")
	return cmd
}

func (o options) run(r *rig.Run) {
	store, site := r.OwnStore(), r.Serve(rig.Site)
	settings := func(title string) string {
		return store + fmt.Sprintf(`origins:
  - {id: site, servers: ["http://%s"]}
rooms:
  - {id: open, paths: ["/"], origin: site, admission: {rate: 100000}, session: {ttl: 6h}, page: {title: "%s"}}
  - {id: mix, paths: ["/mix"], origin: site, admission: {rate: 10, burst: 200}, queue: {absence: 6h}, session: {ttl: 6h}}
`, site, title)
	}
	g := r.Gateway(o.gateway, settings("before reloads"))
	pool := rig.Must(visitor.Gather(r, visitor.Options{URLs: []string{g.URL()}, Room: "open", Connections: 1, Timeout: 10 * time.Second}, 0, 1))
	ctx, cancel := context.WithTimeout(r, o.duration)
	defer cancel()
	work := &work{addr: g.Addr, pass: pool.Admitted[0].Pass, faults: table.Causes{}}
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.mix(gctx, g.URL(), work) })
	group.Go(func() error { return o.slowClients(gctx, g.URL()) })
	group.Go(func() error {
		for n := 1; rig.Sleep(gctx, reload); n++ {
			if err := errors.Join(g.Write(settings(fmt.Sprint("after reload ", n))), g.Signal(syscall.SIGHUP)); err != nil {
				return fmt.Errorf("reload %d: %w", n, err)
			}
		}
		return nil
	})
	for _, w := range work.all(sockets) {
		group.Go(func() error { w(gctx); return nil })
	}
	samples, err := watch(gctx, g, every)
	cancel()
	if err := errors.Join(err, group.Wait()); err != nil {
		rig.Check(fmt.Errorf("%w\n%s", err, g.Log))
	}
	work.print(r.Out)
	grown := judge(r.Out, samples)
	work.faults.Print(r.Out, "%6d × %s\n")
	grown.If(len(work.faults) > 0, "%d wrong responses", work.faults.Sum())
	if log := g.Log.String(); log != "" {
		fmt.Fprintf(r.Out, "\nthe end of the gateway's log:\n%s", log)
	}
	rig.Require(len(grown) == 0, "%q", grown)
}

// mix runs the load generator. It ends earlier than the rest, so that the end of the run causes no errors.
func (o options) mix(ctx context.Context, url string, w *work) error {
	end, _ := ctx.Deadline()
	var r load.MixReport
	if err := rig.Report(ctx, &r, o.loadgen, "mix", "--json", "--url", url, "--room", "mix", "--path", "/mix", "--rate", fmt.Sprint(o.rate), "--tokens", "5000",
		"--connections", "64", "--ramp", "2s", "--duration", max(time.Second, time.Until(end)-15*time.Second).Round(time.Second).String()); err != nil {
		return err
	}
	rig.Say("mix: %.0f/s, p99 %.2f ms, %d errors", r.Achieved, r.All.P99, r.Errors)
	for why, n := range r.Kinds {
		w.Note(w.faults, "mix: "+why, n)
	}
	return nil
}

func (o options) slowClients(ctx context.Context, url string) error {
	out, err := rig.Program(ctx, o.loadgen, "slow", "--url", url, "--room", "open", "--clients", fmt.Sprint(slow), "--duration", "24h",
		"--upload", "/slow", "--long", "/long?bytes=100000000").Output()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("loadgen slow: %w", err)
	}
	fmt.Fprintf(os.Stderr, "slow: %s\n", out)
	return nil
}

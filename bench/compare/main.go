// Command compare measures the gateway beside nginx and HAProxy on the same machine in the same run, in turns, and prints
// the medians, their ratios and the bars. Only ratios of one run are comparable between machines.
package main

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

func main() { rig.Main(command()) }

type options struct {
	gateway, loadgen         string
	against                  string  // an older gateway's program
	traced                   float64 // share of requests; 0: none
	hooked                   bool    // events of the rooms go to a webhook
	together                 bool    // both programs are measured at the same time
	rounds, seconds, waiting int
	connections, mixRate     int
	slow, million            int
	only                     []string
}

// parts are the values of --only.
var parts = []string{"pass", "poll", "join", "check", "mix", "slow", "million"}

// wants reports whether a part is measured: all but million are if --only is empty.
func (o options) wants(part string) bool {
	if len(o.only) == 0 {
		return part != "million"
	}
	return slices.Contains(o.only, part)
}

// beside returns the program that the gateway is compared with; empty: other servers.
func (o options) beside() string {
	if o.against == "" && (o.traced > 0 || o.hooked) {
		return o.gateway
	}
	return o.against
}

// collect takes traces and drops them.
func collect(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func command() *cobra.Command {
	var o options
	cmd := rig.Command("compare", "Compare the gateway with nginx and HAProxy in one run", "", func(r *rig.Run) {
		rig.Require(o.rounds >= 1 && o.seconds >= 1 && o.waiting >= 100 && o.connections >= 1 && o.slow >= 1 && o.million >= 10_000,
			"--rounds %d, --seconds %d, --waiting %d, --connections %d, --slow %d, --million %d: want at least 1, 1, 100, 1, 1, 10000",
			o.rounds, o.seconds, o.waiting, o.connections, o.slow, o.million)
		rig.Require(!o.together || o.beside() != "", "--together: want also --against, --traced or --webhooks")
		for _, part := range o.only {
			rig.Require(slices.Contains(parts, part), "--only %q: want some of %s", part, strings.Join(parts, ", "))
			rig.Require(o.beside() == "" || slices.Contains(parts[:3], part), "--only %q: --against compares only %s", part, strings.Join(parts[:3], ", "))
		}
		run(r, o)
	})
	f := cmd.Flags()
	f.StringVar(&o.gateway, "gateway", "bin/gateway", "the gateway's program")
	f.StringVar(&o.against, "against", "", "an older gateway's program: compare only the processor time of a request, a poll and a join with it, in turns")
	f.Float64Var(&o.traced, "traced", 0, "trace this share of requests, and compare with the same program that traces nothing, or with that of --against, as --against does")
	f.BoolVar(&o.hooked, "webhooks", false, "send an event every second to a webhook, and compare as --traced does, with the p99 beside the processor time")
	f.BoolVar(&o.together, "together", false, "with --against, --traced or --webhooks: measure both at the same time instead of in turns, for a machine with other work")
	f.StringVar(&o.loadgen, "loadgen", "bin/loadgen", "the load generator's program")
	f.IntVar(&o.rounds, "rounds", 5, "how often each is measured; the median is printed")
	f.IntVar(&o.seconds, "seconds", 3, "how long each measurement takes")
	f.IntVar(&o.waiting, "waiting", 20_000, "tickets that wait behind the front while statuses are polled")
	f.IntVar(&o.million, "million", 1_000_000, "tickets that wait in the part million")
	f.IntVar(&o.connections, "connections", 64, "of wrk")
	f.IntVar(&o.slow, "slow", 10_000, "slow clients of the part slow")
	f.StringSliceVar(&o.only, "only", nil, "run only these parts: "+strings.Join(parts, ", "))
	f.IntVar(&o.mixRate, "mix-rate", 30_000, "requests a second of the mix")
	return cmd
}

// front is more tickets than the front of a queue has at the rates that are configured here.
const front = 1_500

// bench is what the parts of a run share.
type bench struct {
	*rig.Run
	options
	wrk, script string
	threads     int
	gateway     *rig.Gateway
	origin      string
	site        string     // an origin that reads bodies
	nginx       *rig.Child // nil: not started yet
	proxyAddr   string     // of nginx as a proxy
	statusAddr  string     // of nginx with a constant response
	checks      string     // address of the gateway's socket for checks
	mixes       int        // rooms of the mix that have been used
}

func run(r *rig.Run, o options) {
	b := &bench{Run: r, options: o, wrk: rig.Must(rig.Find("wrk")), script: r.File("requests.lua", script), threads: min(2, runtime.NumCPU())}
	b.origin = r.Port()
	r.Nginx("origin", 1, b.origin, fmt.Sprintf("  server {\n    listen %s;\n    location / { default_type text/plain; return 200 \"%s\"; }\n  }", b.origin, strings.Repeat("x", rig.PageBytes)))
	b.site = r.Serve(rig.Site)
	settings := b.settings(b.site)
	if o.traced > 0 {
		settings += fmt.Sprintf("tracing: {otlp_endpoint: \"http://%s\", sample: %g}\n", r.Serve(collect), o.traced)
	}
	if o.hooked {
		settings += b.webhook()
	}
	if o.beside() == "" {
		b.checks = r.Port()
		settings += fmt.Sprintf("check: {listen: %q, trusted: [127.0.0.1/32]}\n", b.checks)
	}
	b.gateway = r.Gateway(o.gateway, settings)
	if o.hooked {
		defer b.changes()()
	}
	peers := []string{"nginx", "HAProxy"}
	var rows []table.Row
	if o.beside() != "" {
		peers, rows = []string{"older"}, b.againstRows()
		if o.against == "" {
			peers[0] = "without"
		}
	} else {
		rows = b.measure()
	}
	order := "taking turns"
	if o.together {
		order = "at the same time"
	}
	fmt.Fprintf(r.Out, "\n%s/%s, %d cores, %s; wrk -t%d -c%d, %d rounds of %d s %s; the generator and the origin share the cores\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly), b.threads, o.connections, o.rounds, o.seconds, order)
	rig.Check(table.Print(r.Out, peers, "gateway", rows))
}

// measure measures the parts that are wanted.
func (b *bench) measure() (rows []table.Row) {
	for _, part := range []struct {
		names []string
		rows  func() []table.Row
	}{{[]string{"pass", "poll", "join", "check"}, b.requests}, {[]string{"mix"}, b.mixRows}, {[]string{"slow"}, b.slowRows}, {[]string{"million"}, b.millionRows}} {
		if slices.ContainsFunc(part.names, b.wants) {
			rows = append(rows, part.rows()...)
		}
	}
	return rows
}

// settings has a room that admits every visitor, one with a queue, some with both for the mix, and one in front of an origin that
// reads bodies. Sessions and places last longer than the run, so that no renewal is measured that visitors would not cause.
func (b *bench) settings(site string) string {
	rooms := ""
	for i := range mixRooms {
		rooms += fmt.Sprintf("  - {id: mix%[1]d, paths: [\"/mix%[1]d\"], origin: bench, admission: {rate: 10, burst: 200}, queue: {absence: 1h}, session: {ttl: 1h}}\n", i)
	}
	return b.OwnStore() + fmt.Sprintf(`origins:
  - {id: bench, servers: ["http://%s"]}
  - {id: site, servers: ["http://%s"], max_conns: 8192}  # half of the slow clients reach it
rooms:
  - {id: open, paths: ["/"], origin: bench, admission: {rate: 100000}, session: {ttl: 1h}}
  - {id: line, paths: ["/line"], origin: bench, admission: {rate: 10, burst: 1}, queue: {absence: 1h}, session: {ttl: 1h}}
  - {id: slow, paths: ["/slow"], origin: site, admission: {rate: 100000}, session: {ttl: 1h}}
%s`, b.origin, site, rooms)
}

// startNginx starts nginx as a proxy and with a constant response, as long as a status.
func (b *bench) startNginx(status string) {
	if b.nginx != nil {
		return
	}
	b.proxyAddr, b.statusAddr = b.Port(), b.Port()
	quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`, `$`, ``).Replace(status)
	b.nginx = b.Nginx("nginx", 0, b.proxyAddr, rig.NginxProxy(b.proxyAddr, b.origin, "")+
		fmt.Sprintf("  server {\n    listen %s;\n    location / { default_type application/json; return 200 '%s'; }\n  }", b.statusAddr, quoted))
}

// ratio returns a/b, or 0 if b was not measured.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

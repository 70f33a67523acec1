// Command live measures how soon a change of an operator or of the shop takes effect, with two gateways at one redis-server: a
// live change on both gateways and on the console's stream, an evacuation, and facts for visitors who poll and who listen. Its
// command surge raises the rate of a room, or ends its pause, while visitors wait, and reports who was overtaken.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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
	gateway                  string
	changes, inside          int
	pollers, listeners, puts int
	only                     []string
}

// parts are the values of --only.
var parts = []string{"change", "evacuate", "facts"}

func command() *cobra.Command {
	var o options
	cmd := rig.Command("live", "Measure how soon a live change, an evacuation and facts take effect on two gateways",
		"Exit status 1: a bar of docs/performance.md was missed.",
		func(r *rig.Run) {
			rig.Require(o.changes >= 1 && o.inside >= 1 && o.pollers >= 1 && o.listeners >= 1 && o.puts >= 1,
				"--changes %d, --inside %d, --pollers %d, --listeners %d, --publications %d: want at least 1 of each", o.changes, o.inside, o.pollers, o.listeners, o.puts)
			for _, part := range o.only {
				rig.Require(slices.Contains(parts, part), "--only %q: want some of %s", part, strings.Join(parts, ", "))
			}
			run(r, o)
		})
	cmd.PersistentFlags().StringVar(&o.gateway, "gateway", "bin/gateway", "the gateway's program")
	cmd.AddCommand(surgeCommand(&o.gateway))
	f := cmd.Flags()
	f.IntVar(&o.changes, "changes", 100, "live changes of the part change")
	f.IntVar(&o.inside, "inside", 10_000, "visitors inside in the part evacuate")
	f.IntVar(&o.pollers, "pollers", 20_000, "visitors who poll in the part facts")
	f.IntVar(&o.listeners, "listeners", 1000, "visitors with an event stream in the part facts")
	f.IntVar(&o.puts, "publications", 3, "publications of the part facts")
	f.StringSliceVar(&o.only, "only", nil, "run only these parts: "+strings.Join(parts, ", "))
	return cmd
}

// run runs the parts, each with a store and gateways of its own.
func run(r *rig.Run, o options) {
	const room = "admission: {rate: 5, burst: 1}, queue: {absence: 1h}, session: {ttl: 1h}"
	var broken table.Broken
	for _, part := range []struct {
		name string
		run  func(*fleet, options, *table.Broken)
	}{{"change", change}, {"evacuate", evacuate}, {"facts", facts}} {
		if len(o.only) == 0 || slices.Contains(o.only, part.name) {
			rig.Check(rig.Do(r, r.Out, func(r *rig.Run) { part.run(newFleet(r, o.gateway, room), o, &broken) }))
		}
	}
	fmt.Fprintf(r.Out, "%s/%s, %d cores; the generator shares them\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	rig.Check(broken.Err())
}

// fleet is two gateways with one room over one redis-server.
type fleet struct {
	*rig.Run
	gateways [2]*rig.Gateway
}

func newFleet(r *rig.Run, bin, room string) *fleet {
	settings := rig.SharedStore(r.Redis().URL()) + fmt.Sprintf(`limits: {streams_per_address: 0}
origins: [{id: site, servers: ["http://%s"]}]
rooms:
  - {id: sale, origin: site, %s, guard: {joins_per_ip: ""}}
`, r.Serve(rig.Site), room)
	return &fleet{Run: r, gateways: [2]*rig.Gateway{r.Gateway(bin, settings), r.Gateway(bin, settings)}}
}

func (f *fleet) urls() []string { return []string{f.gateways[0].URL(), f.gateways[1].URL()} }

// operate sends a request about the room to the operators' API of a gateway.
func (f *fleet) operate(gateway int, method, path, body string) {
	for {
		_, _, err := rig.Request(f, 10*time.Second, method, "http://"+f.gateways[gateway].Admin+"/admin/v1/rooms/sale"+path, []byte(body), "Content-Type", "application/json")
		if err == nil || !strings.Contains(err.Error(), "store_unavailable") {
			rig.Check(err)
			return
		}
		rig.Say("%v; again", err) // the store did not get the processor for a second
	}
}

// listen calls f with each event of a stream until f returns false or the stream ends.
func listen(ctx context.Context, url string, header http.Header, f func(event string, data []byte) bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := streams.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4096), 1<<20)
	event := ""
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			event = name
		} else if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && !f(event, []byte(data)) {
			return nil
		}
	}
	return cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
}

// streams has a connection for each stream.
var streams = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// decode returns what data holds as JSON.
func decode[T any](data []byte) (v T, err error) {
	err = json.Unmarshal(data, &v)
	return v, err
}

// sentence returns the median, p99 and highest of durations.
func sentence(all []time.Duration) string {
	at := func(q float64) time.Duration { return table.Quantile(all, q).Round(time.Millisecond) }
	return fmt.Sprintf("p50 %v, p99 %v, highest %v of %d", at(0.5), at(0.99), at(1), len(all))
}

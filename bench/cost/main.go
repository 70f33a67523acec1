// Command cost measures the gateway's processor time for the worst request of each kind that its limits admit, or just
// refuse, beside a plain request of the same length to the same endpoint. It is an error if one of them costs more than ten
// times a plain one.
//
// A round sends a batch of plain requests and a batch of the others and reads the gateway's clock before and after each. The
// figure of a case is the median of its rounds.
package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/rig"
)

// most is how many times a plain request's processor time a request may cost.
const most = 10

func main() { rig.Main(command()) }

func command() *cobra.Command {
	var gateway, only string
	var rounds int
	cmd := rig.Command("cost", "Measure the processor time of the worst requests that the gateway's limits admit, beside plain ones of their length",
		fmt.Sprintf("It is an error if one of them costs more than %d times a plain one in the same endpoint.", most),
		func(r *rig.Run) { run(r, gateway, only, max(1, rounds)) })
	cmd.Flags().StringVar(&gateway, "gateway", "bin/gateway", "the gateway's program")
	cmd.Flags().StringVar(&only, "only", "", "measure only cases whose place or name contains this")
	cmd.Flags().IntVar(&rounds, "rounds", 7, "rounds of each case; the median is printed")
	return cmd
}

func run(r *rig.Run, gateway, only string, rounds int) {
	s := startServers(r, gateway)
	pass := s.probers[0].withPass()
	for i, endpoints := range [][]endpoint{{waiting, account, patterns}, {waiting}} {
		s.probers[i].fill(endpoints...)
	}
	var results []*result
	for _, w := range trials(pass, s.keys) {
		rig.Check(r.Err())
		if !strings.Contains(w.endpoint.name+", "+w.name, only) {
			continue
		}
		a := s.probers[0]
		if w.second {
			a = s.probers[1]
		}
		results = append(results, a.measure(&w, rounds))
	}
	report(r.Out, results)
}

// trials returns all cases in all endpoints.
func trials(pass endpoint, keys []siteKey) (all []trial) {
	for _, p := range []endpoint{outside, waiting, pass, patterns} {
		for _, w := range everywhere() {
			if w.second && p != outside {
				continue
			}
			w.endpoint = p
			all = append(all, w)
		}
		for _, w := range paths() {
			w.endpoint = p
			if p != outside {
				w.target = p.path + w.target
			} else if w.target[0] == '?' {
				w.target = "/" + w.target
			}
			all = append(all, w)
		}
	}
	for _, w := range refusals() {
		w.endpoint = outside
		all = append(all, w)
	}
	all = append(append(append(all, accounts(keys)...), forgeries()...), bodies()...)
	return append(all, originResponses(pass)...)
}

// report prints the table. It is an error if a request costs too much.
func report(out io.Writer, results []*result) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "place\trequest\tbytes\tstatus\tplain, µs\tµs\tratio")
	over := 0
	for _, r := range results {
		mark := ""
		if r.ratio > most {
			mark, over = "  MISSED", over+1
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%.0f\t%.0f\t%.1f%s\n", r.endpoint.name, r.name, r.bytes, r.status,
			float64(r.plain.Nanoseconds())/1e3, float64(r.cost.Nanoseconds())/1e3, r.ratio, mark)
	}
	rig.Check(t.Flush()) // returns the error of an earlier write
	rig.Require(over == 0, "%d of %d requests cost more than %d times a plain one", over, len(results), most)
	rig.Must(fmt.Fprintf(out, "%d requests; none costs more than %d times a plain one\n", len(results), most))
}

package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/load"
	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

// surgeOptions describe how the rate of a room rises, or its pause ends, while visitors wait.
type surgeOptions struct {
	loadgen  string
	visitors int
	rate     float64       // admissions a second before the change
	after    time.Duration // from the first join to the change
	paused   bool          // the change ends a pause; else it raises the rate
}

const (
	raised    = 200 // admissions a second after the change
	overtaken = 15  // visitors who may be overtaken by more than half a second
	longest   = 1.3 // time to admit every visitor, as a multiple of the ideal
)

// surgeCommand returns the command that raises the rate of a room, and reports who was overtaken and how long the room took to admit
// every visitor.
func surgeCommand(gateway *string) *cobra.Command {
	var o surgeOptions
	cmd := rig.Command("surge", "Raise a room's rate, or end its pause, while visitors wait at two gateways, and report who was overtaken",
		fmt.Sprintf(`The visitors join within ten seconds and poll at the advised intervals. After --after the rate rises from --rate to %d a second, or
with --paused a pause ends. Exit status 1: a place was lost, more than %d visitors saw a later order admitted more than half a second
before them, or the room took longer than %.1f times (visitors that wait / %d).`, raised, overtaken, longest, raised),
		func(r *rig.Run) {
			rig.Require(o.visitors >= 1 && o.rate > 0 && o.after >= 15*time.Second, "want --visitors of at least 1, --rate above 0, --after of at least 15s")
			surge(newFleet(r, *gateway, fmt.Sprintf("admission: {rate: %g, burst: 1}", o.rate)), o)
		})
	f := cmd.Flags()
	f.StringVar(&o.loadgen, "loadgen", "bin/loadgen", "the load generator's program")
	f.IntVar(&o.visitors, "visitors", 3000, "how many join")
	f.Float64Var(&o.rate, "rate", 2, "admissions a second before the change")
	f.DurationVar(&o.after, "after", 170*time.Second, "time from the first join to the change")
	f.BoolVar(&o.paused, "paused", false, "the room is paused until the change")
	return cmd
}

func surge(f *fleet, o surgeOptions) {
	raise := fmt.Sprintf(`{"rate":%d,"burst":%d}`, raised, raised/4) // a burst below rate/40 prevents the full rate
	if o.paused {
		f.operate(0, http.MethodPost, "/pause", "")
		f.operate(0, http.MethodPatch, "", raise)
	}
	var report load.CrowdReport
	done := make(chan error, 1)
	go func() {
		done <- rig.Report(f, &report, o.loadgen, "--json", "--url", strings.Join(f.urls(), ","), "--room", "sale", "--visitors", fmt.Sprint(o.visitors),
			"--requests", "0", "--timeout", (o.after + 5*time.Minute).String())
	}()
	if !rig.Sleep(f, o.after) {
		<-done
		return
	}
	changed := time.Now()
	if o.paused {
		f.operate(0, http.MethodPost, "/resume", "")
	} else {
		f.operate(0, http.MethodPatch, "", raise)
	}
	rig.Check(<-done)
	rig.Check(judge(report, f.Out, changed))
}

// judge prints the report and returns an error for each bar that was missed.
func judge(r load.CrowdReport, out io.Writer, changed time.Time) error {
	lost, before := r.Lost.Sum(), 0
	for _, at := range r.Admissions {
		if at < changed.UnixMicro() {
			before++
		}
	}
	ideal := float64(r.Visitors-before) / raised
	took := 0.0
	if n := len(r.Admissions); n > 0 {
		took = float64(r.Admissions[n-1]-changed.UnixMicro()) / 1e6
	}
	fmt.Fprintf(out, "visitors   %d: %d admitted, %d of them before the change; %d places lost %v\n", r.Visitors, r.Admitted, before, lost, r.Lost)
	fmt.Fprintf(out, "overtaken  %d by more than half a second (at most %d), at worst by %.2f s\n", r.Order.OvertakenLong, overtaken, r.Order.OvertakenMost)
	fmt.Fprintf(out, "time       %.1f s from the change to the last admission, %.2f times the ideal %.1f s (at most %.2f)\n", took, took/ideal, ideal, longest)
	var broken table.Broken
	broken.If(lost > 0 || r.Admitted < int64(r.Visitors), "%d places were lost and %d visitors were not admitted", lost, int64(r.Visitors)-r.Admitted)
	broken.If(r.Order.OvertakenLong > overtaken, "%d visitors were overtaken by more than half a second, want at most %d", r.Order.OvertakenLong, overtaken)
	broken.If(took > longest*ideal, "the last admission came %.2f times the ideal time after the change, want at most %.2f", took/ideal, longest)
	return broken.Err()
}

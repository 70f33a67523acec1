package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

// The figures of a sample.
const (
	rss  = iota // MB, without the embedded store's process
	heap        // MB
	goroutines
	files
	figures
)

// sample is the resources that the gateway uses at one moment.
type sample [figures]float64

// bounds are how much larger the last quarter's median may be than the first's: a factor, and a constant for small numbers.
// The heap is not judged: it depends on when the garbage collector ran.
var bounds = [figures]struct {
	name          string
	factor, extra float64
}{
	rss:        {"resident memory, MB", 1.10, 16},
	heap:       {"heap in use, MB", 0, 0},
	goroutines: {"goroutines", 1.10, 50},
	files:      {"file descriptors", 1.10, 50},
}

// watch takes a sample at each interval until ctx ends.
func watch(ctx context.Context, g *rig.Gateway, every time.Duration) (all []sample, err error) {
	start := time.Now()
	for rig.Sleep(ctx, every) {
		memory, err := rig.Memory(g.PID())
		open, err2 := rig.Files(g.PID())
		running, err3 := g.Metric(ctx, "go_goroutines")
		inUse, err4 := g.Metric(ctx, "go_memstats_heap_inuse_bytes")
		if ctx.Err() != nil {
			break
		}
		if err := errors.Join(err, err2, err3, err4); err != nil {
			return all, err
		}
		s := sample{rss: float64(memory) / (1 << 20), heap: inUse / (1 << 20), goroutines: running, files: float64(open)}
		all = append(all, s)
		rig.Say("%5.0f s: %.1f MB resident, heap %.1f MB, %.0f goroutines, %.0f files", time.Since(start).Seconds(), s[rss], s[heap], s[goroutines], s[files])
	}
	return all, nil
}

// judge prints the medians of the first and the last quarter and returns what has grown. It leaves out the first tenth of
// the run, in which caches fill.
func judge(out io.Writer, all []sample) (grown table.Broken) {
	all = all[len(all)/10:]
	quarter := len(all) / 4
	if quarter == 0 {
		return []string{"too few samples to judge"}
	}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "median of\tfirst quarter\tlast quarter\tgrowth\tbound\t\n")
	for i, b := range bounds {
		figure := func(s sample) float64 { return s[i] }
		first, last := table.MedianOf(all[:quarter], figure), table.MedianOf(all[len(all)-quarter:], figure)
		bound, verdict := "–", ""
		if b.factor > 0 {
			limit := b.factor*first + b.extra
			bound, verdict = fmt.Sprintf("≤ %.0f", limit), "holds"
			if last > limit {
				verdict = "MISSED"
			}
			grown.If(last > limit, "%s: from %.0f to %.0f", b.name, first, last)
		}
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%+.1f\t%s\t%s\n", b.name, first, last, last-first, bound, verdict)
	}
	_ = t.Flush() // results are written to stdout only
	return grown
}

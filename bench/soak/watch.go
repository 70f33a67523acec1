package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// sample is what the gateway held at one moment.
type sample struct {
	at time.Duration
	v  [figures]float64
}

// The figures of a sample.
const (
	rss = iota // MB, of the process without the embedded store's
	heap
	goroutines
	files
	figures
)

// bounds are how much the last quarter's median may be over the first's: a factor, and what is added for small numbers.
// The heap's is not judged: where it stands between two collections is chance.
var bounds = [figures]struct {
	name          string
	factor, extra float64
}{
	rss:        {"resident memory, MB", 1.10, 16},
	heap:       {"heap in use, MB", 0, 0},
	goroutines: {"goroutines", 1.10, 50},
	files:      {"file descriptors", 1.10, 50},
}

// watch takes a sample every now and then until ctx ends.
func watch(ctx context.Context, pid int, metrics string, every time.Duration) ([]sample, error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	start := time.Now()
	var all []sample
	for {
		select {
		case <-ctx.Done():
			return all, nil
		case <-tick.C:
		}
		s := sample{at: time.Since(start)}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return all, err
		}
		if s.v[rss], err = residentMB(status); err != nil {
			return all, err
		}
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return all, err
		}
		s.v[files] = float64(len(open))
		resp, err := client.Get(metrics)
		if err != nil {
			if ctx.Err() != nil {
				return all, nil
			}
			return all, err
		}
		s.v[goroutines], s.v[heap], err = readMetrics(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return all, err
		}
		all = append(all, s)
		fmt.Fprintf(os.Stderr, "%5.0f s: %.1f MB resident, heap %.1f MB, %.0f goroutines, %.0f files\n", s.at.Seconds(), s.v[rss], s.v[heap], s.v[goroutines], s.v[files])
	}
}

// residentMB reads VmRSS of /proc/<pid>/status, which is in kB.
func residentMB(status []byte) (float64, error) {
	_, rest, ok := bytes.Cut(status, []byte("\nVmRSS:"))
	f := strings.Fields(string(rest))
	if !ok || len(f) < 2 || f[1] != "kB" {
		return 0, fmt.Errorf("no VmRSS in %.40q", status)
	}
	kb, err := strconv.ParseFloat(f[0], 64)
	return kb / 1024, err
}

func readMetrics(r io.Reader) (goroutines, heapMB float64, err error) {
	found := 0
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		var into *float64
		switch name {
		case "go_goroutines":
			into = &goroutines
		case "go_memstats_heap_inuse_bytes":
			into = &heapMB
		default:
			continue
		}
		if *into, err = strconv.ParseFloat(value, 64); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", name, err)
		}
		found++
	}
	if found < 2 {
		return 0, 0, fmt.Errorf("the metrics lack go_goroutines or go_memstats_heap_inuse_bytes: %w", io.ErrUnexpectedEOF)
	}
	return goroutines, heapMB / (1 << 20), lines.Err()
}

// judge prints the medians of the first and the last quarter, and returns what has grown. The first tenth of the run is
// left out: caches fill.
func judge(out io.Writer, all []sample) (grown []string) {
	all = all[len(all)/10:]
	quarter := len(all) / 4
	if quarter == 0 {
		return []string{"too few samples to judge by"}
	}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "median of\tfirst quarter\tlast quarter\tgrowth\tbound\t\n")
	for i, b := range bounds {
		first, last := middle(all[:quarter], i), middle(all[len(all)-quarter:], i)
		bound, verdict := "–", ""
		if b.factor > 0 {
			limit := b.factor*first + b.extra
			bound, verdict = fmt.Sprintf("≤ %.0f", limit), "holds"
			if last > limit {
				verdict = "MISSED"
				grown = append(grown, fmt.Sprintf("%s: from %.0f to %.0f", b.name, first, last))
			}
		}
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%+.1f\t%s\t%s\n", b.name, first, last, last-first, bound, verdict)
	}
	_ = t.Flush() // to where results go; there is nobody else to tell
	return grown
}

func middle(samples []sample, figure int) float64 {
	v := make([]float64, len(samples))
	for i, s := range samples {
		v[i] = s.v[figure]
	}
	slices.Sort(v)
	return v[len(v)/2]
}

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/anteroom/anteroom/bench/table"
)

// mixResult is the part of loadgen's report that the table shows.
type mixResult struct {
	Achieved float64          `json:"achieved_per_second"`
	All      quantiles        `json:"all"`
	Sent     quantiles        `json:"sent"`
	OwnCPU   float64          `json:"cpu_us"`
	Errors   int64            `json:"errors"`
	Kinds    map[string]int64 `json:"errors_by_kind"`
}

type quantiles struct {
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	Max  float64 `json:"max_ms"`
}

// mixRounds is how often the mix is measured, slowRounds how often with and without slow clients: the more and the
// shorter, the less it matters what else the machine does.
const (
	mixRounds  = 3
	slowRounds = 5
)

func mixRows(ctx context.Context, s *stage, _ *bench, o options) ([]table.Row, error) {
	var rate, p50, p99, late, own []float64
	var faults int64
	for i := range mixRounds {
		r, err := runMix(ctx, s, o, fmt.Sprint("mix, round ", i+1), o.mixRate, 10*time.Second)
		if err != nil {
			return nil, err
		}
		rate, p50, p99, late = append(rate, r.Achieved), append(p50, r.All.P50), append(p99, r.All.P99), append(late, r.Sent.P99)
		own = append(own, r.OwnCPU)
		faults += r.Errors
	}
	what := fmt.Sprintf("mix, %s/s asked for", table.Figure(float64(o.mixRate)))
	return []table.Row{
		{What: what, Unit: "/s", Ours: table.Median(rate)},
		{What: "mix", Unit: "p50 ms", Ours: table.Median(p50)},
		{What: "mix", Unit: "p99 ms", Ours: table.Median(p99), Bars: []table.Bar{{Limit: 10, AtMost: true}}},
		{What: "… sent after it was due", Unit: "p99 ms", Ours: table.Median(late)},
		{What: "mix, generator", Unit: "CPU µs", Ours: table.Median(own)},
		count("mix", faults),
	}, nil
}

// count is a row of errors, of which there may be none.
func count(what string, n int64) table.Row {
	return table.Row{What: what, Unit: "errors", Ours: float64(n), Counted: true, Bars: []table.Bar{{AtMost: true}}}
}

// loadgen is a run of the load generator, which ends by itself or by SIGTERM.
func loadgen(ctx context.Context, o options, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, o.loadgen, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	return cmd
}

// runMix sends the mix for some time into a room of its own.
func runMix(ctx context.Context, s *stage, o options, what string, rate int, d time.Duration) (mixResult, error) {
	var r mixResult
	if s.mixes == mixRooms {
		return r, fmt.Errorf("more than %d runs of the mix", mixRooms)
	}
	room := fmt.Sprint("mix", s.mixes)
	s.mixes++
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := loadgen(ctx, o, "mix", "--json", "--url", "http://"+s.gatewayAddr, "--room", room, "--path", "/"+room,
		"--rate", fmt.Sprint(rate), "--tokens", "5000", "--connections", "128", "--ramp", "1s", "--duration", d.String())
	out, err := cmd.Output()
	if jsonErr := json.Unmarshal(out, &r); jsonErr != nil {
		return r, fmt.Errorf("loadgen mix: %w", errors.Join(err, jsonErr))
	}
	say("%s: %.0f/s of %d/s asked for, p50 %.2f p99 %.2f p99.9 %.2f max %.1f ms, sent late by p99 %.2f ms, generator %.1f µs, %d errors %v",
		what, r.Achieved, rate, r.All.P50, r.All.P99, r.All.P999, r.All.Max, r.Sent.P99, r.OwnCPU, r.Errors, r.Kinds)
	return r, nil
}

// slowRate is at what the others ask while slow clients hang on the gateway: enough for a p99, and little enough that
// the machine has time for both.
const slowRate = 5_000

// slowRows compares what others get with and without the slow clients, taking turns.
func slowRows(ctx context.Context, s *stage, _ *bench, o options) ([]table.Row, error) {
	var p50, p99 [2][]float64
	var faults int64
	for i := range slowRounds {
		for _, crowded := range []int{i % 2, 1 - i%2} {
			what, end := "without slow clients", func() error { return nil }
			if crowded == 1 {
				what = fmt.Sprintf("beside %d slow clients", o.slow)
				var err error
				if end, err = crowd(ctx, s, o); err != nil {
					return nil, err
				}
			}
			r, err := runMix(ctx, s, o, what, slowRate, 5*time.Second)
			if err := errors.Join(err, end()); err != nil {
				return nil, err
			}
			p50[crowded], p99[crowded] = append(p50[crowded], r.All.P50), append(p99[crowded], r.All.P99)
			faults += r.Errors
		}
	}
	row := func(unit string, x [2][]float64) table.Row {
		with, without := table.Median(x[1]), table.Median(x[0])
		return table.Row{What: fmt.Sprintf("%s/s beside %s slow clients ÷ alone (%s)", table.Figure(slowRate), table.Figure(float64(o.slow)), table.Figure(without)+" ms"),
			Unit: unit, Ours: over(with, without), Bars: []table.Bar{{Limit: 2, AtMost: true}}}
	}
	return []table.Row{row("p50", p50), row("p99", p99), count("… with and without", faults)}, nil
}

// crowd hangs slow clients on the gateway, and returns what ends them when all hold.
func crowd(ctx context.Context, s *stage, o options) (end func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := loadgen(ctx, o, "slow", "--url", "http://"+s.gatewayAddr, "--room", "slow", "--clients", fmt.Sprint(o.slow), "--duration", "5m",
		"--upload", "/slow", "--long", "/slow?bytes=100000000")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	lines := bufio.NewReader(out)
	ended := func() error {
		var r struct {
			Held     int            `json:"held"`
			Least    int            `json:"least"`
			SentAway map[string]int `json:"sent_away"`
			Failed   map[string]int `json:"failed"`
		}
		cancel()
		jsonErr := json.NewDecoder(lines).Decode(&r)
		err := cmd.Wait()
		if jsonErr != nil {
			return fmt.Errorf("loadgen slow: %w", errors.Join(err, jsonErr))
		}
		say("slow clients: %d held at the end, at least %d, sent away %v, failed %v", r.Held, r.Least, r.SentAway, r.Failed)
		return nil
	}
	if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, "holding") {
		return nil, fmt.Errorf("not all slow clients could be connected: %w", errors.Join(err, ended()))
	}
	return ended, nil
}

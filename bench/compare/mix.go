package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bench/load"
	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

// mixRounds is the number of measurements of the mix, slowRounds the number of those with and without slow clients. With more and
// shorter rounds, other load on the machine has less effect.
const (
	mixRounds  = 3
	slowRounds = 5
	// mixRooms is the largest number of runs of the mix. Each run has a room of its own, since a room admits its burst only once.
	mixRooms = mixRounds + 2*slowRounds
)

func (b *bench) mixRows() []table.Row {
	var all []load.MixReport
	faults := int64(0)
	for i := range mixRounds {
		all = append(all, b.mix(fmt.Sprint("mix, round ", i+1), b.mixRate, 10*time.Second))
		faults += all[i].Errors
	}
	row := func(what, unit string, figure func(load.MixReport) float64, bars ...table.Bar) table.Row {
		return table.Row{What: what, Unit: unit, Ours: table.MedianOf(all, figure), Bars: bars}
	}
	return []table.Row{
		row(fmt.Sprintf("mix, %s/s asked for", table.Figure(float64(b.mixRate))), "/s", func(r load.MixReport) float64 { return r.Achieved }),
		row("mix", "p50 ms", func(r load.MixReport) float64 { return r.All.P50 }),
		row("mix", "p99 ms", func(r load.MixReport) float64 { return r.All.P99 }, table.Bar{Limit: 10, AtMost: true}),
		row("… sent after it was due", "p99 ms", func(r load.MixReport) float64 { return r.Sent.P99 }),
		row("mix, generator", "CPU µs", func(r load.MixReport) float64 { return r.OwnCPU }),
		count("mix", faults),
	}
}

// count returns a row of errors, of which there may be none.
func count(what string, n int64) table.Row {
	return table.Row{What: what, Unit: "errors", Ours: float64(n), Counted: true, Bars: []table.Bar{{AtMost: true}}}
}

// mix sends the mix into a room of its own.
func (b *bench) mix(what string, rate int, d time.Duration) (r load.MixReport) {
	room := fmt.Sprint("mix", b.mixes)
	b.mixes++
	ctx, cancel := context.WithTimeout(b, 2*time.Minute)
	defer cancel()
	rig.Check(rig.Report(ctx, &r, b.loadgen, "mix", "--json", "--url", b.gateway.URL(), "--room", room, "--path", "/"+room,
		"--rate", fmt.Sprint(rate), "--tokens", "5000", "--connections", "128", "--ramp", "1s", "--duration", d.String()))
	rig.Say("%s: %.0f/s of %d/s asked for, p50 %.2f p99 %.2f p99.9 %.2f max %.1f ms, sent late by p99 %.2f ms, generator %.1f µs, %d errors %v",
		what, r.Achieved, rate, r.All.P50, r.All.P99, r.All.P999, r.All.Max, r.Sent.P99, r.OwnCPU, r.Errors, r.Kinds)
	return r
}

// slowRate is the rate of the other visitors beside slow clients: enough for a p99, and low enough for a machine that runs
// both.
const slowRate = 5_000

// slowRows compares the latency with and without slow clients, in turns.
func (b *bench) slowRows() []table.Row {
	faults := int64(0)
	shots := table.Turns(slowRounds, 2, func(_, crowded int) load.Quantiles {
		what, end := "without slow clients", func() {}
		if crowded == 1 {
			what, end = fmt.Sprintf("beside %d slow clients", b.slow), b.slowClients()
		}
		r := b.mix(what, slowRate, 5*time.Second)
		end()
		faults += r.Errors
		return r.All
	})
	row := func(unit string, figure func(load.Quantiles) float64) table.Row {
		without, with := table.MedianOf(shots[0], figure), table.MedianOf(shots[1], figure)
		return table.Row{What: fmt.Sprintf("%s/s beside %s slow clients ÷ alone (%s ms)", table.Figure(slowRate), table.Figure(float64(b.slow)), table.Figure(without)),
			Unit: unit, Ours: ratio(with, without), Bars: []table.Bar{{Limit: 2, AtMost: true}}}
	}
	return []table.Row{
		row("p50", func(q load.Quantiles) float64 { return q.P50 }), row("p99", func(q load.Quantiles) float64 { return q.P99 }),
		count("… with and without", faults),
	}
}

// slowClients connects slow clients and returns a function that disconnects them.
func (b *bench) slowClients() (end func()) {
	ctx, cancel := context.WithCancel(b)
	cmd := rig.Program(ctx, b.loadgen, "slow", "--url", b.gateway.URL(), "--room", "slow", "--clients", fmt.Sprint(b.slow), "--duration", "5m",
		"--upload", "/slow", "--long", "/slow?bytes=100000000")
	out := rig.Must(cmd.StdoutPipe())
	rig.Check(cmd.Start())
	b.Cleanup(cancel)
	lines := bufio.NewReader(out)
	end = func() {
		var r load.SlowReport
		cancel()
		jsonErr := json.NewDecoder(lines).Decode(&r)
		if err := cmd.Wait(); jsonErr != nil {
			rig.Check(fmt.Errorf("loadgen slow: %w", errors.Join(err, jsonErr)))
		}
		rig.Say("slow clients: %d held at the end, at least %d, sent away %v, failed %v", r.Held, r.Least, r.SentAway, r.Failed)
	}
	line, err := lines.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "holding") {
		end()
		rig.Check(fmt.Errorf("not all slow clients could be connected: %w", err))
	}
	return end
}

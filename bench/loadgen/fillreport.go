package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/anteroom/anteroom/bench/verdict"
)

// fillReport is what a fill came to; with --json it is printed as it is.
type fillReport struct {
	Tickets       int              `json:"tickets"`
	Joined        int64            `json:"joined"`
	Settled       int64            `json:"settled"` // in the store, let in or lost
	Waiting       int64            `json:"waiting"` // of these tickets, not let in and not lost
	LetIn         int64            `json:"let_in"`
	JoinSeconds   float64          `json:"join_seconds"` // until the last had joined; 0: not all have
	FillSeconds   float64          `json:"fill_seconds"` // until the last had polled too, so that the store holds all
	Seconds       float64          `json:"seconds"`
	Lost          map[string]int   `json:"lost_places"`
	GrewEarly     grown            `json:"positions_grew_in_the_rush"`    // over what was told before all were in: not judged
	Grew          grown            `json:"positions_grew"`                // over what was told after
	Unconfirmed   int64            `json:"first_polls_without_the_store"` // and asked again
	Returned      int64            `json:"came_back"`                     // tickets that were out of touch for longer than presence lasts
	Swapped       int64            `json:"joined_out_of_order"`
	SwappedMicros int64            `json:"joined_out_of_order_us_at_most"`
	Ranks         []ranking        `json:"ranks"`
	Order         verdict.Order    `json:"order"`
	Joins         quantiles        `json:"joins"`
	Polls         quantiles        `json:"polls"`
	Sent          quantiles        `json:"sent"`
	OwnCPU        float64          `json:"cpu_us"`       // of the generator, a request
	Memory        int64            `json:"peak_bytes"`   // resident, of the generator
	PerTicket     float64          `json:"ticket_bytes"` // of it, for each ticket: token, place and plan
	Errors        map[string]int64 `json:"errors"`
	Kept          bool             `json:"kept"`
}

// grown counts the polls that were told a larger position than before, though not so many people had come back.
type grown struct {
	Polls int64 `json:"polls"`
	By    int64 `json:"by_at_most"`
	Of    int64 `json:"of_waiting"` // then
}

func (g *growth) grown() grown { return grown{g.polls.Load(), g.worst.Load(), g.of.Load()} }

func (g grown) text() string {
	return fmt.Sprintf("in %d polls, by at most %d where %d waited (%.3f %%)", g.Polls, g.By, g.Of, 100*float64(g.By)/float64(max(1, g.Of)))
}

func (f *fill) report(used time.Duration) fillReport {
	t := &f.tally
	r := fillReport{
		Tickets: f.o.Tickets, Joined: t.joined.Load(), Settled: t.settled.Load(), LetIn: t.inside.Load(),
		JoinSeconds: float64(t.joinedAt.Load()) / 1000, FillSeconds: float64(t.settledAt.Load()) / 1000, Seconds: time.Since(f.started).Seconds(),
		Lost: map[string]int{}, GrewEarly: t.grewEarly.grown(), Grew: t.grewLater.grown(), Returned: t.returned.Load(), Unconfirmed: t.unconfirmed.Load(),
		Swapped: t.swapped.Load(), SwappedMicros: t.swappedMicros.Load(), Ranks: f.ranks,
		Joins: quantilesOf(f.result.Latency[fillJoin]), Polls: quantilesOf(f.result.Latency[fillPoll]), Sent: quantilesOf(f.result.Sent),
		OwnCPU: float64(used.Microseconds()) / float64(max(1, f.result.Asked)), Errors: f.result.Errors, Memory: peakMemory(),
	}
	var in []verdict.Admission
	var bytes int
	for _, p := range f.parts {
		for why, n := range p.why {
			r.Lost[why] += n
		}
		in = append(in, p.in...)
		bytes += p.tokens.size() + len(p.tickets)*ticketBytes
	}
	r.PerTicket = float64(bytes) / float64(f.o.Tickets)
	r.Waiting = r.Joined - r.LetIn - t.lost.Load()
	r.Order = verdict.JudgeOrder(in)
	r.Kept = r.FillSeconds > 0 && len(r.Lost) == 0 && r.Grew.Polls == 0 && r.SwappedMicros < swapAllowed && r.Order.Kept() &&
		!slices.ContainsFunc(r.Ranks, func(k ranking) bool { return !k.Kept })
	return r
}

// swapAllowed, in µs: gateways know the store's clock to within what it takes to ask for it.
const swapAllowed = 100_000

// peakMemory is the most that this process has had resident, in bytes.
func peakMemory() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return u.Maxrss
	}
	return u.Maxrss * 1024
}

func (r fillReport) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r fillReport) text(out io.Writer) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "tickets    %d: %d joined, %d waiting, %d let in, in %.1f s\n", r.Tickets, r.Joined, r.Waiting, r.LetIn, r.Seconds)
	if r.FillSeconds > 0 {
		fmt.Fprintf(w, "filled     joined in %.1f s (%.0f/s), all in the store after %.1f s (%.0f/s)\n",
			r.JoinSeconds, float64(r.Tickets)/max(r.JoinSeconds, 0.001), r.FillSeconds, float64(r.Tickets)/max(r.FillSeconds, 0.001))
	} else {
		fmt.Fprintf(w, "filled     NOT: %d have not joined, or are not in the store yet\n", int64(r.Tickets)-r.Settled)
	}
	if r.Unconfirmed > 0 {
		fmt.Fprintf(w, "           %d first polls were answered without the store, which was too slow, and asked again\n", r.Unconfirmed)
	}
	say := func(name string, kept bool, bad string) {
		if kept {
			bad = "kept"
		}
		fmt.Fprintf(w, "%-10s %s", name, bad)
	}
	if len(r.Lost) == 0 {
		fmt.Fprint(w, "places     none lost")
	} else {
		fmt.Fprint(w, "places     LOST")
	}
	for _, why := range slices.Sorted(maps.Keys(r.Lost)) {
		fmt.Fprintf(w, " · %d %s", r.Lost[why], why)
	}
	if r.Returned > 0 {
		fmt.Fprintf(w, " · %d were out of touch and came back", r.Returned)
	}
	fmt.Fprintln(w)
	fmt.Fprint(w, "positions  ")
	if r.Grew.Polls == 0 {
		fmt.Fprint(w, "none grew")
	} else {
		fmt.Fprint(w, "GREW ", r.Grew.text())
	}
	if r.GrewEarly.Polls > 0 {
		fmt.Fprint(w, " · over what was told in the rush, ", r.GrewEarly.text())
	}
	fmt.Fprintln(w)
	for _, k := range r.Ranks {
		say("ranks", k.Kept, "BROKEN")
		fmt.Fprintf(w, ": %d of %d tickets asked after %.1f s, within %.2f s: %d out of order, by at most %d places", k.Sampled, k.Tickets, k.After, k.Seconds, k.Swapped, k.SwappedBy)
		if k.Compared {
			fmt.Fprintf(w, "; error of a position p50 %.3f %% p99 %.3f %% max %.3f %% of %d waiting", 100*k.P50, 100*k.P99, 100*k.Max, k.Waiting)
		}
		fmt.Fprintln(w)
	}
	if r.Swapped > 0 {
		say("joins", r.SwappedMicros < swapAllowed, "BROKEN")
		fmt.Fprintf(w, ": %d got an order before one that was answered earlier, by at most %d µs\n", r.Swapped, r.SwappedMicros)
	}
	say("order", r.Order.Kept(), "BROKEN")
	fmt.Fprintf(w, ": %d inversions (%d visitors overtaken) and %d queue jumps among %d let in with a token and %d at once\n",
		r.Order.Inversions, r.Order.Overtaken, r.Order.Queuejumps, r.Order.Compared, r.Order.AtOnce)
	r.Joins.line(w, "joins")
	r.Polls.line(w, "polls")
	r.Sent.line(w, "sent late")
	fmt.Fprintf(w, "generator  %.1f µs of processor time a request, %.0f bytes a ticket, %.0f MB resident at most\n", r.OwnCPU, r.PerTicket, float64(r.Memory)/1e6)
	total := int64(0)
	for _, n := range r.Errors {
		total += n
	}
	fmt.Fprintf(w, "errors     %d\n", total)
	for _, k := range slices.Sorted(maps.Keys(r.Errors)) {
		fmt.Fprintf(w, "           %6d × %s\n", r.Errors[k], k)
	}
	_, err := io.WriteString(out, w.String())
	return err
}

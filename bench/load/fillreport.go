package load

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/verdict"
	"github.com/anteroom/anteroom/bench/visitor"
)

// tolerance is the largest allowed difference of a position behind the front from the rank, as a share of the queue.
const tolerance = 0.005

// Ranking compares the positions of a sample of tickets with the orders of all.
type Ranking struct {
	After   float64 `json:"after_seconds"`
	Waiting int64   `json:"waiting"` // in the room, as the gateway reports
	Tickets int     `json:"tickets"` // of this fill that are waiting
	Sampled int     `json:"sampled"`
	Seconds float64 `json:"sample_seconds"`
	// Swapped counts the tickets with a smaller position than an earlier ticket, by at most SwappedBy.
	Swapped   int   `json:"swapped"`
	SwappedBy int64 `json:"swapped_by_at_most"`
	// The difference between position and rank, as a share of the queue; only if no other visitors wait in the room.
	Compared bool    `json:"compared_with_ranks"`
	P50      float64 `json:"error_p50"`
	P99      float64 `json:"error_p99"`
	Max      float64 `json:"error_max"`
	Kept     bool    `json:"kept"`
}

type shownPosition struct {
	order    int64
	position int64
}

// rank requests the positions of a sample of tickets within a moment and judges them.
func (f *fill) rank(ctx context.Context) {
	var live []*ticket
	var orders []int64
	for i := range f.tickets {
		if t := &f.tickets[i]; t.state == enrolled {
			live = append(live, t)
			orders = append(orders, t.Order)
		}
	}
	n := min(f.o.Sample, len(live))
	if n == 0 {
		return
	}
	sample := make([]shownPosition, n)
	var waiting atomic.Int64
	begin := time.Now()
	var group errgroup.Group
	group.SetLimit(32)
	for k := range n {
		t := live[k*len(live)/n]
		group.Go(func() error {
			cr := visitor.Credentials{Token: t.token}
			r, err := f.client.Status(&cr)
			if err == nil && r.Status.State == "waiting" && ctx.Err() == nil { // the polls count errors and admissions
				sample[k] = shownPosition{t.Order, r.Status.Position}
				waiting.Store(r.Status.Waiting)
				t.token = cr.Token
			}
			return nil
		})
	}
	_ = group.Wait() // there are no errors
	r := judgeRanks(slices.DeleteFunc(sample, func(s shownPosition) bool { return s.position == 0 }), orders, waiting.Load())
	r.After, r.Seconds = begin.Sub(f.start).Seconds(), time.Since(begin).Seconds()
	f.report.Ranks = append(f.report.Ranks, r)
}

// judgeRanks compares the positions of a sample with the orders of all waiting tickets.
func judgeRanks(sample []shownPosition, orders []int64, waiting int64) Ranking {
	r := Ranking{Waiting: waiting, Tickets: len(orders), Sampled: len(sample), Kept: true}
	if len(sample) == 0 {
		return r
	}
	slices.SortFunc(sample, func(a, b shownPosition) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.position, b.position))
	})
	highest := sample[0].position
	for _, t := range sample[1:] {
		if by := highest - t.position; by > 0 {
			r.Swapped++
			r.SwappedBy = max(r.SwappedBy, by)
		}
		highest = max(highest, t.position)
	}
	slack := int64(tolerance*float64(waiting)) + 1
	r.Kept = r.SwappedBy <= slack
	if len(orders) < int(float64(waiting)*(1-tolerance/2)) || len(orders) > int(float64(waiting)*(1+tolerance/2))+10 {
		return r
	}
	slices.Sort(orders)
	errs := make([]float64, len(sample))
	for i, t := range sample {
		rank, _ := slices.BinarySearch(orders, t.order)
		errs[i] = float64(max(t.position-1-int64(rank), int64(rank)-t.position+1)) / float64(waiting)
	}
	r.Compared, r.P50, r.P99, r.Max = true, table.Quantile(errs, 0.5), table.Quantile(errs, 0.99), slices.Max(errs)
	return r
}

// FillReport is the result of a fill; --json prints it.
type FillReport struct {
	Tickets       int           `json:"tickets"`
	Joined        int64         `json:"joined"`
	Stored        int64         `json:"settled"` // in the store, admitted or lost
	Waiting       int64         `json:"waiting"` // neither admitted nor lost
	Admitted      int64         `json:"let_in"`
	JoinSeconds   float64       `json:"join_seconds"` // until the last had joined; 0: not all joined
	FillSeconds   float64       `json:"fill_seconds"` // until the store held all
	Seconds       float64       `json:"seconds"`
	Lost          table.Causes  `json:"lost_places"`
	GrewEarly     Growth        `json:"positions_grew_in_the_rush"`    // compared with a position that was shown before all were in: not judged
	Grew          Growth        `json:"positions_grew"`                // compared with a position that was shown after that
	Unconfirmed   int64         `json:"first_polls_without_the_store"` // and repeated
	Returned      int64         `json:"came_back"`                     // tickets that were absent for a time
	Swapped       int64         `json:"joined_out_of_order"`
	SwappedMicros int64         `json:"joined_out_of_order_us_at_most"`
	Ranks         []Ranking     `json:"ranks"`
	Order         verdict.Order `json:"order"`
	Joins         Quantiles     `json:"joins"`
	Polls         Quantiles     `json:"polls"`
	Sent          Quantiles     `json:"sent"`
	OwnCPU        float64       `json:"cpu_us"`       // of the generator, a request
	Memory        int64         `json:"peak_bytes"`   // resident, of the generator
	PerTicket     float64       `json:"ticket_bytes"` // of a ticket
	Errors        table.Causes  `json:"errors"`
	Kept          bool          `json:"kept"`
}

// Growth counts the polls with a larger position than before though not as many visitors had come back.
type Growth struct {
	Polls int64 `json:"polls"`
	By    int64 `json:"by_at_most"`
	Of    int64 `json:"of_waiting"` // at that time
}

func (g Growth) text() string {
	return fmt.Sprintf("in %d polls, by at most %d where %d waited (%.3f %%)", g.Polls, g.By, g.Of, 100*float64(g.By)/float64(max(1, g.Of)))
}

// finish completes the report, given the processor time that the generator has used.
func (f *fill) finish(used time.Duration) FillReport {
	r := f.report
	r.FillSeconds, r.Seconds = f.enrolledAt.Seconds(), time.Since(f.start).Seconds()
	r.Order = verdict.JudgeOrder(f.in)
	r.Joins, r.Polls, r.Sent = f.latency.joins.quantiles(), f.latency.polls.quantiles(), f.latency.sent.quantiles()
	r.OwnCPU, r.Memory = float64(used.Microseconds())/float64(max(1, r.Sent.Count)), peakMemory()
	for i := range f.tickets {
		r.PerTicket += float64(f.tickets[i].size()) / float64(f.o.Tickets)
	}
	r.Kept = r.FillSeconds > 0 && len(r.Lost) == 0 && r.Grew.Polls == 0 && r.SwappedMicros < swapAllowed && r.Order.Kept() &&
		!slices.ContainsFunc(r.Ranks, func(k Ranking) bool { return !k.Kept })
	return r
}

// swapAllowed, in µs: two gateways know the store's clock to within the duration of a call.
const swapAllowed = 100_000

// peakMemory returns the largest resident memory that this process has had, in bytes.
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

func (r FillReport) text(w io.Writer) {
	fmt.Fprintf(w, "tickets    %d: %d joined, %d waiting, %d admitted, in %.1f s\n", r.Tickets, r.Joined, r.Waiting, r.Admitted, r.Seconds)
	if r.FillSeconds > 0 {
		fmt.Fprintf(w, "filled     joined in %.1f s (%.0f/s), all in the store after %.1f s (%.0f/s)\n",
			r.JoinSeconds, float64(r.Tickets)/max(r.JoinSeconds, 0.001), r.FillSeconds, float64(r.Tickets)/max(r.FillSeconds, 0.001))
	} else {
		fmt.Fprintf(w, "filled     NOT: %d have not joined, or are not in the store yet\n", int64(r.Tickets)-r.Stored)
	}
	if r.Unconfirmed > 0 {
		fmt.Fprintf(w, "           %d first polls were answered without the store, which was too slow, and repeated\n", r.Unconfirmed)
	}
	fmt.Fprint(w, placesText(r.Lost))
	if r.Returned > 0 {
		fmt.Fprintf(w, " · %d were absent and came back", r.Returned)
	}
	positions := "none grew"
	if r.Grew.Polls > 0 {
		positions = "GREW " + r.Grew.text()
	}
	if r.GrewEarly.Polls > 0 {
		positions += " · while tickets still joined, " + r.GrewEarly.text()
	}
	fmt.Fprintf(w, "\npositions  %s\n", positions)
	for _, k := range r.Ranks {
		fmt.Fprintf(w, "ranks      %s: %d of %d tickets polled after %.1f s, within %.2f s: %d out of order, by at most %d places", keptText(k.Kept), k.Sampled, k.Tickets, k.After, k.Seconds, k.Swapped, k.SwappedBy)
		if k.Compared {
			fmt.Fprintf(w, "; error of a position p50 %.3f %% p99 %.3f %% max %.3f %% of %d waiting", 100*k.P50, 100*k.P99, 100*k.Max, k.Waiting)
		}
		fmt.Fprintln(w)
	}
	if r.Swapped > 0 {
		fmt.Fprintf(w, "joins      %s: %d received an order before one that was answered earlier, by at most %d µs\n", keptText(r.SwappedMicros < swapAllowed), r.Swapped, r.SwappedMicros)
	}
	fmt.Fprintln(w, orderText(r.Order))
	r.Joins.line(w, "joins")
	r.Polls.line(w, "polls")
	r.Sent.line(w, "sent late")
	fmt.Fprintf(w, "generator  %.1f µs of processor time a request, %.0f bytes a ticket, %.0f MB resident at most\n", r.OwnCPU, r.PerTicket, float64(r.Memory)/1e6)
	errorLines(w, r.Errors)
}

package load

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

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
	slices.Sort(errs)
	at := func(q float64) float64 { return errs[int(q*float64(len(errs)-1))] }
	r.Compared, r.P50, r.P99, r.Max = true, at(0.5), at(0.99), at(1)
	return r
}

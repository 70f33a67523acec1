package main

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/visitor"
)

// promised is how far a position may be from the truth beyond the front, as a share of the line.
const promised = 0.005

// ranking compares the positions of a sample of tickets with the orders of all.
type ranking struct {
	After   float64 `json:"after_seconds"`
	Waiting int64   `json:"waiting"` // in the room, as it says
	Tickets int     `json:"tickets"` // of this fill that wait
	Sampled int     `json:"sampled"`
	Seconds float64 `json:"sample_seconds"`
	// Swapped are neighbours by order of whom the earlier was told the larger position, by at most SwappedBy.
	Swapped   int   `json:"swapped"`
	SwappedBy int64 `json:"swapped_by_at_most"`
	// The error of a position against the ticket's rank, as a share of the line; only where nobody else waits in the room.
	Compared bool    `json:"compared_with_ranks"`
	P50      float64 `json:"error_p50"`
	P99      float64 `json:"error_p99"`
	Max      float64 `json:"error_max"`
	Kept     bool    `json:"kept"`
}

type told struct {
	order    int64
	position int64
}

// rank asks for a sample of the positions, within a moment, and judges them.
func (f *fill) rank(ctx context.Context) error {
	type who struct {
		part *filler
		at   int
	}
	var live []who
	var orders []int64
	for _, p := range f.parts {
		for i := range p.tickets {
			if p.tickets[i].state == enrolled {
				live = append(live, who{p, i})
				orders = append(orders, p.tickets[i].order)
			}
		}
	}
	n := min(f.o.Sample, len(live))
	if n == 0 {
		return nil
	}
	client, err := visitor.New(f.to)
	if err != nil {
		return err
	}
	defer client.Close()
	sample := make([]told, n)
	var waiting atomic.Int64
	begin := time.Now()
	group := errgroup.Group{}
	group.SetLimit(min(32, f.to.Connections))
	fresh := make([]string, n)
	for k := range n {
		w := live[k*len(live)/n]
		group.Go(func() error {
			cr := visitor.Credentials{Token: string(w.part.tokens.add(nil, w.at))}
			had := cr.Token
			a, err := client.Status(&cr)
			if err != nil || a.Status.State != "waiting" || ctx.Err() != nil {
				return nil //nolint:nilerr // the loop counts what breaks, and hears who is let in
			}
			sample[k] = told{w.part.tickets[w.at].order, a.Status.Position}
			waiting.Store(a.Status.Waiting)
			if cr.Token != had {
				fresh[k] = cr.Token
			}
			return nil
		})
	}
	_ = group.Wait() // none of them fails
	for k, token := range fresh {
		if w := live[k*len(live)/n]; token != "" {
			w.part.tokens.put(w.at, token)
		}
	}
	r := judgeRanks(slices.DeleteFunc(sample, func(t told) bool { return t.position == 0 }), orders, waiting.Load())
	r.After, r.Seconds = begin.Sub(f.started).Seconds(), time.Since(begin).Seconds()
	f.ranks = append(f.ranks, r)
	return nil
}

// judgeRanks compares what a sample was told with the orders of all tickets that wait.
func judgeRanks(sample []told, orders []int64, waiting int64) ranking {
	r := ranking{Waiting: waiting, Tickets: len(orders), Sampled: len(sample), Kept: true}
	if len(sample) == 0 {
		return r
	}
	slices.SortFunc(sample, func(a, b told) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.position, b.position)) })
	highest := sample[0].position
	for _, t := range sample[1:] {
		if by := highest - t.position; by > 0 {
			r.Swapped++
			r.SwappedBy = max(r.SwappedBy, by)
		}
		highest = max(highest, t.position)
	}
	slack := int64(promised*float64(waiting)) + 1
	r.Kept = r.SwappedBy <= slack
	if len(orders) < int(float64(waiting)*(1-promised/2)) || len(orders) > int(float64(waiting)*(1+promised/2))+10 {
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

package bulk

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/anteroom/anteroom/bulk/store"
)

// maxAckBytes bounds the bytes of one call of Ack, besides the number of acks.
const maxAckBytes = 1 << 20

// ackTaker records acks.
type ackTaker interface {
	Ack(ctx context.Context, acks []store.Ack) ([]store.AckState, error)
}

type pendingAck struct {
	run *run
	ack store.Ack
}

// acker sends acks to the store in batches: acks gather while a call is in progress. During an outage they wait for
// any length of time, since leases do not end before the store has been back for a whole lease. The pool bounds their number.
type acker struct {
	store   ackTaker
	pool    *pool
	runs    *registry
	metrics *Metrics
	log     *slog.Logger
	role    *role
	batch   int
	spare   []pendingAck // memory of a sent batch, reused for the next queue; owned by run

	mu    sync.Mutex
	queue []pendingAck
	busy  bool          // a call is in progress, with acks that are not in queue
	wake  chan struct{} // signals new acks; capacity 1
	empty chan struct{} // signals that no ack is left; capacity 1
}

func newAcker(s ackTaker, p *pool, runs *registry, m *Metrics, log *slog.Logger, r *role, batch int) *acker {
	return &acker{store: s, pool: p, runs: runs, metrics: m, log: log, role: r, batch: batch,
		wake: make(chan struct{}, 1), empty: make(chan struct{}, 1)}
}

func (a *acker) add(r *run, ack store.Ack) {
	a.mu.Lock()
	a.queue = append(a.queue, pendingAck{r, ack})
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *acker) run(ctx context.Context) {
	for {
		batch := a.take()
		if len(batch) == 0 {
			select {
			case <-a.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		a.send(ctx, batch)
		if ctx.Err() != nil {
			return
		}
		clear(batch)
		a.spare = batch[:0]
	}
}

// take returns the next batch, in the order in which jobs ended.
func (a *acker) take() []pendingAck {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, size := 0, 0
	for n < len(a.queue) && n < a.batch {
		size += len(a.queue[n].ack.Result) + len(a.queue[n].ack.Error)
		if n > 0 && size > maxAckBytes {
			break
		}
		n++
	}
	batch := a.queue[:n:n]
	a.queue = a.queue[n:]
	if len(a.queue) == 0 && cap(a.spare) > cap(a.queue) {
		a.queue, a.spare = a.spare, nil
	}
	a.busy = n > 0
	if n == 0 {
		select {
		case a.empty <- struct{}{}:
		default:
		}
	}
	return batch
}

// send repeats a batch until the store accepts it or ctx ends.
func (a *acker) send(ctx context.Context, batch []pendingAck) {
	repeated := false // an attempt without a reply may have taken effect
	for {
		batch = a.dropLost(batch)
		if len(batch) == 0 {
			a.role.ok()
			return
		}
		acks := make([]store.Ack, len(batch))
		for i := range batch {
			acks[i] = batch[i].ack
		}
		states, err := a.store.Ack(ctx, acks)
		var refused *store.Refusal
		switch {
		case err == nil:
			a.role.ok()
			for i, s := range states {
				if s == store.AckStale && repeated {
					a.metrics.uncertain.Inc()
					continue
				}
				a.metrics.acked(batch[i].run.leased.Type, s)
			}
			a.forget(batch)
			return
		case errors.As(err, &refused) && len(batch) > 1: // one ack is refused; send the others without it
			a.role.ok()
			half := len(batch) / 2
			a.send(ctx, batch[:half:half])
			batch = batch[half:]
		case errors.As(err, &refused):
			a.role.ok()
			l := &batch[0].run.leased
			a.log.Error("the store refuses an ack; the job will run again when its lease has ended",
				"group", l.Group, "job", l.ID, "verdict", batch[0].ack.Verdict, "error", err)
			a.forget(batch)
			return
		default:
			repeated = true
			a.role.failed(ctx, err)
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// dropLost removes acks whose lease was lost to another run.
func (a *acker) dropLost(batch []pendingAck) []pendingAck {
	if !slices.ContainsFunc(batch, func(p pendingAck) bool { return p.run.lost.Load() }) {
		return batch
	}
	kept := batch[:0:0]
	var lost []pendingAck
	for _, p := range batch {
		if p.run.lost.Load() {
			lost = append(lost, p)
		} else {
			kept = append(kept, p)
		}
	}
	a.forget(lost)
	return kept
}

func (a *acker) forget(batch []pendingAck) {
	for _, p := range batch {
		a.runs.remove(p.run)
	}
	if len(batch) > 0 {
		a.pool.acked(len(batch))
	}
}

// flush waits until every ack is recorded or ctx ends, and returns how many are left. No ack may be added meanwhile.
func (a *acker) flush(ctx context.Context) (left int) {
	for {
		a.mu.Lock()
		left = len(a.queue)
		busy := a.busy
		a.mu.Unlock()
		if left == 0 && !busy {
			return 0
		}
		select {
		case <-a.empty:
		case <-ctx.Done():
			return a.pool.look(false).unacked
		}
	}
}

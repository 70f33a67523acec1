package bulk

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

// maxAckBytes bounds the bytes of one call of Ack, besides the number of acks.
const maxAckBytes = 1 << 20

// leastAcks is how many acks one call has at most, if worker.batch is not larger.
const leastAcks = 200

// ackTaker records acks.
type ackTaker interface {
	Ack(ctx context.Context, acks []store.Ack) ([]store.AckState, error)
}

type pendingAck struct {
	run  *run
	ack  store.Ack
	sent bool // an attempt without a reply may have taken effect
}

// acker sends acks to the store in batches: acks gather while a call is in progress. During an outage they wait for
// any length of time, since leases do not end before the store has been back for a whole lease. The pool bounds their number.
//
// While the fetcher pulls one time after the other, it sends them with its next pull: for few jobs a call costs the store little
// more than one ack. The acker leaves them to it for leaveFor.
type acker struct {
	store   ackTaker
	pool    *pool
	runs    *registry
	metrics *Metrics
	log     *slog.Logger
	role    *role
	batch   int
	spare   []pendingAck // memory of a sent batch, reused for the next queue; owned by run

	left atomic.Bool // to the fetcher

	mu    sync.Mutex
	since time.Time // when the first ack of queue was added, while they are left to the fetcher
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
	if len(a.queue) == 0 && a.left.Load() {
		a.since = time.Now()
	}
	a.queue = append(a.queue, pendingAck{run: r, ack: ack})
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *acker) run(ctx context.Context) {
	for {
		if d := a.patience(); d > 0 && sleep.For(ctx, d) {
			continue
		}
		batch := a.take()
		if len(batch) == 0 {
			select {
			case <-a.wake:
				gather()
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

// gather lets handlers that end at once end first, for one call with many acks instead of two.
func gather() {
	for range 2 {
		runtime.Gosched()
	}
}

// leaveFor is how long acks wait for the fetcher's next pull, besides the time for which it waits for its turn.
const leaveFor = time.Millisecond

// leave sets whether acks are left to the fetcher.
func (a *acker) leave(left bool) {
	if a.left.Swap(left) && !left {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// patience returns for how long the queued acks are left to the fetcher.
func (a *acker) patience() time.Duration {
	if !a.left.Load() {
		return 0
	}
	turn := a.pool.awaitsTurn()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 {
		return 0
	}
	if turn { // the pull follows soon
		return leaveFor
	}
	return leaveFor - time.Since(a.since)
}

// handOver returns all acks if they are at most n, for the fetcher, which sends them and calls recorded or giveBack.
func (a *acker) handOver(n int) []pendingAck {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 || len(a.queue) > n || sizeOf(a.queue) > maxAckBytes {
		return nil
	}
	batch := a.queue
	a.queue = nil
	return a.dropLost(batch)
}

func sizeOf(batch []pendingAck) (size int) {
	for i := range batch {
		size += len(batch[i].ack.Result) + len(batch[i].ack.Error)
	}
	return size
}

// giveBack returns acks to the queue that were handed over, and sends them soon.
func (a *acker) giveBack(batch []pendingAck) {
	a.mu.Lock()
	a.since = time.Time{}
	a.queue = append(batch, a.queue...)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// recorded counts acks that the store has answered.
func (a *acker) recorded(batch []pendingAck, states []store.AckState) {
	for i, s := range states {
		if s == store.AckStale && batch[i].sent {
			a.metrics.uncertain.Inc()
			continue
		}
		a.metrics.acked(batch[i].run.leased.Type, s)
	}
	a.forget(batch)
}

func acksOf(batch []pendingAck) []store.Ack {
	acks := make([]store.Ack, len(batch))
	for i := range batch {
		acks[i] = batch[i].ack
	}
	return acks
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
	for {
		batch = a.dropLost(batch)
		if len(batch) == 0 {
			a.role.ok()
			return
		}
		states, err := a.store.Ack(ctx, acksOf(batch))
		var refused *store.Refusal
		switch {
		case err == nil:
			a.role.ok()
			a.recorded(batch, states)
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
			for i := range batch {
				batch[i].sent = true
			}
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
			return a.pool.snapshot(false).unacked
		}
	}
}

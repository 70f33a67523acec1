package bulk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// BatchHandler runs jobs of one type and one group together. HandleBatch returns a result for each job, in their order.
// A job without a result is a failed try with the code "no_verdict". ctx ends with the type's timeout, or when every
// job of the batch has lost its lease or is cancelled.
type BatchHandler interface {
	HandleBatch(ctx context.Context, jobs []*Job) []BatchResult
}

// BatchHandlerFunc is a function that implements BatchHandler.
type BatchHandlerFunc func(ctx context.Context, jobs []*Job) []BatchResult

// HandleBatch calls f.
func (f BatchHandlerFunc) HandleBatch(ctx context.Context, jobs []*Job) []BatchResult {
	return f(ctx, jobs)
}

// BatchResult is the result of one job: what Handler.Handle returns for a job that runs alone.
type BatchResult struct {
	Result []byte
	Err    error
}

// Batching bounds the batches of a type.
type Batching struct {
	Most int           // jobs in a batch, 1 to MaxBatch; a smaller batch starts when all workers are busy or a limit lets no further job of it start
	Wait time.Duration // how long a job waits for others of its group, up to MaxBatchWait
}

const (
	// MaxBatch is the largest Batching.Most.
	MaxBatch = 500
	// MaxBatchWait is the longest Batching.Wait. Workers are busy meanwhile.
	MaxBatchWait = 10 * time.Second
	// maxBatchBytes bounds the payloads of a batch, except for its last job.
	maxBatchBytes = 1 << 20
)

// RegisterBatch sets the handler of a job type whose jobs run in batches. A job that has failed or crashed before runs
// alone, so that it cannot make others fail again. RegisterBatch panics after Run.
func (e *Engine) RegisterBatch(jobType string, h BatchHandler, b Batching) error {
	if b.Most < 1 || b.Most > MaxBatch {
		return fmt.Errorf("bulk: type %s: Batching.Most is %d: use 1 to %d jobs", jobType, b.Most, MaxBatch)
	}
	if b.Wait < 0 || b.Wait > MaxBatchWait {
		return fmt.Errorf("bulk: type %s: Batching.Wait is %s: use 0 to %s", jobType, b.Wait, MaxBatchWait)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.beforeRun("RegisterBatch")
	e.batched[jobType] = batchType{h, b}
	return nil
}

// batchType is a type whose jobs run in batches.
type batchType struct {
	handler BatchHandler
	Batching
}

// batches gathers jobs and runs them together. Each job occupies a worker from its pull on, and its lease is renewed.
type batches struct {
	*workers
	types map[string]batchType

	mu        sync.Mutex
	gathering map[batchKey]*batch
	checks    map[store.Hold]bool // due checks of hold
}

type batchKey struct{ jobType, group string }

// batch is jobs of one type and group.
type batch struct {
	members []*member
	bytes   int
	timer   *time.Timer
	until   time.Time // when timer ends
}

// member is a run in a batch. It leaves the batch when its job is cancelled or its lease is lost. The context of the batch
// ends when all members have left.
type member struct {
	*run
	mu   sync.Mutex
	gone bool
	end  func() // called when it leaves a running batch
}

func (m *member) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.gone && m.end != nil {
		m.end()
	}
	m.gone = true
}

// join sets the function that leave calls, and reports whether the member has not left yet.
func (m *member) join(end func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end = end
	return !m.gone
}

func newBatches(w *workers, types map[string]batchType) *batches {
	return &batches{workers: w, types: types, gathering: map[batchKey]*batch{}, checks: map[store.Hold]bool{}}
}

// start gathers a job, or starts one whose type has no batches.
func (b *batches) start(l store.Leased, since time.Time) {
	kind, batched := b.types[l.Type]
	if !batched {
		b.workers.start(l, since)
		return
	}
	m := &member{}
	m.run = b.open(l, since, m.leave)
	b.wg.Add(1)
	if kind.Most == 1 || l.Attempt > 1 || l.Crashes > 0 {
		go b.runBatch(kind, []*member{m})
		return
	}
	if full := b.add(kind, m); full != nil {
		go b.runBatch(kind, full)
	}
}

// add adds a run to the batch of its type and group, and returns the batch if it is to start.
func (b *batches) add(kind batchType, m *member) (full []*member) {
	key := batchKey{m.leased.Type, m.leased.Group}
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.gathering[key]
	if g == nil {
		g = &batch{until: time.Now().Add(kind.Wait)}
		g.timer = time.AfterFunc(kind.Wait, func() {
			if all := b.take(key, g); all != nil {
				b.runBatch(kind, all)
			}
		})
		b.gathering[key] = g
	}
	g.members = append(g.members, m)
	g.bytes += len(m.leased.Payload)
	if len(g.members) < kind.Most && g.bytes < maxBatchBytes && !b.pool.full() { // no more jobs come while all workers are busy
		return nil
	}
	g.timer.Stop()
	delete(b.gathering, key)
	return g.members
}

// limited starts the batches that no further job can join before they start anyway, because a limit of the pull p lets none start.
func (b *batches) limited(p *store.Pulled) {
	if p.Limited {
		b.begin(func(g *batch) bool { return p.Next >= time.Until(g.until) })
	}
	for _, h := range p.Held {
		b.hold(h, true)
	}
}

// holdCheck is how often a batch that a concurrency holds checks whether a run may still end that lets others start.
const holdCheck = 5 * time.Millisecond

// hold starts the batches that a limit holds. Of a concurrency, runs that do not gather may end and let others start: then it checks again,
// because the pull may have come before or after their acks. sure reports whether the check before found no such run.
func (b *batches) hold(h store.Hold, sure bool) {
	n := b.waiting(&h)
	if n == 0 {
		return
	}
	alone := h.For < store.UntilEvent || b.runs.count(h.Covers) <= n
	if alone && sure {
		b.begin(func(g *batch) bool { return h.Covers(&g.members[0].leased) && h.For >= time.Until(g.until) })
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.checks[h] {
		b.checks[h] = true
		time.AfterFunc(holdCheck, func() {
			b.mu.Lock()
			delete(b.checks, h)
			b.mu.Unlock()
			b.hold(h, alone)
		})
	}
}

// waiting returns how many jobs that a limit holds gather.
func (b *batches) waiting(h *store.Hold) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.gathering {
		if h.Covers(&g.members[0].leased) { // and so all of them
			n += len(g.members)
		}
	}
	return n
}

// take removes a batch that still gathers jobs and returns its members; nil if the batch has started.
func (b *batches) take(key batchKey, g *batch) []*member {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gathering[key] != g {
		return nil
	}
	g.timer.Stop()
	delete(b.gathering, key)
	return g.members
}

// flush starts all batches that still gather jobs.
func (b *batches) flush() { b.begin(func(*batch) bool { return true }) }

// begin starts the batches that still gather jobs and satisfy a condition.
func (b *batches) begin(is func(g *batch) bool) {
	b.mu.Lock()
	all := map[batchKey]*batch{}
	for key, g := range b.gathering {
		if is(g) {
			all[key] = g
		}
	}
	b.mu.Unlock()
	for key, g := range all {
		if members := b.take(key, g); members != nil {
			go b.runBatch(b.types[key.jobType], members)
		}
	}
}

// runBatch calls the handler for a batch and ends its runs.
func (b *batches) runBatch(kind batchType, all []*member) {
	jobType := all[0].leased.Type
	ctx, cancel := context.WithTimeout(b.ctx, b.policies.of(jobType).Timeout)
	defer cancel()
	var present sync.WaitGroup // members that have not left
	var members []*member
	for _, m := range all {
		present.Add(1)
		if !m.join(present.Done) {
			present.Done()
			b.finishMember(m, BatchResult{Err: context.Canceled}, context.Canceled)
			continue
		}
		m.began = time.Now()
		members = append(members, m)
	}
	if len(members) == 0 {
		return
	}
	go func() {
		present.Wait()
		cancel()
	}()
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(giveUpAfter, func() {
			for _, m := range members {
				b.giveUp(ctx, m.run)
			}
		})
	})
	leased := make([]*store.Leased, len(members))
	for i, m := range members {
		leased[i] = &m.leased
	}
	traced, run := b.tracer.RunBatch(ctx, leased)
	results := b.call(traced, kind.handler, members)
	run.End("", "", "")
	ended := ctx.Err()
	stop()
	for i, m := range members {
		r := BatchResult{Err: Fail("no_verdict", errors.New("the handler returned no result for this job of its batch"))}
		if i < len(results) {
			r = results[i]
		}
		b.finishMember(m, r, ended)
		m.leave()
	}
}

// call calls a handler. A panic of the handler is the result of each job.
func (b *batches) call(ctx context.Context, h BatchHandler, members []*member) (results []BatchResult) {
	jobs := make([]*Job, len(members))
	for i, m := range members {
		jobs[i] = jobOf(&m.leased)
	}
	returned := false
	defer func() { // runtime.Goexit in a handler
		if returned {
			return
		}
		err := b.caught(&members[0].leased, recover())
		results = make([]BatchResult, len(members))
		for i := range results {
			results[i].Err = err
		}
	}()
	results = h.HandleBatch(ctx, jobs)
	returned = true
	return results
}

// finishMember ends a run, unless it was given up.
func (b *batches) finishMember(m *member, result BatchResult, ended error) {
	if !m.over.CompareAndSwap(false, true) {
		b.metrics.abandoned.Dec()
		b.pool.returned()
		return
	}
	if m.called.Load() && ended == nil {
		ended = context.Canceled // for this job alone
	}
	b.end(m.run, b.verdict(m.run, result.Result, result.Err, ended))
	b.wg.Done()
}

package bulk

import (
	"context"
	"runtime"
	"sync"
)

// pool counts workers, running jobs, and runs whose ack is not recorded yet. Invariant: a job starts only while
// active < size and active + unacked < size + window, which bounds memory during an outage. Abandoned handlers beyond
// size count as active until they return, so that never more than twice size run.
type pool struct {
	mu      sync.Mutex
	size    int
	window  int
	active  int
	unacked int
	givenUp int           // abandoned handlers that have not returned
	peak    int           // highest active since the scaler's last tick
	more    bool          // the last pull left jobs
	changed chan struct{} // signals that a worker may be free; capacity 1
}

func newPool(size, window int) *pool {
	return &pool{size: size, window: window, changed: make(chan struct{}, 1)}
}

func (p *pool) tell() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *pool) freeLocked() int {
	active := p.active + max(0, p.givenUp-p.size)
	return max(0, min(p.size-active, p.size+p.window-active-p.unacked))
}

// full reports whether no worker is free.
func (p *pool) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.freeLocked() == 0
}

// abandon counts an abandoned handler, returned one that has returned after all.
func (p *pool) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.givenUp++
}

func (p *pool) returned() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.givenUp--
	p.tell()
}

// wait blocks until a worker is free and returns the number of free ones, or 0 if other is signalled first. ok is
// false when ctx ends first.
func (p *pool) wait(ctx context.Context, other <-chan struct{}) (free int, ok bool) {
	for {
		if ctx.Err() != nil {
			return 0, false
		}
		p.mu.Lock()
		free = p.freeLocked()
		p.mu.Unlock()
		if free > 0 {
			return free, true
		}
		select {
		case <-p.changed:
		case <-other:
			return 0, true
		case <-ctx.Done():
		}
	}
}

// settled lets handlers that end at once end first and returns the number of free workers: a pull of ten costs the
// store little more than a pull of one.
func (p *pool) settled() int {
	for range 2 {
		runtime.Gosched()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.freeLocked()
}

func (p *pool) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active++
	p.peak = max(p.peak, p.active)
}

// finish frees a worker whose ack is queued.
func (p *pool) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
	p.unacked++
	p.tell()
}

// acked counts n acks that are recorded or dropped.
func (p *pool) acked(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unacked -= n
	p.tell()
}

func (p *pool) resize(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = n
	p.tell()
}

// pulled records whether the last pull left jobs for more workers.
func (p *pool) pulled(more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.more = more
}

// load is a snapshot of the pool.
type load struct {
	size, active, unacked, limit int
	peak                         int  // highest active since the last reset
	starved                      bool // all were busy at once, and jobs are left
}

// look returns a snapshot; with reset, it resets the peak.
func (p *pool) look(reset bool) load {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := load{size: p.size, active: p.active, unacked: p.unacked, limit: p.size + p.window, peak: p.peak,
		starved: p.more && p.peak >= p.size}
	if reset {
		p.peak = p.active
	}
	return l
}

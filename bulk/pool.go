package bulk

import (
	"context"
	"runtime"
	"sync"
)

// pool counts workers: how many there may be, how many run, and how many runs await that the store takes their ack.
// Invariant: a job is started only where active < size and active + unacked < size + window, so that what is held in memory
// stays bounded while the store is away. Handlers that were given up beyond size count as active until they return, so that no
// more than twice size ever run.
type pool struct {
	mu      sync.Mutex
	size    int
	window  int
	active  int
	unacked int
	givenUp int           // handlers that were given up and have not returned
	peak    int           // most active since the scaler looked
	more    bool          // the last pull left work
	changed chan struct{} // told when a worker may have become free; holds one
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

// abandon counts a handler that was given up; returned, that it has returned after all.
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

// wait blocks until a worker is free and returns how many are: 0 where other is told first. ok is false when ctx ends first.
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

// settled lets handlers that end at once end first, and says how many workers are free then: a pull of ten costs the store
// little more than a pull of one.
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

// finish frees a worker; its ack is on its way.
func (p *pool) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
	p.unacked++
	p.tell()
}

// acked notes that n acks were taken, or will never be.
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

// pulled notes whether the last pull left work for more workers.
func (p *pool) pulled(more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.more = more
}

// load is a look at the pool.
type load struct {
	size, active, unacked, limit int
	peak                         int  // most active since the look before
	starved                      bool // all were busy at once, and there is work for more
}

// look reads the pool; with reset, the peak begins anew.
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

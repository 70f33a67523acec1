package bulk

import (
	"runtime"
	"sync"
)

// pool counts workers, running jobs, and runs whose ack is not recorded yet. Invariant: a job starts only while
// active < size and active + unacked < size + window, which bounds memory during an outage. Abandoned handlers beyond
// size count as active until they return, so that never more than twice size run. Jobs that wait for a worker (ahead) count as
// active too, and those for which a pull is in progress count towards the window. The lanes of several shards share the
// workers; the acks that wait for one shard, which may be away, do not hold up the others.
type pool struct {
	*slots
	unacked int           // of this lane
	more    bool          // this lane's last pull left jobs
	want    int           // most jobs of a pull
	changed chan struct{} // signals that it may be this lane's turn to pull; capacity 1
}

// slots are the workers that the lanes share.
type slots struct {
	mu      sync.Mutex
	size    int
	window  int
	active  int
	held    int // free workers for which a pull is in progress
	unacked int // of all lanes
	givenUp int // abandoned handlers that have not returned
	peak    int // highest active since the scaler's last tick
	left    int // lanes whose last pull left jobs
	turn    turn
	ahead   ahead
}

func newPool(size, window int) *pool {
	return newLanePool(&slots{size: size, window: window, ahead: ahead{mean: unknownRun}})
}

func newLanePool(s *slots) *pool { return &pool{slots: s, changed: make(chan struct{}, 1)} }

// lane returns a pool of another lane with the same workers.
func (p *pool) lane() *pool { return newLanePool(p.slots) }

func (p *pool) freeLocked() int {
	active := p.occupied() + len(p.ahead.jobs)
	return max(0, min(p.size-active, p.size+p.window-active-p.ahead.pulling-p.unacked))
}

// full reports whether no worker is free.
func (p *pool) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.freeLocked()+p.held <= 0
}

// abandon counts a handler that was abandoned; returned uncounts it once it has returned after all.
func (p *pool) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.givenUp++
}

func (p *pool) returned() {
	defer p.startNext()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.givenUp--
	p.wakeNext()
}

// hold lets handlers that end at once end first, since a pull of ten costs the store little more than a pull of one. Then
// it reserves up to most free workers for a pull and returns their number.
func (p *pool) hold(most int) int {
	for range 2 {
		runtime.Gosched()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(p.freeLocked(), most)
	p.held += n
	if p.turn.of == p {
		p.turn.holds = true
	}
	p.wakeNext() // another lane may wait for those that are left
	return n
}

// drop releases n reserved workers.
func (p *pool) drop(n int) {
	defer p.startNext()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held -= n; n > 0 {
		p.wakeNext()
	}
}

// start makes a worker active, a reserved one if there is one.
func (p *pool) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = max(0, p.held-1)
	p.active++
	p.peak = max(p.peak, p.active)
}

// finish frees a worker whose ack is queued.
func (p *pool) finish() {
	defer p.startNext()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
	p.unacked++
	p.slots.unacked++
	p.wakeNext()
}

// acked counts n acks that are recorded or dropped.
func (p *pool) acked(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unacked -= n
	p.slots.unacked -= n
	p.wakeNext()
}

func (p *pool) resize(n int) {
	defer p.startNext()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = n
	p.wakeNext()
}

// pulled ends the lane's turn and records whether its pull left jobs for more workers. full means that the pull found all jobs
// that it asked for.
func (p *pool) pulled(more, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if more != p.more {
		p.left += map[bool]int{true: 1, false: -1}[more]
	}
	p.more = more
	p.updateStay(full)
	p.endTurn()
}

// load is a snapshot of the pool.
type load struct {
	size, active, unacked, limit int
	peak                         int  // highest active since the last reset
	starved                      bool // all were busy at once, and jobs are left
}

// snapshot returns the pool's load; with reset, the peak then starts again from active.
func (p *pool) snapshot(reset bool) load {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := load{size: p.size, active: p.active, unacked: p.slots.unacked, limit: p.size + p.window, peak: p.peak,
		starved: p.left > 0 && p.peak >= p.size}
	if reset {
		p.peak = p.active
	}
	return l
}

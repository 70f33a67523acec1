package remote

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk"
)

const (
	longestWait = time.Second // between two pulls of a lane; bounds the cost of a lost event
	// shortestWait and longestPause bound the pause for a limit. After a longer pause one pull finds several jobs.
	shortestWait = 5 * time.Millisecond
	longestPause = 80 * time.Millisecond
)

// parking holds the requests that wait for jobs. Requests for the same types wait in one lane. After an event, or when a
// limit may let a job start, the first request of each lane pulls. While pulls leave jobs, the next request pulls when that
// pull has ended. A new request pulls at once.
type parking struct {
	most    int
	metrics *bulk.LeaseMetrics

	mu       sync.Mutex
	lanes    map[string]*lane
	seq      int64
	events   int64
	requests int             // that wait or pull again
	parked   int             // that wait in a lane
	pulls    int             // in progress
	some     []chan struct{} // by shard: signals that a request waits; capacity 1
	closed   chan struct{}   // closed while no request may wait
}

// lane has the requests that wait for the same types, in the order in which they came.
type lane struct {
	name    string
	waiting []*place
	places  int           // requests that wait or pull
	pulling int           // requests that pull, or were woken to pull
	again   bool          // when their pulls have ended, the first waiting request pulls
	pause   time.Duration // next pause for a limit
	timer   *time.Timer   // wakes the first waiting request; nil: not set
	due     time.Time     // when timer fires
	quiet   []time.Time   // by shard: until when a pull is not expected to find jobs, unless there is an event
}

// place is one request.
type place struct {
	*parking
	lane   *lane
	seq    int64
	before int64 // parking.events when its pull began
	counts bool  // it is counted in lane.pulling
	waits  bool  // it is counted in parking.requests
	wake   chan struct{}
}

func newParking(most, shards int, m *bulk.LeaseMetrics) *parking {
	p := &parking{most: most, metrics: m, lanes: map[string]*lane{}, closed: make(chan struct{})}
	for range shards {
		p.some = append(p.some, make(chan struct{}, 1))
	}
	close(p.closed)
	return p
}

// open lets requests wait until close.
func (p *parking) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = make(chan struct{})
}

func (p *parking) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.closed)
}

// occupied returns true as soon as a request is parked, or false when ctx ends. Each shard has one caller.
func (p *parking) occupied(ctx context.Context, shard int) bool {
	for ctx.Err() == nil {
		p.mu.Lock()
		n := p.parked
		p.mu.Unlock()
		if n > 0 {
			return true
		}
		select {
		case <-p.some[shard]:
		case <-ctx.Done():
		}
	}
	return false
}

// event wakes the first request of each lane for an event of a shard, and reports whether any request waits or pulls.
func (p *parking) event(shard int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events++
	for _, l := range p.lanes {
		l.quiet[shard] = time.Time{}
		p.wakeFirst(l)
	}
	return p.parked+p.pulls > 0
}

// enter returns the place of a request.
func (p *parking) enter(types []string) *place {
	name := strings.Join(slices.Sorted(slices.Values(types)), " ")
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lanes[name]
	if l == nil {
		l = &lane{name: name, pause: shortestWait, quiet: make([]time.Time, len(p.some))}
		p.lanes[name] = l
	}
	p.seq++
	l.places++
	return &place{parking: p, lane: l, seq: p.seq, wake: make(chan struct{}, 1)}
}

// leave ends a request.
func (p *place) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lane.places--
	if p.waits {
		p.setRequests(-1)
	}
	if p.lane.places == 0 {
		p.lane.stop()
		delete(p.lanes, p.lane.name)
	}
}

// pull begins a pull of the request.
func (p *place) pull() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulls++
	p.before = p.events
	p.count(true)
}

// pulled ends a pull that found jobs, or none.
func (p *place) pulled(found *found) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulls--
	l := p.lane
	switch {
	case len(found.jobs) > 0:
		l.pause = shortestWait
	case found.next > 0:
		l.pause = min(2*l.pause, longestPause)
	}
	d := longestWait
	if found.next > 0 {
		d = min(max(found.next, l.pause), longestWait)
	}
	p.arm(l, d)
	p.next(found.more)
}

// turns returns the shards in the order in which the request asks them: first those that may have jobs, from another one for each
// request, then the quiet ones, of which there are quiet.
func (p *place) turns() (order []int, quiet int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, shards := time.Now(), len(p.some)
	var later []int
	for i := range shards {
		n := int((p.seq + int64(i)) % int64(shards))
		if now.Before(p.lane.quiet[n]) {
			later = append(later, n)
		} else {
			order = append(order, n)
		}
	}
	return append(order, later...), len(later)
}

// noteShard records until when a pull of the lane is not expected to find jobs in a shard: 0 if it may now. before is parking.events before
// the pull, since a later event may be about new jobs.
func (p *place) noteShard(n int, quiet time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.events == p.before {
		p.lane.quiet[n] = time.Now().Add(quiet)
	}
}

// failed ends a pull to which the store has not replied.
func (p *place) failed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulls--
	p.arm(p.lane, longestWait)
	p.next(false)
}

// next ends the turn of a request. It lets the first waiting request pull if more is set or an event came meanwhile.
// The caller holds the lock.
func (p *place) next(more bool) {
	p.count(false)
	if more || p.lane.again {
		p.lane.again = false
		p.wakeFirst(p.lane)
	}
}

// count sets whether the request is counted in lane.pulling. The caller holds the lock.
func (p *place) count(pulls bool) {
	if p.counts != pulls {
		p.counts = pulls
		p.lane.pulling += map[bool]int{true: 1, false: -1}[pulls]
	}
}

// wait parks the request until a pull may find jobs. It returns false when the wait is over, with ErrBusy if the
// request may not wait.
func (p *place) wait(ctx context.Context, stop <-chan struct{}, until time.Time) (again bool, err error) {
	left := time.Until(until)
	if left <= 0 {
		return false, nil
	}
	closed, missed, err := p.park()
	if missed || err != nil {
		return missed, err
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-p.wake:
		return true, nil
	case <-timer.C:
	case <-ctx.Done():
	case <-stop:
	case <-closed:
	}
	p.unpark()
	return false, nil
}

// park adds the request to its lane, unless there was an event since its pull began.
func (p *place) park() (closed <-chan struct{}, missed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.before != p.events {
		return nil, true, nil
	}
	if !p.waits {
		if p.requests >= p.most {
			p.metrics.Refused.Inc()
			return nil, false, ErrBusy
		}
		p.waits = true
		p.setRequests(1)
	}
	l := p.lane
	at, _ := slices.BinarySearchFunc(l.waiting, p.seq, func(other *place, seq int64) int { return int(other.seq - seq) })
	l.waiting = slices.Insert(l.waiting, at, p)
	p.parked++
	if l.timer == nil { // it fired meanwhile
		p.arm(l, l.pause)
	}
	for _, some := range p.some {
		select {
		case some <- struct{}{}:
		default:
		}
	}
	return p.closed, false, nil
}

// unpark removes the request from its lane. If it was woken meanwhile, it wakes the next.
func (p *place) unpark() {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lane
	if at := slices.Index(l.waiting, p); at >= 0 {
		l.waiting = slices.Delete(l.waiting, at, at+1)
		p.parked--
		return
	}
	p.next(true)
}

// wakeFirst lets the first waiting request of a lane pull, once no other request of the lane pulls. The caller holds the lock.
func (p *parking) wakeFirst(l *lane) {
	if l.pulling > 0 {
		l.again = true
		return
	}
	if len(l.waiting) == 0 {
		return
	}
	first := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	p.parked--
	first.count(true)
	first.wake <- struct{}{}
}

// arm sets the timer of a lane to d, unless it fires sooner. The caller holds the lock.
func (p *parking) arm(l *lane, d time.Duration) {
	due := time.Now().Add(d)
	if l.timer != nil {
		if !due.Before(l.due) {
			return
		}
		l.timer.Stop()
	}
	l.due = due
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if l.timer == timer { // otherwise it was replaced
			l.timer = nil
			p.wakeFirst(l)
		}
	})
	l.timer = timer
}

func (l *lane) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

func (p *parking) setRequests(n int) {
	p.requests += n
	p.metrics.Waiting.Set(float64(p.requests))
}

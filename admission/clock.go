package admission

import (
	"sync/atomic"
	"time"
)

// clock estimates the store's two clocks from its last reply: Redis's clock, and order time, by which tickets are ordered.
type clock struct {
	core    *Core
	anchor  atomic.Pointer[anchor]
	_       [64]byte     // every join writes lastOrd, and every request reads the fields around it
	lastOrd atomic.Int64 // the last order that this process gave
	_       [56]byte
}

// anchor ties this process's clock to the store's two.
type anchor struct {
	time, wall int64
	mono       int64 // half-way between the call and its reply
	replied    int64 // mono of the reply: the clocks were read before it
	own        int64 // this machine's clock then, µs
	step       step
}

// Now returns order time in microseconds, estimated from the last reply of the store. It runs on while the store is away, and is
// 0 before the first reply.
func (r *clock) Now() int64 {
	a := r.anchor.Load()
	if a == nil {
		return 0
	}
	return a.time + (r.core.mono()-a.mono)/1000
}

// RedisNow returns Redis's clock in microseconds, estimated likewise; iat and exp of tokens are seconds of it. Before the first
// reply it is this machine's clock.
func (r *clock) RedisNow() int64 {
	if r.core.o.Now != nil {
		return r.core.o.Now()
	}
	a := r.anchor.Load()
	if a == nil {
		return time.Now().UnixMicro()
	}
	return a.wall + (r.core.mono()-a.mono)/1000
}

// orderLead returns how far order time is ahead of Redis's clock.
func (r *clock) orderLead() int64 {
	if a := r.anchor.Load(); a != nil {
		return a.time - a.wall
	}
	return 0
}

// nextOrder returns the order of a visitor who joins now; the orders of one process ascend. Before the first reply of the store
// it is this machine's clock.
func (r *clock) nextOrder() int64 {
	if r.anchor.Load() == nil {
		return r.ascend(r.RedisNow())
	}
	return r.ascend(r.Now())
}

func (r *clock) ascend(to int64) int64 {
	for {
		last := r.lastOrd.Load()
		next := max(to, last+1)
		if r.lastOrd.CompareAndSwap(last, next) {
			return next
		}
	}
}

// storeGap is GAP of lua/lib/room.lua: the least jump of Redis's clock, µs, that counts as a silence of the store.
const storeGap = 5_000_000

// restartFall is the least decrease of order time, µs, that shows that an empty room has restarted it.
const restartFall = 30_000_000

// sync ties this process's clock to the store's by a reply. It returns how far Redis's clock jumped since the reply before, µs;
// 0 for less than a silence of the store.
func (r *clock) sync(h header, sent, replied int64) (jump int64) {
	mono := (sent + replied) / 2
	old := r.anchor.Load()
	if old != nil && mono < old.mono && r.core.o.Now == nil { // overtaken by a later reply
		return 0
	}
	if old == nil || h.time < old.time-restartFall {
		r.lastOrd.Store(0) // earlier orders came from another clock
	}
	next := &anchor{time: h.time, wall: h.wall, mono: mono, replied: replied, own: r.core.ownWall()}
	if old != nil {
		next.step = old.stepTo(next)
	}
	r.anchor.Store(next)
	if old == nil {
		return 0
	}
	if jump = h.time - old.time - (mono-old.mono)/1000; jump <= storeGap {
		return 0
	}
	return jump
}

// step is a step forward of Redis's clock, as when a replica whose clock is ahead becomes the master. Tokens signed before the
// step end by the clock before it.
type step struct {
	by int64 // µs; 0: none
	at int64 // Redis's clock before it, µs
}

const (
	// leastStep is the least step of Redis's clock, µs: late replies differ by less.
	leastStep = 2_000_000
	// stepLife is for how long a step counts: the longest life of a token.
	stepLife = int64(24 * time.Hour / time.Microsecond)
)

// stepTo returns the step in force at the next anchor. After a suspension of this machine its own clock shows the same
// difference, so that is no step.
func (a *anchor) stepTo(next *anchor) step {
	passed := (next.mono - a.mono) / 1000
	by, own := next.wall-a.wall-passed, next.own-a.own-passed
	s := a.step
	switch {
	case by < -leastStep:
		s.by = max(0, s.by+by)
	case by > leastStep && (own < by-leastStep || own > by+leastStep):
		s = step{by: s.by + by, at: a.wall + passed}
	}
	if s.by == 0 || next.wall-s.by-s.at > stepLife {
		return step{}
	}
	return s
}

// Stepped returns by how much Redis's clock lately stepped forward, and its time before that, both in µs. A token signed before
// the step ends by RedisNow less the step. Without a step it returns 0, 0.
func (r *clock) Stepped() (by, at int64) {
	a := r.anchor.Load()
	if a == nil {
		return 0, 0
	}
	return a.step.by, a.step.at
}

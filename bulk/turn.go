package bulk

import (
	"context"
	"slices"
	"time"
)

// turn makes the lanes of a process pull one after the other while there are not enough workers for a whole pull of each. If
// lanes pulled at the same time, each would take the few workers that are free at that moment, and a pull of five jobs costs a
// store almost as much as one of fifty. So a process with several shards makes as few calls as with one.
//
// A turn lasts from the reservation of the workers until the jobs have been started. A slow shard loses its turn after turnFor. A lane
// with many short jobs keeps the turn for several pulls (stay.go).
// The fields are guarded by the mutex of slots.
type turn struct {
	of      *pool     // the lane whose turn it is; nil: none
	since   time.Time // when its turn began
	holds   bool      // it has reserved its workers
	stay    stay
	waiting []*pool // lanes that wait for a worker or their turn, in order
}

// turnFor is how long a lane waits for another one's pull: longer than a pull takes on a busy machine, and short beside the
// time for which a shard that halts holds up its callers.
const turnFor = 50 * time.Millisecond

// wait blocks until a worker is free and the lane may pull up to most jobs. It returns the number of free workers, or 0 if no
// worker is free and other is signalled first. ok is false when ctx ends first. Unless it returns 0, the caller ends the turn with
// pulled.
func (p *pool) wait(ctx context.Context, most int, other <-chan struct{}) (free int, ok bool) {
	defer p.leave()
	for ctx.Err() == nil {
		free, later := p.beginTurn(most)
		if free > 0 {
			return free, true
		}
		if later > 0 { // workers are free; the event can wait for the turn
			overdue := time.NewTimer(later)
			select {
			case <-p.changed:
			case <-overdue.C:
			case <-ctx.Done():
			}
			overdue.Stop()
			continue
		}
		select {
		case <-p.changed:
		case <-other:
			return 0, true
		case <-ctx.Done():
		}
	}
	return 0, false
}

// beginTurn begins the lane's turn and returns the number of free workers. If the turn has to wait, free is 0, and later is when the
// other lane's turn or stay is over at the latest, or 0 if no worker is free.
func (p *pool) beginTurn(most int) (free int, later time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want = most
	if !slices.Contains(p.turn.waiting, p) {
		p.turn.waiting = append(p.turn.waiting, p)
	}
	now := time.Now()
	free = p.freeLocked()
	if next := p.nextLocked(now); next == p {
		p.turn.of, p.turn.since, p.turn.holds = p, now, false
		p.leaveLocked()
		return free, 0
	}
	p.wakeNext()
	switch {
	case free == 0:
		return 0, 0
	case p.turn.of == nil:
		later = p.turn.stay.until.Sub(now)
	default:
		later = turnFor - now.Sub(p.turn.since)
	}
	return 0, max(time.Millisecond, later)
}

// nextLocked returns the first waiting lane that may pull now, or nil.
func (s *slots) nextLocked(now time.Time) *pool {
	others := 0 // workers that the lane whose turn it is will reserve
	if s.turn.of != nil && !s.turn.holds {
		others = s.turn.of.want
	}
	for _, p := range s.turn.waiting {
		free := p.freeLocked()
		if free == 0 || p.waitsForStay(free, now) {
			continue
		}
		if s.turn.of == nil || free >= p.want+others || s.overdue(now) {
			return p
		}
	}
	return nil
}

// overdue reports whether the lane whose turn it is takes longer than turnFor. The caller has the lock.
func (s *slots) overdue(now time.Time) bool {
	return s.turn.of != nil && now.Sub(s.turn.since) >= turnFor
}

// wakeNext wakes the lane that may pull now. The caller has the lock.
func (s *slots) wakeNext() {
	if len(s.turn.waiting) == 0 {
		return
	}
	if p := s.nextLocked(time.Now()); p != nil {
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
}

// endTurn ends the lane's turn, unless another lane has begun one meanwhile. The caller has the lock.
func (p *pool) endTurn() {
	if p.turn.of == p {
		p.turn.of = nil
		p.wakeNext()
	}
}

// leave removes the lane from those that wait.
func (p *pool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaveLocked() {
		p.wakeNext() // it may have been woken in place of the next
	}
}

func (p *pool) leaveLocked() (was bool) {
	k := slices.Index(p.turn.waiting, p)
	if k < 0 {
		return false
	}
	p.turn.waiting = slices.Delete(p.turn.waiting, k, k+1)
	return true
}

// awaitsTurn reports whether the lane waits for the end of another lane's pull. A lane that waits for the end of a stay does not.
func (p *pool) awaitsTurn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.turn.of != nil && p.turn.of != p && slices.Contains(p.turn.waiting, p) && !p.waitsForStay(p.freeLocked(), time.Now())
}

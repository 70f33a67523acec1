package bulk

import "time"

// stay lets a lane keep the turn for several pulls while others have jobs as well: its acks then gather as with one shard, so that
// fewer calls have as many jobs. A stay ends when a pull finds fewer jobs than it asked for, or when its time is over.
//
// Between the pulls of the lane that stays, two kinds of lanes may pull: those whose last pull found all jobs, so that jobs in an
// idle shard start as soon as with one shard, and any lane if there are enough workers for a whole pull of both.
//
// The fields are guarded by the mutex of slots.
type stay struct {
	of    *pool // the lane that stays; nil: none
	until time.Time
}

const (
	// stayRound is the time in which all lanes with jobs have stayed once, besides one pull of each. It bounds how long jobs of one
	// shard wait for the workers while other shards have jobs. A stay is half of it at most, and so no longer than turnFor: that of a
	// shard that halts is over when its turn is.
	stayRound = 100 * time.Millisecond
	// stayMost is the mean run time up to which lanes stay: a worker runs several jobs during a stay. With longer jobs the workers
	// that become free at one moment would all go to one shard.
	stayMost = 5 * time.Millisecond
)

// stayFor returns how long a lane stays if so many lanes have jobs.
func stayFor(lanes int) time.Duration { return stayRound / time.Duration(max(2, lanes)) }

// updateStay begins, continues or ends the lane's stay after a pull. full means that the pull found all jobs that it asked for. The caller
// has the lock.
func (p *pool) updateStay(full bool) {
	now := time.Now()
	if s := p.staying(now); s != nil && s != p { // the lane pulled between pulls of another one
		return
	}
	t := &p.turn.stay
	switch {
	case !full || !p.more || p.ahead.mean > stayMost:
		t.of = nil
	case t.of != p:
		t.of, t.until = p, now.Add(stayFor(p.left))
	case !now.Before(t.until):
		t.of = nil
	}
}

// staying returns the lane that stays, or nil. The caller has the lock.
func (s *slots) staying(now time.Time) *pool {
	p := s.turn.stay.of
	if p == nil || !now.Before(s.turn.stay.until) || p.freeLocked() == 0 && s.turn.of != p {
		return nil
	}
	return p
}

// waitsForStay reports whether the lane, which has some free workers, waits until another lane's stay ends. The caller has the lock.
func (p *pool) waitsForStay(free int, now time.Time) bool {
	s := p.staying(now)
	return s != nil && s != p && p.more && free < p.want+s.want
}

// endStay ends the lane's stay, because it does not pull for now.
func (p *pool) endStay() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turn.stay.of == p {
		p.turn.stay.of = nil
		p.wakeNext()
	}
}

package gateway

import (
	"sync"
	"time"

	"github.com/anteroom/anteroom/admission"
)

// kept is how many promises a room remembers: enough for the error of its estimates, bounded in memory.
const kept = 4096

// promises remembers what some visitors were told about their wait when they joined, until they are let in. The zero
// value is ready.
type promises struct {
	mu   sync.Mutex
	made map[admission.ID]promise
	ring [kept]struct {
		id admission.ID
		at int64
	}
	next int
	// recent holds promised over real of those let in lately.
	recent recent
}

type promise struct {
	at      int64 // µs of Redis's clock
	seconds int64
}

// least is how long a promise is remembered, in µs, so that a flood of arrivals does not sweep out all that anybody
// was told before it.
const least = 60_000_000

// make remembers a promise. The oldest one gives way, unless it is younger than least: a sample is enough.
func (p *promises) make(id admission.ID, at, seconds int64) {
	if !p.mu.TryLock() { // a sample is enough
		return
	}
	defer p.mu.Unlock()
	if p.made == nil {
		p.made = make(map[admission.ID]promise, kept)
	}
	oldest := &p.ring[p.next]
	if oldest.at > 0 && at >= oldest.at && at-oldest.at < least {
		return
	}
	delete(p.made, oldest.id)
	oldest.id, oldest.at = id, at
	p.next = (p.next + 1) % kept
	p.made[id] = promise{at, seconds}
}

// due gives what was promised over what came true, and forgets it; 0 where nothing was promised or the wait was under a
// second.
func (p *promises) due(id admission.ID, admittedAt int64) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	made, ok := p.made[id]
	delete(p.made, id)
	if real := float64(admittedAt-made.at) / 1e6; ok && real >= 1 {
		ratio := float64(made.seconds) / real
		p.recent.add(time.Now(), ratio, false)
		return ratio
	}
	return 0
}

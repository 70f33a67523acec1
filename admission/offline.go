package admission

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission/limiter"
	"github.com/anteroom/anteroom/admission/policy"
	"github.com/anteroom/anteroom/admission/snapshot"
)

// local counts what this gateway admits while the store is away.
type local struct {
	mu    sync.Mutex
	since int64           // mono when the store went away, ns
	meter limiter.Limiter // of this gateway's share; nil before its first use
	rate  int64           // of meter
	given int64           // admitted since, less the sessions that origins ended here
	owed  atomic.Int64    // admitted, and not charged to the store's limiter yet
}

func (l *local) begin(mono int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since, l.meter, l.given = mono, nil, 0
}

// share takes one admission from this gateway's share: of the room's rate, and of the slots that were free in the last snapshot.
// The other gateways have equal shares. A session that goes silent frees no slot before the store is back.
func (l *local) share(s *Snapshot, mono int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, g := &s.Policy, max(1, s.Gateways)
	if p.MaxActive > 0 && l.given >= max(0, p.MaxActive-s.Active-s.Admitted)/g {
		return false
	}
	if rate := p.LocalRate() / g; l.meter == nil || l.rate != rate {
		at := mono
		if l.meter == nil {
			at = l.since
		}
		l.meter, l.rate = spentMeter(p.Strategy, rate, max(1000, p.LocalBurst()/g), at/1000), rate
	}
	l.meter.Refill(mono / 1000)
	ok := l.meter.Available() >= 1
	if ok {
		l.meter.Take(1)
		l.given++
		l.owed.Add(1)
	}
	return ok
}

// spentMeter returns a limiter that has nothing to grant at a time, µs.
func spentMeter(s Strategy, rate, burst, at int64) limiter.Limiter {
	switch s {
	case StrategyFixedWindow:
		w := &limiter.FixedWindow{Rate: rate}
		w.Refill(at)
		w.Exhaust()
		return w
	case StrategyLeakyBucket:
		return &limiter.LeakyBucket{TokenBucket: limiter.TokenBucket{At: at, Rate: rate, Burst: 1000}}
	}
	return &limiter.TokenBucket{At: at, Rate: rate, Burst: burst}
}

// ended frees the place of a session that its origin ended here.
func (l *local) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.given--
}

// reached returns how many tickets of the last snapshot's queue the whole room has admitted by now.
func (l *local) reached(p *Policy, mono int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return (mono - l.since) / 1e6 * p.LocalRate() / 1e6
}

// offline decides about joins and polls while the store is away, by on_store_error.
type offline struct {
	identity
	view        *view
	store       *store
	memory      *memory
	sessions    *sessions
	joinLimiter *joinLimiter
	signed      signed
}

// joinOffline decides about a join by on_store_error. counted: the join limiter has counted it. A join by a key or an account is
// counted only where it is admitted, since places in the queue are counted when they are enrolled. back is the pass whose order
// the place keeps; nil: none. sessionOnly: as in Arrival.
func (r *offline) joinOffline(t Ticket, back *Return, counted, sessionOnly bool) (Standing, Refusal, error) {
	snap := r.view.Snapshot()
	p := &snap.Policy
	if back != nil && (r.view.anchor.Load() == nil || r.sessions.Revoked(back.Session) || r.sessions.goesOn(back)) {
		back = nil
	}
	queued := snap.Waiting > 0 || len(snap.Pending) > 0
	if m, ok := r.memory.get(t.ID, r.c.mono()); ok { // an account or a key that this gateway knows
		if s, spent := r.spentOffline(t, m); spent {
			return s, Granted, nil
		}
	}
	switch {
	case p.OnStoreError == OnErrorClosed:
		return Standing{}, Unavailable, nil
	case queued || !snap.Admits() || p.MinWait > 0:
		// A new visitor never passes those who wait.
	case p.OnStoreError == OnErrorOpen,
		p.OnStoreError == OnErrorLocal && r.store.local.share(snap, r.c.mono()):
		if !counted {
			if wait, reason := r.joinLimiter.join(t.Address, p, r.c.mono()); wait > 0 {
				return Standing{Reason: reason, Retry: wait}, TooMany, nil
			}
		}
		s := r.activeOffline(t)
		s.New = true
		if back != nil {
			r.sessions.Revoke(back.Session)
		}
		return s, Granted, nil
	}
	if sessionOnly {
		return Standing{}, MustWait, nil
	}
	// This gateway may have reached the store and have no snapshot yet.
	t.Fence = max(snap.Fence, r.store.knowledge().fence)
	if snap.Gathering() {
		return Standing{State: Waiting, Ticket: t, Renewed: true, Offline: true, Gathering: true, New: true}, Granted, nil
	}
	if back != nil {
		return r.comeBackOffline(t, back), Granted, nil
	}
	t.Order = r.view.nextOrder()
	if r.view.length(snap) < snapshot.FrontSize(p.Rate) {
		r.signed.add(t)
	}
	return Standing{State: Waiting, Ticket: t, Renewed: true, Offline: true, New: true}, Granted, nil
}

// checkOffline decides about a poll by on_store_error: the ticket waits, or is admitted in the order of the last snapshot. A
// gateway without a snapshot admits tickets only, since new visitors must not pass them.
func (r *offline) checkOffline(t Ticket) Standing {
	if m, ok := r.memory.get(t.ID, r.c.mono()); ok {
		if s, spent := r.spentOffline(t, m); spent {
			return s
		}
	}
	snap := r.view.Snapshot()
	p := &snap.Policy
	if snap.Admits() && (r.store.away.Load() || !snap.Known) && (p.MinWait == 0 || snap.Known && r.view.Now()-t.Order >= p.MinWait.Microseconds()) {
		switch p.OnStoreError {
		case OnErrorOpen:
			return r.activeOffline(t)
		case OnErrorLocal:
			if r.aheadOffline(t, snap) < r.store.local.reached(p, r.c.mono()) && r.store.local.share(snap, r.c.mono()) {
				return r.activeOffline(t)
			}
		}
	}
	t, renewed := r.recordPoll(t)
	return Standing{State: Waiting, Ticket: t, Renewed: renewed, Offline: true, Gathering: t.Order == 0}
}

// recordPoll records the poll in the ticket, since the store cannot: visitors of a gateway that alone is cut off are not late
// afterwards. It does so for at most endedMemory after the store confirmed the ticket. The store remembers ended tickets for that
// long beyond absence, and a ticket that ended elsewhere must not become valid again.
func (r *offline) recordPoll(t Ticket) (_ Ticket, renewed bool) {
	confirmed := t.confirmed()
	if confirmed == 0 {
		return t, false
	}
	now := r.view.Now()
	if now == 0 || t.Fence == 0 {
		now = r.view.RedisNow()
	}
	now = min(now, r.view.Snapshot().After(confirmed, endedMemory))
	if now-t.lastAnswered() <= r.view.quarter().Microseconds()/2 {
		return t, false
	}
	t.Heard = now
	return t, true
}

// spentOffline returns the Standing of a ticket that this gateway remembers as claimed or ended. The client that claimed the ticket
// gets the same session again for as long as the store would return it; for other clients the ticket has ended.
func (r *offline) spentOffline(t Ticket, m remembered) (s Standing, spent bool) {
	s = m.standing
	s.Ticket, s.Offline = t, true
	switch s.State {
	case Active:
		window := r.view.schedule.Load().Policy.ClaimWindow.Microseconds()
		ttl := int64(r.view.Snapshot().Policy.SessionTTL)
		over := r.c.mono()-max(m.at, r.sessions.lastBeat(t.ID)) > ttl+ttl/2
		if m.client != t.Client || t.Client == (Client{}) || r.store.presenceNow()-m.seenAt > window || over {
			s.State, s.Reason = Ended, ReasonClaimed
		}
		return s, true
	case Ended:
		return s, true
	}
	return Standing{}, false
}

// aheadOffline returns how many tickets are ahead of a ticket, by its token alone. A ticket that the store would find late, or whose
// order is on another clock, has all others ahead, so that hoarded tokens gain nothing.
func (r *offline) aheadOffline(t Ticket, snap *Snapshot) int64 {
	if t.Fence == 0 || snap.Elapsed(t.lastAnswered(), r.store.presenceNow()) > snap.Policy.Absence {
		return r.view.Ahead(math.MaxInt64)
	}
	return r.view.Ahead(t.Order)
}

// activeOffline makes a session. Its heartbeat registers the session when the store is back.
func (r *offline) activeOffline(t Ticket) Standing {
	s := Standing{State: Active, Ticket: t, AdmittedAt: r.view.RedisNow(), ClaimedAt: r.view.Now(), Offline: true}
	r.memory.put(t.ID, remembered{standing: s, at: r.c.mono(), client: t.Client, seenAt: r.view.Now()})
	r.sessions.Touch(t.ID, true)
	return s
}

// joinAccountOffline finds the account's place in this gateway's memory, or gives one. If two gateways give the same id, the store
// makes one place of both.
func (r *offline) joinAccountOffline(a Arrival, t Ticket, held Refusal) (Standing, Refusal, error) {
	now := r.c.mono()
	free, spent := -1, -1
	if a.Return != nil && a.Return.Session.Of(a.ID) { // that place and those before it have ended
		spent = int(a.Return.Session[15] - a.ID[15])
	}
	for i := range generations * (1 + len(a.Former)) {
		n := i % generations
		t.ID = a.bases()[i/generations].generation(n)
		m, known := r.memory.get(t.ID, now)
		switch {
		case !known:
			if free < 0 && i < generations && n > spent && !r.sessions.Revoked(t.ID) {
				free = n
			}
			continue
		case m.standing.State == Active:
			m.client = t.Client // any device of the account
			if s, _ := r.spentOffline(t, m); s.State == Active {
				return s, Granted, nil
			}
		case m.standing.State == Waiting, m.standing.State == Admitted:
			s := Standing{State: Waiting, Ticket: m.standing.Ticket, Renewed: true, Offline: true}
			if m.standing.State == Admitted { // its token must stay valid until it is claimed
				k := r.store.knowledge()
				s.Ticket.Order, s.Ticket.Seen, s.Ticket.Epoch, s.Ticket.Fence = r.view.Now(), r.view.Now(), k.epoch, k.fence
			}
			s.Ticket.Client, s.Ticket.Interval = t.Client, t.Interval
			return s, Granted, nil
		}
	}
	switch {
	case a.Held:
		return Standing{State: Ended, Ticket: t, Offline: true}, Granted, nil
	case held != Granted:
		return Standing{}, held, nil
	case free < 0:
		return Standing{}, Spent, nil
	}
	t.ID = a.ID.generation(free)
	return r.joinOffline(t, a.Return, false, a.SessionOnly)
}

// comeBackOffline gives a visitor who returns a place in the order of the pass. The ticket counts as confirmed now; the store
// ends the former session when it is back.
func (r *offline) comeBackOffline(t Ticket, back *Return) Standing {
	now := r.view.Now()
	t.Order, t.Seen, t.Fence = min(back.Order, now), now, back.Fence
	s := Standing{State: Waiting, Ticket: t, Renewed: true, Offline: true, New: true}
	r.memory.put(t.ID, remembered{standing: s, at: r.c.mono(), client: t.Client, seenAt: now, hold: policy.JoinHold(t.Interval)})
	r.signed.add(t)
	r.sessions.Revoke(back.Session)
	return s
}

// signedMost limits the remembered places to a front of the largest size. Visitors farther back poll before the front reaches
// them.
const signedMost = 20000

// signed are the places that this gateway gave in a short queue while the store was away. It enrols them when the store is back;
// their own first polls would enrol them behind visitors who join meanwhile.
type signed struct {
	mu    sync.Mutex
	given []enterQ
}

func (s *signed) add(t Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.given) < signedMost {
		s.given = append(s.given, enterQ{kind: "signed", id: t.ID, client: t.Client, hold: policy.JoinHold(t.Interval), t: t})
	}
}

// enrolSigned enrols the signed places. A place that a poll has enrolled meanwhile stays as it is, and an ended one stays ended.
func (r *offline) enrolSigned(ctx context.Context) error {
	for {
		r.signed.mu.Lock()
		qs := r.signed.given[:min(batchMost, len(r.signed.given))]
		r.signed.mu.Unlock()
		if len(qs) == 0 {
			return nil
		}
		if _, _, err := r.store.do(ctx, r.c.tickTimeout(), "room_enter", enterArgs(qs)...); redis.IsOOMError(err) {
			return nil // tried again later: a full store takes no new tickets
		} else if err != nil {
			return err
		}
		r.signed.mu.Lock()
		r.signed.given = r.signed.given[len(qs):]
		if len(r.signed.given) == 0 {
			r.signed.given = nil
		}
		r.signed.mu.Unlock()
	}
}

package admission

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// remembered is the last reply about a ticket on this gateway.
type remembered struct {
	standing Standing
	at       int64         // mono, ns
	client   Client        // that claimed it and may repeat the claim; zero: none
	seenAt   int64         // order time of the reply
	hold     time.Duration // from at on, of a waiting ticket; the client's token may have an older one
	asked    bool          // the store was asked to claim a waiting ticket less than a second ago
	bare     bool          // the ticket left, and the store did not hold it
	unsure   bool          // claimed by an unknown client; client is the one that asked
}

// memory holds the last replies about tickets. Polls within a second cost the store nothing, ended tickets are not sent to it
// again, and a store that lost its data is restored from them.
type memory struct {
	shards [64]struct {
		mu      sync.Mutex
		waiting map[ID]place   // waiting tickets: most of the memory
		m       map[ID]outcome // all other tickets
		revoked map[ID]uint32  // sessions, by the end of their last pass: mono, s, rounded up
	}
	revocations atomic.Uint64 // counts the changes of revoked
	sweep       int
	terms       atomic.Pointer[[]term]
	marks       atomic.Pointer[marks]
}

// place is what is remembered of a waiting ticket. There may be a million: it is small and has no pointers for the garbage
// collector.
type place struct {
	order, seen int64
	at          uint32 // mono, ms
	asked       uint32 // likewise, of the last claim that went to the store; 0: none
	term        int32  // index
	hold        uint16 // from at on, s
}

// term is what the tickets of one epoch and fence share.
type term struct {
	epoch string
	fence int64
}

// outcome is what is remembered of a ticket that does not wait. It is small and has no pointers.
type outcome struct {
	admitted, seenAt int64 // admitted: µs of Redis's clock
	client           Client
	at               uint32 // mono, ms
	state            State
	reason           uint8 // index of reasons
	offline, bare    bool
}

// reasonUnsure is the reason of a remembered ticket that was claimed by an unknown client.
const reasonUnsure = ReasonClaimed + "?"

// reasons are the reasons of tickets that do not wait, by the index that outcome keeps.
var reasons = []string{"", reasonUnsure, ReasonLate, ReasonReset, ReasonRemoved, ReasonLapsed, ReasonLeft, ReasonClaimed, ReasonRevoked, ReasonReturned}

func (o *outcome) remembered(id ID, now int64) remembered {
	reason, unsure := reasons[o.reason], false
	if reason == reasonUnsure {
		reason, unsure = ReasonClaimed, true
	}
	var claimed int64
	if o.state == Active {
		claimed = o.seenAt
	}
	return remembered{
		unsure:   unsure,
		standing: Standing{State: o.state, Reason: reason, AdmittedAt: o.admitted, ClaimedAt: claimed, Offline: o.offline, Ticket: Ticket{ID: id}},
		at:       now - int64(since(now, o.at)), client: o.client, seenAt: o.seenAt, bare: o.bare,
	}
}

// Limits of a shard. Above memoryMost no new tickets are remembered. Above bareMost no new tickets are remembered that left and
// that the store did not hold, since a client can create any number of them.
const (
	memoryMost = 1 << 15
	bareMost   = 1 << 11
)

func (m *memory) init() {
	for i := range m.shards {
		m.shards[i].waiting, m.shards[i].m, m.shards[i].revoked = map[ID]place{}, map[ID]outcome{}, map[ID]uint32{}
	}
	m.terms.Store(&[]term{})
}

// millis returns mono in the unit of places, rounded up and never 0.
func millis(mono int64) uint32 { return max(1, uint32((mono+999_999)/1_000_000)) }

// since returns the time from ms until mono, from 0 to some days.
func since(mono int64, ms uint32) time.Duration {
	return time.Duration(max(0, int32(uint32(mono/1_000_000)-ms))) * time.Millisecond
}

// termOf returns the index of an epoch and fence. There are few terms: one for each reset or loss of the store.
func (m *memory) termOf(epoch string, fence int64) int32 {
	for {
		old := m.terms.Load()
		for i := len(*old) - 1; i >= 0; i-- {
			if t := (*old)[i]; t.fence == fence && t.epoch == epoch {
				return int32(i)
			}
		}
		all := append((*old)[:len(*old):len(*old)], term{epoch, fence})
		if m.terms.CompareAndSwap(old, &all) {
			return int32(len(all) - 1)
		}
	}
}

func (m *memory) get(id ID, now int64) (remembered, bool) {
	s := &m.shards[id[0]&63]
	s.mu.Lock()
	p, waits := s.waiting[id]
	if !waits {
		v, ok := s.m[id]
		_, revoked := s.revoked[id]
		s.mu.Unlock()
		if revoked {
			v, ok = outcome{admitted: v.admitted, at: millis(now), state: Ended, reason: uint8(slices.Index(reasons, ReasonRevoked))}, true
		}
		if !ok {
			return remembered{}, false
		}
		return v.remembered(id, now), true
	}
	s.mu.Unlock()
	t, hold := (*m.terms.Load())[p.term], time.Duration(p.hold)*time.Second
	return remembered{
		standing: Standing{State: Waiting, Ticket: Ticket{ID: id, Order: p.order, Seen: p.seen, Hold: hold, Epoch: t.epoch, Fence: t.fence}},
		at:       now - int64(since(now, p.at)),
		hold:     hold,
		asked:    p.asked != 0 && since(now, p.asked) < time.Second,
	}, true
}

func (m *memory) put(id ID, v remembered) {
	if v.standing.State == Expired && v.standing.Reason != ReasonRemoved {
		return // no reply is made from it, and hoarded tokens would fill the memory
	}
	s := &m.shards[id[0]&63]
	if v.standing.State == Waiting {
		t := &v.standing.Ticket
		p := place{order: t.Order, seen: t.Seen, at: millis(v.at), term: m.termOf(t.Epoch, t.Fence), hold: uint16(v.hold / time.Second)} // at most mostHold
		s.mu.Lock()
		defer s.mu.Unlock()
		old, known := s.waiting[id]
		switch {
		case !v.asked:
			p.asked = old.asked
		case known: // a claim before the turn is no poll: the store recorded no presence
			old.asked = p.at
			p = old
		default:
			p.asked, p.at = p.at, millis(v.at-int64(time.Second))
		}
		if known || len(s.waiting) < memoryMost {
			s.waiting[id] = p
		}
		delete(s.m, id)
		return
	}
	reason := v.standing.Reason
	if v.unsure {
		reason = reasonUnsure
	}
	o := outcome{
		admitted: v.standing.AdmittedAt, seenAt: v.seenAt, client: v.client, at: millis(v.at), state: v.standing.State,
		reason: uint8(max(0, slices.Index(reasons, reason))), offline: v.standing.Offline, bare: v.bare,
	}
	most := memoryMost
	if v.bare {
		most = bareMost
	}
	s.mu.Lock()
	delete(s.waiting, id)
	old, known := s.m[id]
	// A reply to another client does not change the session, which its own client may claim again.
	stolen := known && old.state == Active && v.standing.Reason == ReasonClaimed && (v.client != Client{} || old.offline)
	if !stolen && (known || len(s.m) < most) {
		s.m[id] = o
	}
	s.mu.Unlock()
	m.mark(id)
}

// revoke remembers that a session is revoked whose passes end at ends (mono, ns). exact reports whether the store knows the end; an
// estimate does not change the end of a session that is remembered as revoked.
func (m *memory) revoke(id ID, ends, now int64, exact bool) {
	s := &m.shards[id[0]&63]
	s.mu.Lock()
	delete(s.waiting, id)
	delete(s.m, id)
	if last := s.revoked[id]; seconds(ends) > last && (exact || last <= seconds(now)) {
		s.revoked[id] = seconds(ends)
		m.revocations.Add(1)
	}
	s.mu.Unlock()
	m.mark(id)
}

// eachRevoked calls f for every revoked session with the end of its last pass: mono, s.
func (m *memory) eachRevoked(f func(id ID, ends uint32)) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for id, ends := range s.revoked {
			f(id, ends)
		}
		s.mu.Unlock()
	}
}

// isRevoked reports whether a session is revoked. For nearly all sessions that are not, it takes no lock.
func (m *memory) isRevoked(id ID) bool {
	if !m.settled(id) {
		return false
	}
	s := &m.shards[id[0]&63]
	s.mu.Lock()
	_, revoked := s.revoked[id]
	s.mu.Unlock()
	return revoked
}

// seconds returns mono in the unit of revocations, rounded up.
func seconds(mono int64) uint32 { return uint32(min((mono+999_999_999)/1_000_000_000, math.MaxUint32)) }

// forgetWaiting forgets a waiting ticket, so that its next poll goes to the store.
func (m *memory) forgetWaiting(id ID) {
	s := &m.shards[id[0]&63]
	s.mu.Lock()
	delete(s.waiting, id)
	s.mu.Unlock()
}

// evacuate forgets the sessions that were claimed, and the admissions that were made, at order time fence or before. The store knows
// what has become of their visitors.
func (m *memory) evacuate(fence int64) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for id, v := range s.m {
			if (v.state == Active || v.state == Admitted) && v.seenAt <= fence {
				delete(s.m, id)
			}
		}
		s.mu.Unlock()
	}
}

// forget drops outdated tickets from one shard, in turn.
func (m *memory) forget(now int64, absence, claimWindow time.Duration) {
	s := &m.shards[m.sweep&63]
	m.sweep++
	s.mu.Lock()
	keep := absence / 4
	for id, p := range s.waiting {
		if since(now, p.at) > keep {
			delete(s.waiting, id)
		}
	}
	for id, v := range s.m {
		keep := absence + endedMemory
		switch v.state {
		case Admitted:
			keep = claimWindow
		case Active:
			keep = absence // kept for restore alone, which offers nothing older
		}
		if since(now, v.at) > keep {
			delete(s.m, id)
			continue
		}
		if b := m.marks.Load(); b != nil {
			b.next.set(id)
		}
	}
	for id, ends := range s.revoked {
		// A pass verifies a little longer, and a ticket of the session may be answered from the snapshot for a quarter of absence.
		if now > int64(ends)*1_000_000_000+int64(max(passLeeway, keep+farAge)) {
			delete(s.revoked, id)
		} else if b := m.marks.Load(); b != nil {
			b.next.set(id)
		}
	}
	s.mu.Unlock()
	if m.sweep&63 == 0 {
		m.nextMarks()
	}
}

// endedMemory is for how long beyond absence an ended ticket is remembered.
const endedMemory = 15 * time.Minute

// all calls f for every ticket that does not wait, and revoked for every revoked session with the time until its passes have
// ended.
func (m *memory) all(now int64, f func(ID, remembered), revoked func(ID, time.Duration)) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for id, v := range s.m {
			f(id, v.remembered(id, now))
		}
		for id, ends := range s.revoked {
			revoked(id, time.Duration(max(0, int64(ends)*1_000_000_000-now)))
		}
		s.mu.Unlock()
	}
}

// over reports whether the ticket has ended for every client.
func (v remembered) over() bool {
	switch s := v.standing; s.State {
	case Lapsed:
		return true
	case Ended:
		return s.Reason != ReasonClaimed
	case Expired:
		return s.Reason == ReasonRemoved
	}
	return false
}

// answer returns the remembered standing if it still holds for t. Every standing holds for a second, the end of a ticket for good.
// After that second the client that claimed the ticket may repeat its claim; nobody else may.
func (v remembered) answer(t Ticket, now int64) (Standing, bool) {
	s := v.standing
	fresh := now-v.at < int64(time.Second)
	switch s.State {
	case Waiting:
		// A token renewed by another gateway in another epoch, or with an earlier order, is news; an old token that a client kept is not.
		news := t.Seen > s.Ticket.Seen && t.Epoch != s.Ticket.Epoch || t.Seen >= s.Ticket.Seen && t.Epoch != "" && 0 < t.Order && t.Order < s.Ticket.Order
		ends := s.Ticket.Order != 0 && !(&Ticket{Interval: t.Interval, Hold: v.hold}).covers(time.Duration(now-v.at))
		if !fresh || ends || news {
			return Standing{}, false
		}
		k := s.Ticket
		s.Renewed = k.Seen != t.Seen || k.Epoch != t.Epoch || k.Order != t.Order
		k.Client, k.Interval, k.Wait = t.Client, t.Interval, t.Wait
		s.Ticket = k
		return s, true
	case Admitted:
		s.Ticket = t
		return s, fresh
	case Active:
		s.Ticket = t
		if v.client != t.Client || t.Client == (Client{}) {
			return Standing{State: Ended, Reason: ReasonClaimed, AdmittedAt: s.AdmittedAt, Ticket: t}, !s.Offline
		}
		return s, fresh && !s.Offline
	case Expired:
		s.Ticket = t
		return s, s.Reason == ReasonRemoved
	case Ended:
		s.Ticket = t
		if s.Reason == ReasonClaimed {
			if v.unsure {
				return s, fresh && v.client == t.Client
			}
			return s, v.client != t.Client || v.client == (Client{})
		}
		return s, true
	case Lapsed:
		s.Ticket = t
		return s, true
	}
	return Standing{}, false
}

// marks show without a lock that memory holds no ended or admitted ticket of an id, as is true for nearly every poll. A set bit may
// belong to another id. Each round of forget computes the bits anew.
type marks struct{ now, next *bits }

type bits [1 << 13]atomic.Uint64

func (b *bits) at(id ID) (word *atomic.Uint64, bit uint64) {
	n := uint(id[1]) | uint(id[2])<<8 | uint(id[3])<<16
	return &b[n>>6%uint(len(b))], 1 << (n & 63)
}

func (b *bits) set(id ID) {
	if word, bit := b.at(id); word.Load()&bit == 0 {
		word.Or(bit)
	}
}

func (m *memory) mark(id ID) {
	b := m.marks.Load()
	for b == nil {
		m.marks.CompareAndSwap(nil, &marks{&bits{}, &bits{}})
		b = m.marks.Load()
	}
	b.now.set(id)
	b.next.set(id)
}

// nextMarks begins to use the marks that the last round of forget has made.
func (m *memory) nextMarks() {
	if b := m.marks.Load(); b != nil {
		m.marks.Store(&marks{b.next, &bits{}})
	}
}

// settled reports whether memory may hold an id other than as waiting.
func (m *memory) settled(id ID) bool {
	b := m.marks.Load()
	if b == nil {
		return false
	}
	word, bit := b.now.at(id)
	return word.Load()&bit != 0
}

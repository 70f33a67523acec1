package admission

import (
	"sync"
	"time"
)

// remembered is the last answer about a ticket on this gateway.
type remembered struct {
	standing Standing
	at       int64 // mono, ns
	client   Client
	seenRoom int64 // room time of the answer
}

// memory holds the last answers: polls within a second cost the store nothing,
// ended ids are not asked about again, and after a loss of the store's data
// it is what this gateway offers.
type memory struct {
	shards [64]struct {
		mu sync.Mutex
		m  map[ID]remembered
	}
	sweep int
}

// memoryMost bounds a shard; beyond it new waiting tickets are not remembered.
const memoryMost = 1 << 15

func (m *memory) init() {
	for i := range m.shards {
		m.shards[i].m = map[ID]remembered{}
	}
}

func (m *memory) get(id ID) (remembered, bool) {
	s := &m.shards[id[0]&63]
	s.mu.Lock()
	v, ok := s.m[id]
	s.mu.Unlock()
	return v, ok
}

func (m *memory) put(id ID, v remembered) {
	if v.standing.State == Expired && v.standing.Reason != ReasonRemoved {
		return // nothing is answered from it, and whoever hoarded tokens would fill it
	}
	s := &m.shards[id[0]&63]
	s.mu.Lock()
	if _, ok := s.m[id]; ok || len(s.m) < memoryMost || v.standing.State != Waiting {
		s.m[id] = v
	}
	s.mu.Unlock()
}

// forget drops what is no longer of use from one shard; called in turn.
func (m *memory) forget(now int64, absence, claimWindow time.Duration) {
	s := &m.shards[m.sweep&63]
	m.sweep++
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, v := range s.m {
		keep := absence + endedMemory
		switch v.standing.State {
		case Waiting:
			keep = absence / 4
		case Admitted:
			keep = claimWindow
		case Active:
			keep = absence // it is kept for restore alone, which offers nothing older
		}
		if now-v.at > int64(keep) {
			delete(s.m, id)
		}
	}
}

// endedMemory is for how long beyond absence an ended ticket is remembered.
const endedMemory = 15 * time.Minute

// all calls f for every entry.
func (m *memory) all(f func(ID, remembered)) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for id, v := range s.m {
			f(id, v)
		}
		s.mu.Unlock()
	}
}

// answer gives the remembered standing when it still holds for t: any answer
// for a second, the end of a ticket for good. A claimed ticket is asked about
// again, because the same client may repeat its claim.
func (v remembered) answer(t Ticket, now int64) (Standing, bool) {
	s := v.standing
	switch s.State {
	case Waiting:
		// A token that another gateway renewed in another epoch is news; an old one that a client kept is not.
		if now-v.at >= int64(time.Second) || t.Epoch != s.Ticket.Epoch && t.Seen > s.Ticket.Seen {
			return Standing{}, false
		}
		k := s.Ticket
		s.Renewed = k.Seen != t.Seen || k.Epoch != t.Epoch || k.Order != t.Order
		k.Client, k.Interval = t.Client, t.Interval
		s.Ticket = k
		return s, true
	case Admitted, Active:
		return Standing{}, false
	case Expired:
		s.Ticket = t
		return s, s.Reason == ReasonRemoved
	case Ended:
		s.Ticket = t
		if s.Reason == ReasonClaimed {
			return s, now-v.at < int64(time.Second) && v.client == t.Client
		}
		return s, true
	case Lapsed:
		s.Ticket = t
		return s, true
	}
	return Standing{}, false
}

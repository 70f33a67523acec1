package admission

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// sessions sends heartbeats and revocations. It remembers the last heartbeat of each session of this gateway.
type sessions struct {
	identity
	view   *view
	store  *store
	memory *memory

	shards [64]struct {
		mu sync.Mutex
		m  map[ID]beat // the last one sent or due
	}
	lookups *batcher[ID, bool] // asks the store about sessions that this gateway does not know

	mu       sync.Mutex
	due      map[ID]struct{} // to be sent; a set, since a session may beat many times during an outage
	revoking []ID            // ended by origins, not sent to the store yet
	sweep    int
}

// beat is the last heartbeat of a session.
type beat struct {
	at  int64         // mono, ns
	ttl time.Duration // by which the store counts the session: of the policy then, or a longer earlier one

	// from is the condition of the heartbeat; see alive.go.
	from int64
}

// ends returns when the session ends without another heartbeat (mono): its last pass may be half its life old by then. For a session
// that has ended it returns when the store has to be asked again.
func (b beat) ends() int64 {
	if b.from == fromEnded {
		return b.at + int64(b.ttl/4)
	}
	return b.at + int64(b.ttl+b.ttl/2)
}

func (s *sessions) init(me identity, v *view, st *store, m *memory) {
	s.identity, s.view, s.store, s.memory = me, v, st, m
	s.due = map[ID]struct{}{}
	s.lookups = &batcher[ID, bool]{script: "room_heartbeat", wait: time.Millisecond, send: s.sendLookups}
	for i := range s.shards {
		s.shards[i].m = map[ID]beat{}
	}
}

// Touch records a heartbeat of a session, which is sent in a batch, about every quarter of the life of a pass. off: the pass was
// signed without the store, so the first heartbeat goes out at once. Where session.ttl was raised, so does the next: until then
// the store counts the session by the former ttl.
func (r *sessions) Touch(sid ID, off bool) {
	now := r.c.mono()
	ttl := r.view.Snapshot().Policy.SessionTTL
	sh := &r.shards[sid[0]&63]
	sh.mu.Lock()
	last, known := sh.m[sid]
	if known && last.from == fromEnded { // its pass is valid by itself
		last, known = beat{}, false
	}
	if known && now-last.at < int64(ttl/4) && ttl <= last.ttl {
		sh.mu.Unlock()
		return
	}
	if rest := time.Duration(last.ends()-now) * 2 / 3; known && rest > ttl {
		ttl = rest // the former pass still holds
	}
	sh.m[sid] = beat{now, ttl, last.from}
	sh.mu.Unlock()
	// The store knows a session that was claimed a moment ago; its first heartbeat is sent all the same.
	r.mu.Lock()
	r.due[sid] = struct{}{}
	r.mu.Unlock()
	if off {
		r.store.wake()
	}
}

// lastBeat returns when this gateway last recorded a heartbeat of a session (mono, ns). The last request of the session is at most
// a quarter of a pass's life later. It returns 0 for an unknown session.
func (r *sessions) lastBeat(sid ID) int64 {
	sh := &r.shards[sid[0]&63]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if last := sh.m[sid]; last.from != fromEnded {
		return last.at
	}
	return 0
}

// lateHeartbeat is how long after the end of a pass a heartbeat of its session by that pass may be recorded (LATE_HEARTBEAT of
// lua/lib/returns.lua).
const lateHeartbeat = 10 * time.Second

// goesOn reports whether this gateway has recorded a later heartbeat of the session of an ended pass, so that the session goes on with a
// newer pass.
func (r *sessions) goesOn(b *Return) bool {
	if b.Live {
		return false // it would have been alive
	}
	ended := r.c.mono() - (r.view.RedisNow()-b.Ended*1e6)*1000
	return r.lastBeat(b.Session) > ended+int64(lateHeartbeat)
}

// Revoked reports whether an operator or an origin ended a session, from memory that is at most about a second old.
func (r *sessions) Revoked(sid ID) bool { return r.memory.isRevoked(sid) }

// Revocations returns a number that changes with every change of what EachRevoked returns, but for sessions whose passes have ended.
func (r *sessions) Revocations() uint64 { return r.memory.revocations.Load() }

// EachRevoked calls f for every revoked session of which a pass may still verify, in no order. From until on, in seconds of Redis's
// clock, none does.
func (r *sessions) EachRevoked(f func(sid ID, until int64)) {
	mono, wall := r.c.mono(), r.view.RedisNow()*1000
	now := wall / 1_000_000_000
	r.memory.eachRevoked(func(sid ID, ends uint32) {
		if until := (wall + int64(ends)*1_000_000_000 + int64(passLeeway) - mono + 999_999_999) / 1_000_000_000; until > now {
			f(sid, until)
		}
	})
}

// passLeeway is for how long a pass still verifies after its end (token.Leeway).
const passLeeway = 5 * time.Second

// markRevoked remembers that a session is revoked until no pass of it verifies. The passes end at order time end (µs); 0: unknown,
// then as late as a pass signed now.
func (r *sessions) markRevoked(sid ID, end int64) {
	left := time.Duration(end-r.view.Now()) * time.Microsecond
	if end == 0 {
		left = max(r.view.Snapshot().Policy.SessionTTL, r.view.Snapshot().Policy.PassLife)
	}
	now := r.c.mono()
	r.memory.revoke(sid, max(1, now+int64(left)), now, end != 0)
	sh := &r.shards[sid[0]&63]
	sh.mu.Lock()
	delete(sh.m, sid)
	sh.mu.Unlock()
}

// Evacuation returns the last evacuation of the room.
func (r *sessions) Evacuation() Evacuation { return r.view.Snapshot().Evacuation }

// evacuate forgets the heartbeats of all sessions. A session that was claimed since is renewed by its next request.
func (r *sessions) evacuate() {
	for i := range r.shards {
		sh := &r.shards[i]
		sh.mu.Lock()
		clear(sh.m)
		sh.mu.Unlock()
	}
	r.mu.Lock()
	clear(r.due)
	r.mu.Unlock()
}

// Revoke ends a session: here at once, elsewhere within a second. The next tick, which Revoke wakes, sends it to the store; during
// an outage the first tick after it does.
func (r *sessions) Revoke(sid ID) {
	if r.store.away.Load() && !r.Revoked(sid) {
		r.store.local.ended()
	}
	r.markRevoked(sid, 0)
	r.mu.Lock()
	first := len(r.revoking) == 0
	r.revoking = append(r.revoking, sid)
	r.mu.Unlock()
	if first {
		r.store.activity.Add(1) // a new snapshot shows it to other gateways
		r.store.wake()
	}
}

// RevokeSession ends a session for an operator, whose name goes into the audit log. It returns when the store has recorded the end.
func (r *sessions) RevokeSession(ctx context.Context, who string, sid ID) error {
	r.markRevoked(sid, 0)
	_, _, err := r.store.do(ctx, r.tickTimeout(), "room_revoke", who, r.id, sid.String(), string(sid[:]))
	r.store.wakeIdle() // a new snapshot shows it to other gateways
	return err
}

// sendRevoked sends the sessions that origins have ended to the store.
func (r *sessions) sendRevoked(ctx context.Context) error {
	r.mu.Lock()
	ids := r.revoking
	r.revoking = nil
	r.mu.Unlock()
	for len(ids) > 0 {
		n := min(len(ids), batchMost)
		args := []any{"", r.id, ""}
		for _, id := range ids[:n] {
			args = append(args, string(id[:]))
		}
		if _, _, err := r.store.do(ctx, r.tickTimeout(), "room_revoke", args...); err != nil {
			r.mu.Lock()
			r.revoking = append(ids, r.revoking...)
			r.mu.Unlock()
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// sendHeartbeats sends the heartbeats that are due.
func (r *sessions) sendHeartbeats(ctx context.Context) error {
	r.mu.Lock()
	due := r.due
	if len(due) == 0 { // still the map that Touch writes
		r.mu.Unlock()
		return nil
	}
	r.due = map[ID]struct{}{}
	r.mu.Unlock()
	ids := slices.Collect(maps.Keys(due))
	for batch := range slices.Chunk(ids, batchMost) {
		args := make([]any, 0, 4*len(batch))
		sent := r.c.mono()
		for _, id := range batch {
			var client string
			var wall int64
			if m, ok := r.memory.get(id, r.c.mono()); ok && m.standing.State == Active && m.standing.Offline {
				client, wall = m.client.arg(), m.standing.AdmittedAt
			}
			args = append(args, string(id[:]), client, wall, r.beatOf(id).condition())
		}
		_, rest, err := r.store.do(ctx, r.tickTimeout(), "room_heartbeat", args...)
		if err != nil {
			// Few heartbeats came meanwhile.
			r.mu.Lock()
			maps.Copy(due, r.due)
			r.due = due
			r.mu.Unlock()
			return err
		}
		over, ttl := r.noteEnded(rest), r.view.Snapshot().Policy.SessionTTL
		for _, id := range batch {
			delete(due, id)
			if !over[id] && r.beatOf(id).from != fromKnown {
				r.confirm(id, beat{at: sent, ttl: ttl})
			}
		}
	}
	return nil
}

func (r *sessions) beatOf(sid ID) beat {
	sh := &r.shards[sid[0]&63]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.m[sid]
}

func toID(s string) (ID, bool) {
	var id ID
	if len(s) != len(id) {
		return id, false
	}
	copy(id[:], s)
	return id, true
}

// forgetSessions drops the sessions that have ended from one shard, in turn.
func (r *sessions) forgetSessions(now int64) {
	sh := &r.shards[r.sweep&63]
	r.sweep++
	sh.mu.Lock()
	for id, last := range sh.m {
		if now > last.ends() && last.from != fromNever && last.from <= 0 { // else its heartbeat is conditional and not sent yet
			delete(sh.m, id)
		}
	}
	sh.mu.Unlock()
}

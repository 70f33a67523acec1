package admission

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// sessions are those that this gateway heard of, and all that are revoked.
type sessions struct {
	shards [64]struct {
		mu sync.Mutex
		m  map[ID]int64 // last heartbeat that was or will be sent, mono ns
	}
	mu      sync.Mutex
	due     []ID
	revoked sync.Map // ID → mono ns of hearing
	any     atomic.Bool
	sweep   int
}

func (s *sessions) init() {
	for i := range s.shards {
		s.shards[i].m = map[ID]int64{}
	}
}

// Touch is the heartbeat of a session; it is sent later, in a batch, about
// every quarter of the pass's life. off says that the pass was minted or
// renewed without the store, and makes the first one go with the next tick.
func (r *Room) Touch(sid ID, off bool) {
	now := r.c.mono()
	ttl := int64(r.Snapshot().Policy.SessionTTL)
	sh := &r.sess.shards[sid[0]&63]
	sh.mu.Lock()
	last, known := sh.m[sid]
	if known && now-last < ttl/4 {
		sh.mu.Unlock()
		return
	}
	sh.m[sid] = now
	sh.mu.Unlock()
	// A session that was claimed here or elsewhere a moment ago is in the store
	// already; unknown ones are sent all the same, it is the first proof of life.
	r.sess.mu.Lock()
	r.sess.due = append(r.sess.due, sid)
	r.sess.mu.Unlock()
	if off {
		r.wake()
	}
}

// Revoked says whether a session was ended by an operator or its origin, from
// memory that is at most about a second old.
func (r *Room) Revoked(sid ID) bool {
	if !r.sess.any.Load() {
		return false
	}
	_, ok := r.sess.revoked.Load(sid)
	return ok
}

func (r *Room) markRevoked(sid ID) {
	r.sess.revoked.Store(sid, r.c.mono())
	r.sess.any.Store(true)
	sh := &r.sess.shards[sid[0]&63]
	sh.mu.Lock()
	delete(sh.m, sid)
	sh.mu.Unlock()
	r.memory.put(sid, remembered{
		standing: Standing{State: Ended, Reason: ReasonRevoked, Ticket: Ticket{ID: sid}}, at: r.c.mono(),
	})
}

// Revoke ends a session everywhere within a second; here at once, even when
// the store cannot be told (the error then says so).
func (r *Room) Revoke(ctx context.Context, sid ID) error { return r.revoke(ctx, "", sid) }

func (r *Room) revoke(ctx context.Context, who string, sid ID) error {
	r.markRevoked(sid)
	_, _, err := r.do(ctx, r.c.o.Timeout, "room_revoke", who, r.id, string(sid[:]))
	return err
}

// beat sends the heartbeats that are due.
func (r *Room) beat(ctx context.Context) error {
	for {
		r.sess.mu.Lock()
		n := min(len(r.sess.due), batchMost)
		ids := r.sess.due[:n:n]
		r.sess.due = r.sess.due[n:]
		r.sess.mu.Unlock()
		if n == 0 {
			return nil
		}
		args := make([]any, 0, 3*n)
		for _, id := range ids {
			var client string
			var wall int64
			if m, ok := r.memory.get(id); ok && m.standing.State == Active && m.standing.Offline {
				client, wall = m.client.arg(), m.standing.AdmittedAt
			}
			args = append(args, string(id[:]), client, wall)
		}
		_, rest, err := r.do(ctx, r.tickTimeout(), "room_heartbeat", args...)
		if err != nil {
			r.sess.mu.Lock()
			r.sess.due = append(ids, r.sess.due...)
			r.sess.mu.Unlock()
			return err
		}
		for _, v := range rest {
			if id, ok := toID(asString(v)); ok {
				r.markRevoked(id)
			}
		}
	}
}

func toID(s string) (ID, bool) {
	var id ID
	if len(s) != len(id) {
		return id, false
	}
	copy(id[:], s)
	return id, true
}

// forgetSessions drops what cannot matter any more: sessions unheard of for
// 1.5 lives of a pass, revocations after an hour and such a life.
func (r *Room) forgetSessions(now int64, ttl time.Duration) {
	sh := &r.sess.shards[r.sess.sweep&63]
	r.sess.sweep++
	sh.mu.Lock()
	for id, at := range sh.m {
		if now-at > int64(ttl+ttl/2) {
			delete(sh.m, id)
		}
	}
	sh.mu.Unlock()
	if r.sess.sweep%256 == 0 {
		r.sess.revoked.Range(func(k, v any) bool {
			if now-v.(int64) > int64(time.Hour+ttl) {
				r.sess.revoked.Delete(k)
			}
			return true
		})
	}
}

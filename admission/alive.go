package admission

import (
	"context"
	"errors"
)

// In a room with Policy.PassLife a session goes on while its visitor makes requests, and may end before its pass. For knownFor after a
// heartbeat its gateway knows that the session goes on. After that it asks the store, which counts a session for 1.5 ttl after its last
// heartbeat from any gateway.

// Values of beat.from. A positive value is the order time at which this gateway accepted an unknown session because it could not ask the
// store.
const (
	fromKnown = 0  // the heartbeat has no condition
	fromNever = -1 // accepted in the same way, by a gateway that had never reached the store
	fromEnded = -2 // not a heartbeat: the store replied that the session has ended
)

// knownFor is how long after a heartbeat this gateway knows that the session goes on, in ns. It is less than the 1.5 ttl for which the
// store counts the session, so that the next heartbeat reaches the store in time.
func (b beat) knownFor() int64 { return int64(b.ttl + b.ttl/4) }

// hasEnded reports whether the session has ended at now (mono) by a reply of the store that still counts.
func (b beat) hasEnded(now int64) bool { return b.from == fromEnded && now < b.ends() }

// condition returns the condition of a heartbeat as room_heartbeat takes it.
func (b beat) condition() any {
	switch b.from {
	case fromKnown:
		return ""
	case fromNever:
		return 0
	}
	return b.from
}

// Alive reports whether a session goes on. It calls the store, which renews the session, only if this gateway has served no request of it for
// 1.25 ttl. sure is false while the store is away: Alive assumes that the session goes on, and the next heartbeat finds out.
func (r *sessions) Alive(ctx context.Context, sid ID) (alive, sure bool) {
	now := r.c.mono()
	sh := &r.shards[sid[0]&63]
	sh.mu.Lock()
	last, known := sh.m[sid]
	sh.mu.Unlock()
	switch {
	case !known:
	case last.hasEnded(now):
		return false, true
	case last.from != fromEnded && now-last.at <= last.knownFor():
		return true, last.from == fromKnown
	}
	if !r.store.unreachable(r.view.Snapshot()) {
		if ends, err := r.lookups.ask(ctx, sid); err == nil {
			return !ends, true
		}
	}
	r.assume(sid, now)
	return true, false
}

// assume records a request of a session that this gateway does not know, while it cannot ask the store.
func (r *sessions) assume(sid ID, now int64) {
	b := beat{at: now, ttl: r.view.Snapshot().Policy.SessionTTL, from: r.view.Now()}
	if b.from == 0 {
		b.from = fromNever
	}
	sh := &r.shards[sid[0]&63]
	sh.mu.Lock()
	sh.m[sid] = b
	sh.mu.Unlock()
	r.mu.Lock()
	r.due[sid] = struct{}{}
	r.mu.Unlock()
}

// sendLookups asks the store which sessions have ended, and renews the others.
func (r *sessions) sendLookups(ctx context.Context, ids []ID) (ended []bool, err error) {
	sent, ttl := r.c.mono(), r.view.Snapshot().Policy.SessionTTL
	args := make([]any, 0, 4*len(ids))
	for _, id := range ids {
		args = append(args, string(id[:]), "", 0, 0)
	}
	_, rest, err := r.store.do(ctx, r.c.o.Timeout, "room_heartbeat", args...)
	if err != nil {
		if errors.Is(err, ErrStore) {
			r.store.failed(err)
		}
		return nil, err
	}
	over := r.noteEnded(rest)
	ended = make([]bool, len(ids))
	for i, id := range ids {
		if ended[i] = over[id]; !over[id] {
			r.confirm(id, beat{at: sent, ttl: ttl})
		}
	}
	return ended, nil
}

// confirm records that the store has renewed a session by a heartbeat.
func (r *sessions) confirm(id ID, b beat) {
	sh := &r.shards[id[0]&63]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	last, known := sh.m[id]
	switch {
	case !known || last.from == fromEnded:
		sh.m[id] = b
	case last.from != fromKnown || last.at < b.at:
		last.at, last.from = max(last.at, b.at), fromKnown
		sh.m[id] = last
	}
}

// noteEnded records the sessions that have ended by a reply of room_heartbeat, and returns them.
func (r *sessions) noteEnded(rest []any) map[ID]bool {
	over := make(map[ID]bool, len(rest)/2)
	for i := 0; i+1 < len(rest); i += 2 {
		id, ok := toID(asString(rest[i+1]))
		if !ok {
			continue
		}
		over[id] = true
		if asString(rest[i]) == replyRevoked {
			r.markRevoked(id, 0)
			continue
		}
		sh := &r.shards[id[0]&63]
		sh.mu.Lock()
		sh.m[id] = beat{at: r.c.mono(), ttl: r.view.Snapshot().Policy.SessionTTL, from: fromEnded}
		sh.mu.Unlock()
	}
	return over
}

package admission

import (
	"context"
	"errors"
)

// Sessions of a room with Policy.PassLife go on while their visitors make requests, whatever their passes say. A gateway knows from its
// heartbeats that a session goes on for knownFor after the last one. Then it asks the store, where a session counts for 1.5 ttl after its
// last heartbeat at any gateway.

// Values of beat.from. A positive one is the order time at which this gateway accepted the session without having known it, while it
// could not ask the store.
const (
	fromKnown   = 0  // a heartbeat renews the session in any case
	fromNever   = -1 // as a positive one; the gateway had never reached the store
	fromSilence = -2 // no heartbeat: the store replied that the session has ended
)

// knownFor is how long after a heartbeat this gateway knows that the session goes on, in ns. It is less than the 1.5 ttl for which the
// store counts the session, so that the next heartbeat reaches the store in time.
func (b beat) knownFor() int64 { return int64(b.ttl + b.ttl/4) }

// silent reports whether the session has ended at now (mono), as the store replied lately.
func (b beat) silent(now int64) bool { return b.from == fromSilence && now < b.ends() }

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

// Alive reports whether a session goes on. It calls the store only if this gateway has served no request of the session for 1.25 ttl, and renews
// it there. sure is false while the store is away and this gateway has to assume that the session goes on; its next heartbeat finds out.
func (r *sessions) Alive(ctx context.Context, sid ID) (alive, sure bool) {
	now := r.c.mono()
	sh := &r.shards[sid[0]&63]
	sh.mu.Lock()
	last, known := sh.m[sid]
	sh.mu.Unlock()
	switch {
	case !known:
	case last.silent(now):
		return false, true
	case last.from != fromSilence && now-last.at <= last.knownFor():
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

// assume records a request of a session of which this gateway cannot know whether it goes on.
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
	over := r.stop(rest)
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
	case !known || last.from == fromSilence:
		sh.m[id] = b
	case last.from != fromKnown || last.at < b.at:
		last.at, last.from = max(last.at, b.at), fromKnown
		sh.m[id] = last
	}
}

// stop takes the sessions that do not go on from a reply of room_heartbeat, and returns them.
func (r *sessions) stop(rest []any) map[ID]bool {
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
		sh.m[id] = beat{at: r.c.mono(), ttl: r.view.Snapshot().Policy.SessionTTL, from: fromSilence}
		sh.mu.Unlock()
	}
	return over
}

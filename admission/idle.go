package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission/snapshot"
)

// An idle room has no visitors, so only its time must be kept. Gateways read its snapshot every idlePause, all idle rooms of a
// process in one round trip. A gateway that finds the snapshot older than keepTime ticks the room, so that all gateways together
// tick it less than once in keepTime.
const (
	// idlePause is the time between two reads of the snapshot: every gateway has a change by an operator within a second.
	idlePause = 700 * time.Millisecond
	// keepTime and idlePause together stay well below GAP of lua/lib/room.lua, from which on a time without a tick counts as an
	// outage.
	keepTime = 2 * time.Second
	// ownTick is how often each gateway ticks an idle room itself, to be counted among the gateways of the room (RARELY of
	// lua/room_advance.lua) and to read Redis's clock.
	ownTick = 30 * time.Second
)

// snapshotRead is the reply to reading a snapshot: empty where the store holds none.
type snapshotRead struct {
	text string
	err  error
}

// readSnapshots reads the snapshots of several rooms in one round trip, or one for each master of a cluster.
func (c *Core) readSnapshots(ctx context.Context, keys []string) ([]snapshotRead, error) {
	ctx, cancel := context.WithTimeout(ctx, c.tickTimeout())
	defer cancel()
	began := time.Now()
	pipe, all := c.o.Client.Pipeline(), make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		all[i] = pipe.Get(ctx, key)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([]snapshotRead, len(keys))
	var failed error
	for i, cmd := range all {
		if text, err := cmd.Result(); err == nil {
			out[i].text = text
		} else if !errors.Is(err, redis.Nil) {
			out[i].err, failed = err, err
		}
	}
	if c.o.Observe != nil {
		c.o.Observe("snapshot_read", time.Since(began), failed)
	}
	return out, nil
}

// untilReading returns the time until this process next reads the snapshots of its idle rooms, all at the same time.
func (c *Core) untilReading() time.Duration {
	left := idlePause - (time.Since(c.start)+c.phase)%idlePause
	if left < idlePause/4 { // the room was ticked a moment ago
		left += idlePause
	}
	return left
}

// readIdle reads the snapshot of an idle room and reports whether the room needs no tick now.
func (r *ticker) readIdle(ctx context.Context) (bool, error) {
	r.ticking.Lock()
	defer r.ticking.Unlock()
	if r.needsTick() {
		return false, nil
	}
	got, err := r.c.reader.ask(ctx, r.keys[keySnapshot])
	if err == nil {
		err = got.err
	}
	if err != nil {
		r.replan()
		return false, fmt.Errorf("%w: %w", ErrStore, err)
	}
	epoch, seq := snapshot.Head(got.text)
	old := r.view.Snapshot()
	if epoch != old.Epoch || seq < old.Seq {
		return false, nil // the store lost data, or an operator changed something
	}
	r.store.replied.Store(r.view.Now())
	if seq > old.Seq {
		if err := r.adopt(ctx, got.text); err != nil {
			return false, err
		}
	}
	r.forget()
	age := time.Duration(r.view.RedisNow()-r.view.Snapshot().RedisTime) * time.Microsecond
	if r.needsTick() || age > keepTime || age < -time.Second {
		return false, nil
	}
	r.store.failing.Store(0) // only a tick can show that the store takes no writes
	return true, nil
}

// needsTick reports whether the newest snapshot does not show an idle room, or this gateway has something to send or to fetch.
// Every gateway ticks a room with a shared budget or a lottery: leases and commitments travel with the tick.
func (r *ticker) needsTick() bool {
	s, k := r.view.Snapshot(), r.store.knowledge()
	switch {
	case !s.Known || r.store.away.Load() || !r.view.idle(s):
		return true
	case r.store.failing.Load() != 0:
		return true // another server may have been promoted, and only a script finds out whether it lacks writes
	case r.view.schedule.Load().At(r.view.RedisNow()) != s.Configured || s.Policy.Budgeted || s.Policy.Method == Lottery || s.Gathering():
		return true
	case k.epoch != s.Epoch || k.seq > s.Seq || k.revokes != s.Revocations:
		return true // the snapshot does not show a change yet, or this process has not fetched it
	case r.c.mono()-r.ticked > int64(ownTick):
		return true
	}
	return r.store.local.owed.Load() > 0 || r.view.arrived.tally() != r.view.sinceSnapshot.Load().taken || r.toSend()
}

// toSend reports whether heartbeats, revocations or signed places wait to be sent.
func (r *ticker) toSend() bool {
	r.sessions.mu.Lock()
	n := len(r.sessions.due) + len(r.sessions.revoking)
	r.sessions.mu.Unlock()
	r.offline.signed.mu.Lock()
	defer r.offline.signed.mu.Unlock()
	return n+len(r.offline.signed.given) > 0
}

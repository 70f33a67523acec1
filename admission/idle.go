package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission/snapshot"
)

// Nobody waits or shops in an idle room, so there is nothing to do in it but to keep its time. Gateways read its snapshot every
// idlePause, all rooms of a process in one round trip, and take turns at ticking it: whoever finds the snapshot older than
// keepTime runs the script. Together they run it less than once in keepTime, however many they are.
const (
	// idlePause is the time between two looks at an idle room: what operators change is known everywhere within a second.
	idlePause = 700 * time.Millisecond
	// keepTime and idlePause together stay well below GAP of lua/lib/room.lua, from which on the store takes a time without a
	// tick for an outage.
	keepTime = 2 * time.Second
	// ownTick is how often each gateway ticks an idle room itself, to be counted among its gateways (COUNTED of
	// lua/room_advance.lua) and to hear Redis's clock.
	ownTick = 30 * time.Second
)

// snapshotRead is the answer to a reading: empty where the store holds no snapshot.
type snapshotRead struct {
	text string
	err  error
}

// readSnapshots reads the snapshots of that many rooms in one round trip (one a master of a cluster).
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

// untilReading returns the time until this process reads the snapshots of its idle rooms next: all rooms at the same time.
func (c *Core) untilReading() time.Duration {
	left := idlePause - (time.Since(c.start)+c.phase)%idlePause
	if left < idlePause/4 { // the room was looked at a moment ago
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
	r.store.failing.Store(0) // before a tick is due nobody can know whether the store takes one
	return true, nil
}

// needsTick reports whether the newest snapshot does not show an idle room, or this gateway has something to send or to ask for.
// A room of a shared budget or of a lottery is ticked by every gateway: leases and commitments travel with the tick.
func (r *ticker) needsTick() bool {
	s, k := r.view.Snapshot(), r.store.knowledge()
	switch {
	case !s.Known || r.store.away.Load() || !r.view.idle(s):
		return true
	case r.view.schedule.Load().At(r.view.RedisNow()) != s.Configured || s.Policy.Budgeted || s.Policy.Method == Lottery || s.Gathering():
		return true
	case k.epoch != s.Epoch || k.seq > s.Seq || k.revokes != s.Revocations:
		return true // something happened that the snapshot does not show, or that this process has not been told
	case r.c.mono()-r.ticked > int64(ownTick):
		return true
	}
	return r.store.local.owed.Load() > 0 || r.view.arrived.tally() != r.view.sinceSnapshot.Load().taken || r.toSend()
}

// toSend reports whether heartbeats, revocations or places given without the store are to be sent.
func (r *ticker) toSend() bool {
	r.sessions.mu.Lock()
	n := len(r.sessions.due) + len(r.sessions.revoking)
	r.sessions.mu.Unlock()
	r.offline.signed.mu.Lock()
	defer r.offline.signed.mu.Unlock()
	return n+len(r.offline.signed.given) > 0
}

package admission

import (
	"context"
	"fmt"
	"time"
)

// restoreMost is how many records one room_restore call carries.
const restoreMost = 500

// restore introduces this gateway to the store, and gives back what it knows
// when the store has lost it. The first call settles the epoch, so that nothing is
// admitted before the rest is offered.
func (r *Room) restore(ctx context.Context) error {
	select {
	case r.restores <- struct{}{}:
		defer func() { <-r.restores }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrStore, ctx.Err())
	}
	k := r.knowledge()
	snap := r.Snapshot()
	now := r.c.mono()
	absence := int64(snap.Policy.Absence)

	var records [][5]any
	r.memory.all(func(id ID, m remembered) {
		if now-m.at > absence {
			return
		}
		s := m.standing
		raw := string(id[:])
		switch s.State {
		case Admitted:
			records = append(records, [5]any{"A", raw, s.AdmittedAt, m.seenRoom, ""})
		case Active:
			records = append(records, [5]any{ReasonClaimed, raw, s.AdmittedAt, m.seenRoom, m.client.arg()})
		case Lapsed, Ended:
			records = append(records, [5]any{s.Reason, raw, s.AdmittedAt, 0, ""})
		case Expired:
			if s.Reason == ReasonRemoved {
				records = append(records, [5]any{s.Reason, raw, 0, 0, ""})
			}
		}
	})
	ttl := snap.Policy.SessionTTL
	room := r.Now()
	for i := range r.sess.shards {
		sh := &r.sess.shards[i]
		sh.mu.Lock()
		for id, at := range sh.m {
			if left := ttl + ttl/2 - time.Duration(now-at); left > 0 {
				records = append(records, [5]any{"S", string(id[:]), 0, room + left.Microseconds(), ""})
			}
		}
		sh.mu.Unlock()
	}
	r.sess.revoked.Range(func(key, _ any) bool {
		id := key.(ID)
		records = append(records, [5]any{"R", string(id[:]), 0, 0, ""})
		return true
	})

	live := snap.liveFields()
	fresh := randomName()
	var h header
	for first := true; first || len(records) > 0; first = false {
		n := min(len(records), restoreMost)
		args := []any{r.c.now(), k.epoch, k.seq, r.policyArg(), fresh, k.adj, k.tick, k.fence, snap.Version, snap.Active, len(live) / 2}
		for _, f := range live {
			args = append(args, f)
		}
		for _, rec := range records[:n] {
			args = append(args, rec[:]...)
		}
		sent := r.c.mono()
		res, err := r.c.runner.Run(ctx, r.c.scripts.Script("room_restore"), r.keys, args...)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
		reply, ok := res.([]any)
		if !ok || len(reply) < 6 {
			return fmt.Errorf("room_restore answered %v", res)
		}
		h = header{epoch: asString(reply[1]), seq: asInt(reply[2]), fence: asInt(reply[3]), room: asInt(reply[4]), wall: asInt(reply[5])}
		r.anchor.Store(&anchor{room: h.room, wall: h.wall, mono: (sent + r.c.mono()) / 2})
		records = records[n:]
	}
	r.mu.Lock()
	lost := r.known.epoch != "" && r.known.epoch != h.epoch
	r.known.epoch, r.known.seq, r.known.fence = h.epoch, h.seq, h.fence
	if lost {
		r.known.cursor, r.known.since = 0, 0
	}
	r.mu.Unlock()
	if lost {
		r.c.o.Log.Warn("the store lost the room's data; places come back from tokens", "room", r.id, "epoch", h.epoch)
	}
	r.wake()
	return nil
}

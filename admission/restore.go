package admission

import (
	"context"
	"fmt"
	"time"
)

// restoreMost limits the records of one room_restore call.
const restoreMost = 500

// offer holds the records that this gateway restores to a store that lost the room. If one deadline does not suffice for all of
// them, the next attempt continues with the rest.
type offer struct {
	known   string // the epoch that this gateway knew when it made the records
	given   string // the store's epoch that took a part of them; empty: none yet
	records [][5]any
}

// restore agrees on an epoch with the store and, if the store has lost the room, sends it this gateway's records, before the refused
// call is repeated and can admit anybody. refused is the epoch with which that call was refused.
func (r *store) restore(ctx context.Context, refused string) error {
	select {
	case r.restores <- struct{}{}:
		defer func() { <-r.restores }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrStore, ctx.Err())
	}
	k := r.knowledge()
	if k.epoch != refused {
		return nil // another caller has restored the room
	}
	o := r.offer
	if o == nil || o.known != k.epoch {
		o = &offer{known: k.epoch, records: r.sessions.records()}
		r.offer = o
	}
	snap := r.view.Snapshot()
	live := snap.LiveFields()
	fresh := randomName()
	var reached, last int64
	if a := r.view.anchor.Load(); a != nil {
		reached, last = r.reached(), max(a.time, r.replied.Load())
	}
	window, left := r.claimWindow.left(r.c.mono())
	_, passes := r.passLife.left(r.c.mono())
	var h header
	for first := true; first || len(o.records) > 0; first = false {
		n := min(len(o.records), restoreMost)
		args := []any{r.c.now(), k.epoch, k.seq, r.view.policyArg(), fresh, reached, last, k.gaps + k.jumps, k.reset, k.fence, snap.Version, snap.Active, snap.Opens, snap.Drawn, snap.Prequeued, snap.Target,
			max(0, snap.Hold-snap.RoomTime), window.Microseconds(), left.Microseconds(), passes.Microseconds(), snap.Evacuation.Fence, snap.Evacuation.At, len(live) / 2}
		for _, f := range live {
			args = append(args, f)
		}
		for _, rec := range o.records[:n] {
			args = append(args, rec[:]...)
		}
		sent := r.c.mono()
		reply, err := r.c.scripts.Run(ctx, "room_restore", r.keys, args...)
		if err != nil {
			return err
		}
		if len(reply) < 6 {
			return fmt.Errorf("room_restore replied %v", reply)
		}
		h = header{epoch: asString(reply[1]), seq: asInt(reply[2]), fence: asInt(reply[3]), time: asInt(reply[4]), wall: asInt(reply[5])}
		r.syncClock(h, sent, r.c.mono())
		if o.given != "" && o.given != h.epoch {
			r.offer = nil // lost again, with what was offered before
			return fmt.Errorf("%w: the store lost its data again while the room was restored", ErrStore)
		}
		o.given = h.epoch
		o.records = o.records[n:]
	}
	r.offer = nil
	r.mu.Lock()
	lost := r.known.epoch != "" && r.known.epoch != h.epoch
	r.known.epoch, r.known.seq, r.known.fence = h.epoch, h.seq, h.fence
	if lost {
		r.known.cursor, r.known.since = 0, 0
	}
	r.mu.Unlock()
	if lost {
		r.c.o.Log.Warn("the store lost the data of the room; it is restored from tokens and from what gateways remember", "room", r.id, "epoch", h.epoch)
	}
	r.wake()
	return nil
}

// records returns what this gateway handled within absence, in groups of five as room_restore takes them. Ended tickets come
// first, so that none is used twice should the time not suffice for all.
func (r *sessions) records() [][5]any {
	p := r.view.Snapshot().Policy
	now, order := r.c.mono(), r.view.Now()
	var records, admitted [][5]any
	revoked := func(id ID, left time.Duration) {
		records = append(records, [5]any{"revocation", string(id[:]), 0, order + left.Microseconds(), ""})
	}
	r.memory.all(now, func(id ID, m remembered) {
		if m.bare || now-m.at > int64(p.Absence) {
			return
		}
		s := m.standing
		raw := string(id[:])
		switch s.State {
		case Admitted:
			admitted = append(admitted, [5]any{"admitted", raw, s.AdmittedAt, m.seenAt, ""})
		case Active:
			records = append(records, [5]any{ReasonClaimed, raw, s.AdmittedAt, m.seenAt, m.client.arg()})
		case Lapsed, Ended:
			records = append(records, [5]any{s.Reason, raw, s.AdmittedAt, 0, ""})
		case Expired:
			if s.Reason == ReasonRemoved {
				records = append(records, [5]any{s.Reason, raw, 0, 0, ""})
			}
		}
	}, revoked)
	records = append(records, admitted...)
	for i := range r.shards {
		sh := &r.shards[i]
		sh.mu.Lock()
		for id, last := range sh.m {
			if left := last.ends() - now; left > 0 && last.from != fromEnded {
				records = append(records, [5]any{"session", string(id[:]), 0, order + left/1000, ""})
			}
		}
		sh.mu.Unlock()
	}
	return records
}

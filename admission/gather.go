package admission

import (
	"context"
	"errors"
)

// checkUnordered is Check for a ticket that was signed before the opening of a lottery: it is confirmed, or has an order now.
func (r *Room) checkUnordered(ctx context.Context, snap *Snapshot, t Ticket) (Standing, error) {
	presented, now := t, r.c.mono()
	if t.Address != "" {
		if wait := r.sieve.blocked(string(t.ID[:]), now); wait > 0 {
			return Standing{State: Refused, Retry: wait, Ticket: t}, nil
		}
	}
	m, ok := r.memory.get(t.ID, now)
	if lot, has := r.order(snap, t, snap.Opens, snap.Drawn); has == placed && ok && m.standing.State == Waiting &&
		0 < lot.Order && lot.Order < m.standing.Ticket.Order {
		return r.checkOrdered(ctx, snap, lot, true) // its key or account has joined again since the opening: the lot counts
	}
	if k := m.standing.Ticket; ok && m.standing.State == Waiting && k.Seen > t.Seen {
		// A client that does not keep its renewed token costs no more.
		t.renew(&k)
	}
	named, lot := r.order(snap, t, snap.Opens, snap.Drawn)
	switch {
	case lot == hasOrder:
		s, err := r.checkOrdered(ctx, snap, t, false)
		s.Renewed = s.Renewed || s.State == Waiting
		return s, err
	case lot == placed:
		return r.checkOrdered(ctx, snap, named, true)
	case ok && m.standing.State != Waiting:
		if s, final := m.answer(t, now); final {
			return s, nil
		}
	case r.confirmed(snap, t):
		return Standing{State: Waiting, Ticket: t, Renewed: t.Seen != presented.Seen, Gathering: true}, nil
	}
	if r.down.Load() || !snap.Known && r.anchor.Load() == nil {
		return r.checkOffline(t), nil
	}
	hold := r.config.Load().Policy.Hold(t.Interval, t.Wait, true) // of one that the line holds already
	ans, err := r.calm.ask(ctx, enterQ{kind: "gather", id: t.ID, client: t.Client, hold: hold, t: t})
	switch {
	case errors.Is(err, ErrStore):
		return r.checkOffline(t), nil
	case err != nil:
		return Standing{}, err
	case ans.code == codeTooMany:
		s := r.refused(snap, t, ans)
		r.sieve.block(string(t.ID[:]), now+int64(min(s.Retry, refusedMemory)))
		return s, nil
	case ans.code == "O":
		r.wake() // for the snapshot that says so too
		if named, lot = r.order(snap, t, ans.wall, ans.ord); lot == gathers {
			return Standing{State: Waiting, Ticket: t, Gathering: true}, nil
		}
		return r.checkOrdered(ctx, snap, named, true)
	}
	return r.standing(t, ans, hold, false), nil
}

// gatheredBefore is the place of an id that this gateway remembers to be confirmed before the opening of a lottery.
func (r *Room) gatheredBefore(snap *Snapshot, a Arrival, k remembered) (s Standing, gathers bool) {
	t := k.standing.Ticket
	t.ID, t.Client, t.Interval = a.ID, a.Client, a.Interval
	if k.standing.State != Waiting || !r.confirmed(snap, t) || t.Fence != snap.Fence {
		return s, false
	}
	return Standing{State: Waiting, Ticket: t, Renewed: true, Gathering: t.Order == 0}, true
}

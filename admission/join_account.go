package admission

import (
	"context"
	"errors"
	"strings"

	"github.com/anteroom/anteroom/admission/policy"
)

// generations is how many places of one account may have ended within the time that ended tickets are remembered; lua/lib/account.lua
// has the same number.
const generations = 32

// Of tells whether an id is one of those of the account whose first one is base.
func (id ID) Of(base ID) bool {
	return [15]byte(id[:15]) == [15]byte(base[:15]) && id[15]-base[15] < generations
}

func (id ID) generation(n int) ID {
	id[15] += byte(n)
	return id
}

// bases are the first ids of an account by all keys; the first of them gives new places.
func (a *Arrival) bases() []ID { return append([]ID{a.ID}, a.Former...) }

// joinAccount gives the place of an account. held, when not Granted, is why it may not be a new one. The store finds the
// account's id and gives the place in one step, so that devices and gateways may race.
func (r *Room) joinAccount(ctx context.Context, a Arrival, t Ticket, held Refusal) (Standing, Refusal, error) {
	snap := r.Snapshot()
	if r.store.away.Load() || !snap.Known && r.view.anchor.Load() == nil {
		return r.offline.joinAccountOffline(a, t, held)
	}
	if snap.Gathering() && a.From == (ID{}) { // the line holds nothing of it before the opening
		for _, base := range a.bases() {
			for n := range generations {
				t.ID = base.generation(n)
				if k, ok := r.memory.get(t.ID, r.c.mono()); !ok || k.standing.State == Waiting {
					if s, gathers := r.gatheredBefore(snap, Arrival{ID: t.ID, Client: a.Client, Interval: a.Interval}, k); ok && gathers {
						return s, Granted, nil
					}
					break
				}
			}
		}
	}
	q := enterQ{kind: "account", id: a.ID, former: a.Former, proof: a.Proof, client: a.Client, hold: policy.JoinHold(a.Interval), t: Ticket{Address: a.Address}, pass: a.Return.arg()}
	if a.Held || held != Granted {
		q.kind = "held"
	} else if a.From != (ID{}) {
		q.from = a.From
	}
	ans, err := r.calls.askAgain(ctx, q)
	switch {
	case errors.Is(err, ErrStore):
		return r.offline.joinAccountOffline(a, t, held)
	case err != nil:
		return Standing{}, Granted, err
	case ans.code == replyUnknown && held != Granted:
		return Standing{}, held, nil
	case ans.code == replyUnknown, ans.reason == "proof": // there is none, or From waits no longer, or the proof is spent
		return Standing{State: Ended, Ticket: t}, Granted, nil
	case ans.code == replyTooMany:
		return r.refused(snap, t, ans), TooMany, nil
	case ans.reason == "spent":
		return Standing{}, Spent, nil
	}
	fresh, id, ok := named(ans.reason)
	if !ok {
		return Standing{}, Granted, errors.New("admission: room_enter named no id for an account")
	}
	t.ID, ans.reason = id, ""
	if q.t.Epoch != "" {
		r.memory.asks(a.From) // it has left the line, if it was in it: one that was let in before is in still
	}
	s, refusal := r.placed(snap, t, ans, q.hold, fresh)
	return s, refusal, nil
}

// named reads the reason of an account's place.
func named(reason string) (fresh bool, id ID, ok bool) {
	if reason == "" {
		return false, id, false
	}
	id, ok = toID(reason[1:])
	return strings.HasPrefix(reason, replyNewPlace), id, ok
}

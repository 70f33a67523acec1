package admission

import (
	"context"
	"errors"

	"github.com/anteroom/anteroom/admission/policy"
)

// Return is what the pass of an ended session says of its visitor.
type Return struct {
	Session ID
	Order   int64 // order time at which the visitor arrived, µs; 0: not known
	Fence   int64 // the room's fence then; 0: not known
	Began   int64 // when the session began, in seconds of Redis's clock
	Ended   int64 // when the pass ended, likewise
}

// arg is the pass as room_enter takes it.
func (b *Return) arg() string {
	if b == nil {
		return ""
	}
	return string(b.Session[:]) + itoa(b.Order) + ":" + itoa(b.Fence) + ":" + itoa(b.Ended)
}

// keeps reports whether a pass may keep its visitor's order, as far as this gateway knows: its fence is the room's, and it ended
// within the absence of the policy, in which the times without the store do not count. Nobody keeps an order past a draw.
func (r *Room) keeps(s *Snapshot, b *Return) bool {
	known := r.store.knowledge()
	switch {
	case b.Fence <= 0 || b.Fence < max(s.Fence, known.fence), b.Order <= known.reset, s.Gathering():
		return false
	case s.Policy.Method == Lottery && b.Order < s.Drawn && b.Began < s.Opens/1e6:
		return false
	}
	lead := r.view.orderLead()
	return s.Elapsed(b.Ended*1e6+lead, r.RedisNow()+lead) <= s.Policy.Absence
}

// comeBack is take for a visitor who comes back with the pass of an ended session.
func (r *Room) comeBack(ctx context.Context, snap *Snapshot, a Arrival, t Ticket, held Refusal) (Standing, Refusal, error) {
	q := enterQ{kind: "return", id: a.ID, proof: a.Proof, client: a.Client, hold: policy.JoinHold(a.Interval), t: Ticket{Address: a.Address}, pass: a.Return.arg()}
	if a.Held || held != Granted || r.Revoked(a.Return.Session) {
		q.kind = "recall"
	}
	ans, err := r.calls.askAgain(ctx, q)
	switch {
	case errors.Is(err, ErrStore) && held != Granted:
		return Standing{}, held, nil
	case errors.Is(err, ErrStore) && q.kind == "return":
		return r.offline.joinOffline(t, a.Return, false)
	case err != nil:
		return Standing{}, Granted, err
	case ans.code == replyUnknown && held != Granted:
		return Standing{}, held, nil
	case ans.code == replyUnknown && a.Held && !r.Revoked(a.Return.Session):
		return Standing{Reason: ans.reason}, Granted, ErrUnknown
	case ans.code == replyUnknown:
		return Standing{}, Granted, ErrUnknown
	case ans.code == replyTooMany:
		return r.refused(snap, t, ans), TooMany, nil
	case ans.reason == "proof":
		return Standing{State: Ended, Ticket: t}, Granted, nil
	}
	fresh, id, ok := named(ans.reason)
	if !ok {
		return Standing{}, Granted, errors.New("admission: room_enter named no id for a visitor who came back")
	}
	t.ID, ans.reason = id, ""
	r.sessions.markRevoked(a.Return.Session, 0)
	s, refusal := r.placed(snap, t, ans, q.hold, fresh)
	return s, refusal, nil
}

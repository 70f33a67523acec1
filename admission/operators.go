package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/anteroom/anteroom/admission/snapshot"
)

// operators changes a room for operators and returns what the store holds.
type operators struct {
	identity
	view   *view
	store  *store
	calls  *ticketCalls
	ticker *ticker
	ramping
	alarms
}

// Live is a change by an operator. nil leaves a field as it is; a name in Clear returns it to the configuration.
type Live struct {
	Rate, Burst, MaxActive *int64
	Paused                 *bool
	Draining               *bool
	Message, Method        *string
	OnSoldOut              *string // keep, close
	Challenge              *string // none, auto, always, hardest
	SessionTTL             *time.Duration
	Enabled                *bool
	Clear                  []string // names as in the API: rate burst max_active paused draining message method on_sold_out challenge session.ttl enabled
}

// Patch changes live fields: in the store at once, in every gateway with its next tick. who goes into the audit log, here and in
// the methods below.
func (r *operators) Patch(ctx context.Context, who string, l Live) error {
	return r.patch(ctx, who, "patch", l)
}

// patchIf runs room_patch with args that say what has to hold, and reports whether it did: otherwise nothing was changed.
func patchIf(ctx context.Context, r *operators, args []any) (bool, error) {
	_, rest, err := r.store.do(ctx, r.tickTimeout(), "room_patch", args...)
	if err != nil {
		return false, err
	}
	if len(rest) != 1 {
		return false, fmt.Errorf("room_patch replied %v", rest)
	}
	if asInt(rest[0]) == 0 {
		return false, nil
	}
	return true, r.ticker.Tick(ctx)
}

func (r *operators) patch(ctx context.Context, who, action string, l Live) error {
	args := []any{who, r.id, action}
	set := func(name, v string) { args = append(args, "set", name, v) }
	for _, f := range []struct {
		name string
		v    *int64
	}{{"rate", l.Rate}, {"burst", l.Burst}, {"max_active", l.MaxActive}} {
		if f.v != nil {
			set(f.name, itoa(*f.v))
		}
	}
	for _, f := range []struct {
		name string
		v    *bool
	}{{"paused", l.Paused}, {"draining", l.Draining}, {"enabled", l.Enabled}} {
		if f.v != nil {
			set(f.name, bit(*f.v))
		}
	}
	if l.Message != nil {
		set("message", *l.Message)
	}
	if l.Method != nil {
		set("method", *l.Method)
	}
	if l.OnSoldOut != nil {
		set(snapshot.OnSoldOut, *l.OnSoldOut)
	}
	if l.Challenge != nil {
		set(snapshot.Challenge, *l.Challenge)
	}
	if l.SessionTTL != nil {
		set("session.ttl", itoa(l.SessionTTL.Microseconds()))
	}
	for _, name := range l.Clear {
		args = append(args, "clear", name, "")
	}
	if _, _, err := r.store.do(ctx, r.tickTimeout(), "room_patch", args...); err != nil {
		return err
	}
	return r.ticker.Tick(ctx)
}

// Pause stops admissions; joins go on.
func (r *operators) Pause(ctx context.Context, who string) error {
	yes := true
	return r.patch(ctx, who, "pause", Live{Paused: &yes})
}

// Resume undoes Pause and Drain.
func (r *operators) Resume(ctx context.Context, who string) error {
	return r.patch(ctx, who, "resume", Live{Clear: []string{"paused", "draining"}})
}

// Drain stops new tickets; waiting visitors are still admitted.
func (r *operators) Drain(ctx context.Context, who string) error {
	yes := true
	return r.patch(ctx, who, "drain", Live{Draining: &yes})
}

// resetMost is how many admitted tickets one call of room_reset removes.
const resetMost = 5000

// Reset empties the queue. Earlier tokens are expired; sessions stay.
func (r *operators) Reset(ctx context.Context, who string) error {
	for since := int64(0); ; {
		h, rest, err := r.store.do(ctx, r.tickTimeout(), "room_reset", who, r.id, since, resetMost)
		if err != nil {
			return err
		}
		since = cmp.Or(since, h.time)
		if len(rest) == 0 || asInt(rest[0]) == 0 {
			return r.ticker.Tick(ctx)
		}
	}
}

// Evacuate ends every session of the room, for a reason that goes into the audit log. Passes that were issued before are void at every
// gateway once it has the next snapshot; their visitors may return at the order of arrival.
func (r *operators) Evacuate(ctx context.Context, who, reason string) error {
	for again := 0; ; again = 1 {
		_, rest, err := r.store.do(ctx, r.tickTimeout(), "room_evacuate", who, r.id, reason, again, resetMost)
		if err != nil {
			return err
		}
		if len(rest) == 0 || asInt(rest[0]) == 0 {
			return r.ticker.Tick(ctx)
		}
		if again == 0 { // passes are void before the last admission is taken back
			if err := r.ticker.Tick(ctx); err != nil {
				return err
			}
		}
	}
}

// RemoveTicket removes a ticket from the queue; it returns ErrUnknown where there is none.
func (r *operators) RemoveTicket(ctx context.Context, who string, id ID) error {
	found, err := r.calls.remove(ctx, who, ReasonRemoved, id.String(), []leaveQ{{id: id}})
	if err != nil {
		return err
	}
	r.calls.ended(id, Expired, ReasonRemoved, false)
	if !found[0] {
		return ErrUnknown
	}
	return nil
}

// Found is what the store holds of a ticket.
type Found struct {
	State      State
	Reason     string
	Parked     bool
	Order      int64 // order time, µs; 0 unless waiting
	Seen       int64 // order time, µs, as if the store had not been away since; 0 unless waiting
	Ahead      int64 // exact, at the time of asking; only when waiting
	AdmittedAt int64 // Redis's clock, µs
}

// Lookup returns what the store holds of a ticket, or ErrUnknown. It changes nothing.
func (r *operators) Lookup(ctx context.Context, id ID) (Found, error) {
	if r.store.away.Load() {
		return Found{}, r.store.away.err()
	}
	_, v, err := r.store.do(ctx, r.c.o.Timeout, "room_lookup", string(id[:]))
	if err != nil {
		if errors.Is(err, ErrStore) {
			r.store.failed(err)
		}
		return Found{}, err
	}
	if len(v) != 6 {
		return Found{}, fmt.Errorf("room_lookup replied %v", v)
	}
	f := Found{Order: asInt(v[1]), Seen: asInt(v[2]), Ahead: asInt(v[3]), AdmittedAt: asInt(v[4]), Reason: asString(v[5])}
	switch asString(v[0]) {
	case "waiting":
		f.State = Waiting
	case "parked":
		f.State, f.Parked = Waiting, true
	case "admitted":
		f.State, f.Reason = Admitted, ""
	case "claimed":
		f.State, f.Reason = Active, ""
	case "ended":
		f.State = Ended
		switch f.Reason {
		case ReasonLapsed:
			f.State = Lapsed
		case ReasonRemoved:
			f.State = Expired
		}
	default:
		return Found{}, ErrUnknown
	}
	return f, nil
}

func bit(b bool) string { return itoa(oneIf(b)) }

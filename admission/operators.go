package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
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
	SessionTTL             *time.Duration
	Enabled                *bool
	Clear                  []string // names as in the API: rate burst max_active paused draining message method session.ttl enabled
}

// Patch changes live fields: in the store at once, in every gateway with its next tick. who goes into the audit log, here and in
// the methods below.
func (r *operators) Patch(ctx context.Context, who string, l Live) error {
	return r.patch(ctx, who, "patch", l)
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
		if since == 0 {
			since = h.time
		}
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
		return Found{}, ErrStore
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

// Entry is an entry of the audit log.
type Entry struct {
	At      int64 // seconds of Redis's clock
	Who     string
	Room    string
	Action  string // patch pause resume drain reset evacuate remove_ticket revoke
	Changes []Change
}

// Change is a field before and after, as the store keeps it (rate and burst in
// thousandths, durations in µs, booleans as 0 and 1); nil: by the configuration.
type Change struct {
	Field         string
	Before, After *string
}

// Audit returns the newest entries of the rooms of this process for which in returns true, newest first. A nil in means all.
func (c *Core) Audit(ctx context.Context, limit int, in func(room string) bool) ([]Entry, error) {
	var out []Entry
	ctx, cancel := context.WithTimeout(ctx, c.tickTimeout())
	defer cancel()
	for _, r := range c.all() {
		if in != nil && !in(r.id) {
			continue
		}
		list, err := r.audit(ctx, limit)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return int(b.At - a.At) })
	return out[:min(len(out), limit)], nil
}

// audit returns the newest entries of the room, newest first.
func (r *operators) audit(ctx context.Context, limit int) ([]Entry, error) {
	list, err := r.c.o.Client.LRange(ctx, r.keys[keyAudit], 0, int64(limit)-1).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	out := make([]Entry, 0, len(list))
	for _, text := range list {
		e, err := parseEntry(text)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// parseEntry reads the netstrings of audit in lua/lib/room.lua.
func parseEntry(text string) (Entry, error) {
	var words []*string
	for rest := text; rest != ""; {
		if rest[0] == '-' {
			words = append(words, nil)
			rest = rest[1:]
			continue
		}
		size, tail, ok := strings.Cut(rest, ":")
		n, err := strconv.Atoi(size)
		if !ok || err != nil || n < 0 || n > len(tail) {
			return Entry{}, fmt.Errorf("audit entry %q", text)
		}
		w := tail[:n]
		words = append(words, &w)
		rest = tail[n:]
	}
	if len(words) < 4 || (len(words)-4)%3 != 0 || slices.Contains(words[:4], nil) {
		return Entry{}, fmt.Errorf("audit entry %q", text)
	}
	at, err := strconv.ParseInt(*words[0], 10, 64)
	if err != nil {
		return Entry{}, fmt.Errorf("audit entry %q: %w", text, err)
	}
	e := Entry{At: at, Who: *words[1], Room: *words[2], Action: *words[3]}
	for w := words[4:]; len(w) > 0; w = w[3:] {
		if w[0] == nil {
			return Entry{}, fmt.Errorf("audit entry %q", text)
		}
		e.Changes = append(e.Changes, Change{Field: *w[0], Before: w[1], After: w[2]})
	}
	return e, nil
}

func bit(b bool) string { return itoa(oneIf(b)) }

package admission

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// reply is a script's answer about one ticket.
type reply struct {
	code   string
	ord    int64
	wall   int64
	reason string
	h      header
}

type enterQ struct {
	kind   string // arrive, keyed, account, held, enrol, signed, charge
	id     ID
	client Client
	grace  int64 // seconds
	t      Ticket
	former []ID // of an account
	proof  ID   // likewise; zero: none
}

// args is one of room_enter's groups of nine.
func (q *enterQ) args(dst []any) []any {
	if q.kind == "charge" {
		return append(dst, q.kind, "", "", 0, 0, 0, "", 0, "")
	}
	id := string(q.id[:])
	for i := range q.former {
		id += string(q.former[i][:])
	}
	var order any = q.t.Order
	switch {
	case q.kind != "account" && q.kind != "held":
	case q.proof == ID{}:
		order = ""
	default:
		order = string(q.proof[:])
	}
	return append(dst, q.kind, id, q.client.arg(), q.grace, order, q.t.Seen, q.t.Epoch, q.t.Fence, q.t.Address)
}

type seenQ struct {
	id     ID
	client Client
	grace  int64
}

type claimQ struct {
	id     ID
	client Client
}

// neverHeard is the epoch in tokens of a gateway that never heard the store;
// their order is microseconds to put behind the store's last tick.
const neverHeard = "?"

// grace is for how many seconds a ticket counts as present when it was heard of
// now: max(30 s, 2 × interval + 10 s).
func grace(interval time.Duration) int64 {
	if interval <= 0 {
		interval = 10 * time.Second
	}
	return max(30, int64((2*interval+10*time.Second+time.Second-1)/time.Second))
}

func (c Client) arg() string {
	if c == (Client{}) {
		return ""
	}
	return string(c[:])
}

// replies reads the groups of four that follow a header.
func replies(h header, rest []any, n int) ([]reply, error) {
	if len(rest) != 4*n {
		return nil, errors.New("admission: a script answered another number of tickets than it was asked about")
	}
	out := make([]reply, n)
	for i := range out {
		g := rest[4*i:]
		out[i] = reply{code: asString(g[0]), ord: asInt(g[1]), wall: asInt(g[2]), reason: asString(g[3]), h: h}
	}
	return out, nil
}

// enterArgs are the groups of room_enter.
func enterArgs(qs []enterQ) []any {
	args := make([]any, 0, 9*len(qs))
	for i := range qs {
		args = qs[i].args(args)
	}
	return args
}

func (r *Room) sendEnter(ctx context.Context, qs []enterQ) ([]reply, error) {
	args := enterArgs(qs)
	// One at a time: whoever is told a place must know of all who were enrolled before.
	r.entering.Lock()
	defer r.entering.Unlock()
	answers, err := r.ask(ctx, "room_enter", args, len(qs))
	var orders []int64
	for i, a := range answers {
		switch kind := qs[i].kind; {
		case a.code != "W" && a.code != "S":
		case kind == "arrive", kind == "keyed", kind == "account" && strings.HasPrefix(a.reason, "n"):
			orders = append(orders, a.ord)
		}
	}
	if len(orders) > 0 { // but for those that a newer snapshot holds by now
		r.change(func(b *beyond) { b.recent = b.recent.with(orders).after(b.snap.RoomTime) })
	}
	return answers, err
}

func (r *Room) sendSeen(ctx context.Context, qs []seenQ) ([]reply, error) {
	args := make([]any, 0, 3*len(qs))
	for _, q := range qs {
		args = append(args, string(q.id[:]), q.client.arg(), q.grace)
	}
	return r.ask(ctx, "room_seen", args, len(qs))
}

func (r *Room) sendClaim(ctx context.Context, qs []claimQ) ([]reply, error) {
	args := make([]any, 0, 2*len(qs))
	for _, q := range qs {
		args = append(args, string(q.id[:]), q.client.arg())
	}
	return r.ask(ctx, "room_claim", args, len(qs))
}

// ask runs a script about n tickets on the request path.
func (r *Room) ask(ctx context.Context, script string, args []any, n int) ([]reply, error) {
	if r.down.Load() {
		return nil, ErrStore // the loop finds out when it is back
	}
	h, rest, err := r.do(ctx, r.c.o.Timeout, script, args...)
	if err != nil {
		if errors.Is(err, ErrStore) && !redis.IsOOMError(err) {
			r.failed(err) // a full store refuses newcomers, but serves those who wait
		}
		return nil, err
	}
	return replies(h, rest, n)
}

// standing turns a reply into the answer about t, and remembers it.
func (r *Room) standing(t Ticket, a reply) Standing {
	s := Standing{Ticket: t, AdmittedAt: a.wall, Reason: a.reason}
	switch a.code {
	case "W":
		s.State = Waiting
		old := t
		s.Ticket.Order, s.Ticket.Seen, s.Ticket.Epoch, s.Ticket.Fence = a.ord, a.h.room, a.h.epoch, a.h.fence
		s.Renewed = old.Order != a.ord || old.Epoch != a.h.epoch || old.Fence != a.h.fence ||
			a.h.room-old.Seen > r.quarter().Microseconds()
		if !s.Renewed {
			// The token in hand still says all that matters.
			s.Ticket = old
		}
	case "P":
		s.State, s.Renewed, s.Gathering = Waiting, true, true
		s.Ticket.Seen, s.Ticket.Epoch, s.Ticket.Fence = a.h.room, a.h.epoch, a.h.fence
	case "A":
		s.State = Admitted
	case "C":
		s.State = Active
	case "L":
		s.State = Lapsed
	case "X":
		s.State = Expired
	default:
		s.State = Ended
	}
	first := (a.code == "C" || a.code == "P") && a.reason == claimedFirst
	if first {
		s.Reason = ""
	}
	r.memory.put(t.ID, remembered{standing: s, at: r.c.mono(), client: t.Client, seenRoom: a.h.room})
	s.First = first
	return s
}

// codeTooMany is room_enter's answer that an address has too many places.
const codeTooMany = "J"

// refusedMemory is for how long a refused ticket is not asked about again.
const refusedMemory = 10 * time.Second

// refused is the answer to a place that was not given, and lets the sieve know.
func (r *Room) refused(t Ticket, a reply) Standing {
	s := Standing{State: Refused, Reason: a.reason, Retry: time.Duration(a.ord) * time.Microsecond, Ticket: t}
	key := addressKey(t.Address)
	if a.reason == ReasonNetwork {
		key = networkKey(t.Address)
	}
	r.sieve.block(key, r.c.mono()+int64(s.Retry))
	return s
}

// claimedFirst is the reason of the claim that makes a session.
const claimedFirst = "first"

// quarter of absence: how old a confirmation may be before it is renewed.
func (r *Room) quarter() time.Duration { return r.config.Load().policy.Absence / 4 }

// Check answers a poll: from the snapshot or from memory where DESIGN §4 allows
// it, otherwise from the store in a batch. A ticket that is not enrolled is
// enrolled. It errs only when there is no honest answer; while the store is
// away a waiting ticket is answered as waiting (Offline).
func (r *Room) Check(ctx context.Context, t Ticket) (Standing, error) {
	snap := r.Snapshot()
	if snap.Known && t.Epoch != neverHeard && t.Fence < snap.Fence {
		return Standing{State: Expired, Reason: ReasonReset, Ticket: t}, nil
	}
	if t.Order == 0 {
		return r.checkUnordered(ctx, snap, t)
	}
	return r.checkOrdered(ctx, snap, t, false)
}

// checkOrdered is Check for a ticket with an order. fresh: it has just come to have it, so the store holds no place yet; 0 is
// then the order of its enrolment.
func (r *Room) checkOrdered(ctx context.Context, snap *Snapshot, t Ticket, fresh bool) (Standing, error) {
	near := fresh || r.inFront(snap, t.Order)
	if !near && r.confirmed(snap, t) && !r.memory.settled(t.ID) {
		return Standing{State: Waiting, Ticket: t}, nil
	}
	presented, now := t, r.c.mono()
	if t.Address != "" {
		if wait := r.sieve.blocked(string(t.ID[:]), now); wait > 0 {
			return Standing{State: Refused, Retry: wait, Ticket: t}, nil
		}
	}
	if m, ok := r.memory.get(t.ID, now); ok {
		// It was confirmed before the opening, or has a place that was taken after it.
		unplaced := m.standing.State == Waiting && (m.standing.Ticket.Order == 0 || fresh && 0 < t.Order && t.Order < m.standing.Ticket.Order)
		if s, final := m.answer(t, now); final && !unplaced {
			return s, nil
		}
		if m.standing.State == Waiting && !unplaced && m.standing.Ticket.Seen > t.Seen {
			// A client that does not keep its renewed token costs no more.
			k := m.standing.Ticket
			t.Order, t.Seen, t.Epoch, t.Fence = k.Order, k.Seen, k.Epoch, k.Fence
			fresh = false
		}
	}
	near = fresh || r.inFront(snap, t.Order)
	if !near && r.confirmed(snap, t) {
		return Standing{State: Waiting, Ticket: t, Renewed: t.Seen != presented.Seen}, nil
	}
	if r.down.Load() || !snap.Known && r.anchor.Load() == nil {
		return r.checkOffline(t), nil
	}
	var ans reply
	var err error
	enrol := fresh || !snap.Known || t.Epoch != snap.Epoch
	if !enrol {
		lane := r.far
		if near {
			lane = r.near
		}
		ans, err = lane.ask(ctx, seenQ{id: t.ID, client: t.Client, grace: grace(t.Interval)})
		enrol = err == nil && ans.code == "U"
	}
	if enrol {
		ans, err = r.enter.ask(ctx, enterQ{kind: "enrol", id: t.ID, client: t.Client, grace: grace(t.Interval), t: t})
	}
	if errors.Is(err, ErrStore) {
		return r.checkOffline(t), nil
	}
	if err != nil {
		return Standing{}, err
	}
	if ans.code == codeTooMany {
		s := r.refused(t, ans)
		// It polls again when it was told to. Till then nobody else enrols it either.
		r.sieve.block(string(t.ID[:]), now+int64(min(s.Retry, refusedMemory)))
		return s, nil
	}
	if fresh {
		t.Order = 0 // of the token in hand
	}
	s := r.standing(t, ans)
	s.Renewed = s.Renewed || s.Ticket.Seen != presented.Seen
	if ans.code == "W" && !snap.Known {
		r.wake()
	}
	return s, nil
}

// Settled says whether a ticket may have been heard to wait no longer: admitted, here or elsewhere, or ended here. Where it
// says so, Check knows. It asks and waits for nothing.
func (r *Room) Settled(id ID) bool { return r.memory.settled(id) }

// confirmed says whether the store has confirmed a ticket lately enough, so that nothing has to be asked as long as it is
// not in the front.
func (r *Room) confirmed(s *Snapshot, t Ticket) bool {
	return s.Known && t.Epoch == s.Epoch && r.Now()-t.Seen <= r.quarter().Microseconds()
}

// Claim turns an admitted ticket into a session. The State is Active for the
// claimer (again within the claim window for the same Client), Waiting with
// ErrNotYet before its turn, else Lapsed, Ended or Expired with no error.
func (r *Room) Claim(ctx context.Context, t Ticket) (Standing, error) {
	if s, known := r.claimed(t); known {
		if s.State == Waiting {
			return s, ErrNotYet
		}
		return s, nil
	}
	ans, err := r.claim.ask(ctx, claimQ{id: t.ID, client: t.Client})
	if err != nil {
		return Standing{}, err
	}
	switch ans.code {
	case "U":
		// Not enrolled: the check finds its place, or says that it is late.
		s, err := r.Check(ctx, t)
		if err == nil && s.State == Waiting {
			err = ErrNotYet
		}
		return s, err
	case "W":
		s := r.waitingAt(t, ans)
		r.memory.put(t.ID, remembered{standing: s, at: r.c.mono(), asked: true})
		return s, ErrNotYet
	}
	return r.standing(t, ans), nil
}

// claimed answers a claim without the store: one of a ticket far from the front, one that is repeated within a second, and
// one of a ticket that is over.
func (r *Room) claimed(t Ticket) (Standing, bool) {
	snap, now := r.Snapshot(), r.c.mono()
	m, ok := r.memory.get(t.ID, now)
	switch {
	case t.Fence < snap.Fence:
		return Standing{}, false
	case !ok:
	case m.standing.State == Admitted: // the store was not asked to claim it
		return Standing{}, false
	case m.standing.State != Waiting:
		return m.answer(t, now)
	case m.asked:
		return Standing{State: Waiting, Ticket: t}, true
	}
	far := now-snap.ReadAt < int64(farAge) && !r.inFront(snap, t.Order) && r.confirmed(snap, t)
	return Standing{State: Waiting, Ticket: t}, far
}

// farAge is how old a snapshot may be that says that nobody behind the front has been admitted: the front is 10 s of the
// rate or more.
const farAge = 5 * time.Second

// waitingAt is a standing in line that the store did not renew.
func (r *Room) waitingAt(t Ticket, a reply) Standing {
	if a.ord > 0 && a.ord != t.Order {
		t.Order = a.ord
	}
	return Standing{State: Waiting, Ticket: t}
}

// Leave gives a place (or an unclaimed admission) back.
func (r *Room) Leave(ctx context.Context, t Ticket) error {
	gathered := ""
	if t.Order == 0 && t.Counted() {
		gathered = itoa(t.Fence) + ":" + itoa(max(t.Seen, r.lastSeen(t.ID)))
	}
	_, err := r.out(ctx, "", ReasonLeft, t.ID, gathered)
	return err
}

// lastSeen is when the store confirmed a ticket that waits, as far as this gateway remembers; 0: it does not.
func (r *Room) lastSeen(id ID) int64 {
	if m, ok := r.memory.get(id, r.c.mono()); ok && m.standing.State == Waiting {
		return m.standing.Ticket.Seen
	}
	return 0
}

// out takes a ticket out of the line for good. gathered is the fence and when one was confirmed that gathers for a lottery; "":
// it does not, or that is not known.
func (r *Room) out(ctx context.Context, who, reason string, id ID, gathered string) (found bool, err error) {
	if r.down.Load() {
		return false, ErrStore
	}
	_, rest, err := r.do(ctx, r.c.o.Timeout, "room_leave", who, r.id, reason, id.String(), string(id[:]), gathered)
	if err != nil {
		if errors.Is(err, ErrStore) {
			r.failed(err)
		}
		return false, err
	}
	state := Ended
	if reason == ReasonRemoved {
		state = Expired
	}
	r.memory.put(id, remembered{standing: Standing{State: state, Reason: reason, Ticket: Ticket{ID: id}}, at: r.c.mono()})
	return len(rest) > 0 && asInt(rest[0]) > 0, nil
}

// Charge takes one unit of the limiter for a request that gets no session (a
// subresource without a pass): true while nobody waits and there is capacity.
func (r *Room) Charge(ctx context.Context) bool {
	snap := r.Snapshot()
	if r.down.Load() || snap.Policy.Method == Reject || snap.Gathering() || r.length(snap) > 0 {
		return false
	}
	ans, err := r.enter.ask(ctx, enterQ{kind: "charge"})
	return err == nil && ans.code == "Y"
}

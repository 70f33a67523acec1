package admission

import (
	"context"
	"errors"
	"fmt"
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
	kind   string // arrive, keyed, find, account, held, return, recall, enrol, signed, gather, charge
	id     ID
	client Client
	hold   time.Duration
	t      Ticket
	former []ID // of an account
	proof  ID   // of an account, or a visitor who comes back; zero: none
	back   string
}

// args is one of room_enter's groups of eleven.
func (q *enterQ) args(dst []any) []any {
	if q.kind == "charge" {
		return append(dst, q.kind, "", "", 0, 0, 0, "", 0, "", 0, "")
	}
	id := string(q.id[:])
	for i := range q.former {
		id += string(q.former[i][:])
	}
	var order, back any = q.t.Order, q.back
	switch q.kind {
	case "enrol", "signed", "gather":
		back = int64(q.t.Hold / time.Second)
	case "account", "held", "return", "recall":
		order = ""
		if q.proof != (ID{}) {
			order = string(q.proof[:])
		}
	}
	return append(dst, q.kind, id, q.client.arg(), int64(q.hold/time.Second), order, q.t.Seen, q.t.Epoch, q.t.Fence, q.t.Address, q.t.lastHeard(), back)
}

type seenQ struct {
	id     ID
	client Client
	hold   time.Duration
}

type claimQ struct {
	id     ID
	client Client
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
	args := make([]any, 0, 11*len(qs))
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
		case a.code != "W" && a.code != codeSigned:
		case kind == "arrive", (kind == "keyed" || kind == "account") && strings.HasPrefix(a.reason, "n"):
			orders = append(orders, a.ord)
		}
	}
	if len(orders) > 0 { // but for those that a newer snapshot holds by now
		r.change(func(b *beyond) { b.recent = b.recent.with(orders).after(b.snap.Time) })
	}
	return answers, err
}

func (r *Room) sendSeen(ctx context.Context, qs []seenQ) ([]reply, error) {
	args := make([]any, 0, 3*len(qs))
	for _, q := range qs {
		args = append(args, string(q.id[:]), q.client.arg(), int64(q.hold/time.Second))
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

// standing turns a reply into the answer about t, and remembers it. hold is what the store was asked to record for a ticket
// that waits; near that the ticket is in the front, where each poll is checked whatever its token claims.
func (r *Room) standing(t Ticket, a reply, hold time.Duration, near bool) Standing {
	s := Standing{Ticket: t, AdmittedAt: a.wall, Reason: a.reason}
	m := remembered{at: r.c.mono(), client: t.Client, seenAt: a.h.time, hold: hold}
	if owner, claimed := strings.CutPrefix(a.reason, ReasonClaimed); claimed {
		s.Reason, m.unsure = ReasonClaimed, owner == "?"
		if !m.unsure {
			m.client = Client{}
			copy(m.client[:], owner)
		}
	}
	switch a.code {
	case "W":
		s.State = Waiting
		old := t
		s.Ticket.renew(&Ticket{Order: a.ord, Seen: a.h.time, Hold: hold, Epoch: a.h.epoch, Fence: a.h.fence})
		s.Renewed = !near || old.Order != a.ord || old.Epoch != a.h.epoch || old.Fence != a.h.fence || old.Heard != 0 ||
			a.h.time-old.Seen > r.quarter().Microseconds()
		if !s.Renewed {
			// The token in hand still says all that matters.
			s.Ticket = old
		}
	case "P":
		s.State, s.Renewed, s.Gathering = Waiting, true, true
		s.Ticket.Seen, s.Ticket.Epoch, s.Ticket.Fence, s.Ticket.Heard = a.h.time, a.h.epoch, a.h.fence, 0
		s.Ticket.Hold = r.config.Load().Policy.PrequeueHold()
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
	m.standing = s
	r.memory.put(t.ID, m)
	s.First = first
	return s
}

// Answers of room_enter that are no standing in the queue.
const (
	codeTooMany = "J" // an address has too many places
	codeSigned  = "S" // the front is full: the order is the place until the first poll
	codeUnknown = "U" // there is no place, and none was asked for
)

// refusedMemory is for how long a refused ticket is not asked about again.
const refusedMemory = 10 * time.Second

// refused is the answer to a place that was not given, and lets the sieve know. snap is of before the store was asked: by a
// policy that is another since, nobody is kept off.
func (r *Room) refused(snap *Snapshot, t Ticket, a reply) Standing {
	s := Standing{State: Refused, Reason: a.reason, Retry: time.Duration(a.ord) * time.Microsecond, Ticket: t}
	r.sieve.refuse(t.Address, a.reason, &snap.Policy, r.c.mono()+int64(s.Retry))
	return s
}

// claimedFirst is the reason of the claim that makes a session.
const claimedFirst = "first"

// quarter of absence: how old a confirmation may be before it is renewed.
func (r *Room) quarter() time.Duration { return r.config.Load().Policy.Absence / 4 }

// Check answers a poll: from the snapshot or from memory where DESIGN §4 allows
// it, otherwise from the store in a batch. A ticket that is not enrolled is
// enrolled. It errs only when there is no honest answer; while the store is
// away a waiting ticket is answered as waiting (Offline).
func (r *Room) Check(ctx context.Context, t Ticket) (Standing, error) {
	snap := r.Snapshot()
	if snap.Known && t.Fence > 0 && t.Fence < snap.Fence {
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
	near := fresh || snap.InFront(t.Order)
	if !near && r.present(snap, &t) && !r.memory.settled(t.ID) {
		return Standing{State: Waiting, Ticket: t}, nil
	}
	presented, now := t, r.c.mono()
	if t.Address != "" {
		if wait := r.sieve.blocked(string(t.ID[:]), now); wait > 0 {
			return Standing{State: Refused, Retry: wait, Ticket: t}, nil
		}
	}
	m, ok := r.memory.get(t.ID, now)
	if ok {
		// It was confirmed before the opening, or has a place that was taken after it.
		unplaced := m.standing.State == Waiting && (m.standing.Ticket.Order == 0 ||
			(fresh || r.earlier(t, now)) && 0 < t.Order && t.Order < m.standing.Ticket.Order)
		if s, final := m.answer(t, now); final && !unplaced {
			return s, nil
		}
		if m.standing.State == Waiting && !unplaced && m.standing.Ticket.Seen > t.Seen {
			// A client that does not keep its renewed token costs no more.
			t.renew(&m.standing.Ticket)
			fresh = false
		}
	}
	near = fresh || snap.InFront(t.Order)
	// A ticket that was admitted may lie behind the front, when tickets ahead of it came back since.
	if !near && r.present(snap, &t) && (!ok || m.standing.State == Waiting) {
		return Standing{State: Waiting, Ticket: t, Renewed: t.Seen != presented.Seen}, nil
	}
	if r.down.Load() || !snap.Known && r.anchor.Load() == nil {
		return r.checkOffline(t), nil
	}
	var ans reply
	var err error
	hold := r.config.Load().Policy.Hold(t.Interval, t.Wait, near)
	enrol := fresh || !snap.Known || t.Epoch != snap.Epoch
	if !enrol {
		lane := r.far
		if near {
			lane = r.near
		}
		ans, err = lane.ask(ctx, seenQ{id: t.ID, client: t.Client, hold: hold})
		enrol = err == nil && ans.code == "U"
	}
	if enrol {
		ans, err = r.enter.ask(ctx, enterQ{kind: "enrol", id: t.ID, client: t.Client, hold: hold, t: t})
	}
	if errors.Is(err, ErrStore) {
		return r.checkOffline(t), nil
	}
	if err != nil {
		return Standing{}, err
	}
	if ans.code == codeTooMany {
		s := r.refused(snap, t, ans)
		// It polls again when it was told to. Till then nobody else enrols it either.
		r.sieve.block(string(t.ID[:]), now+int64(min(s.Retry, refusedMemory)))
		return s, nil
	}
	if t.Epoch == "" && 0 < t.Order && t.Order < ans.ord {
		r.sieve.block(earlierKey(t), now+int64(refusedMemory)) // a join limit has postponed it, or it is late
	}
	if fresh {
		t.Order = 0 // of the token in hand
	}
	s := r.standing(t, ans, hold, near)
	s.Renewed = s.Renewed || s.Ticket.Seen != presented.Seen
	if ans.code == "W" && !snap.Known {
		r.wake()
	}
	return s, nil
}

// earlier reports whether a ticket that was never enrolled may get its place by an order before the one that this gateway
// remembers: its join was repeated, and another of its orders was enrolled first. The store is asked once in a while.
func (r *Room) earlier(t Ticket, now int64) bool {
	return t.Epoch == "" && r.sieve.blocked(earlierKey(t), now) == 0
}

func earlierKey(t Ticket) string { return "order" + string(t.ID[:]) }

// Settled says whether a ticket may have been heard to wait no longer: admitted, here or elsewhere, or ended here. Where it
// says so, Check knows. It asks and waits for nothing.
func (r *Room) Settled(id ID) bool { return r.memory.settled(id) }

// confirmed says whether the store has confirmed a ticket that gathers for a lottery lately enough.
func (r *Room) confirmed(s *Snapshot, t Ticket) bool {
	return s.Known && t.Epoch == s.Epoch && s.Elapsed(t.Seen, r.Now()) <= r.quarter()
}

// present reports whether the store counts a ticket in line as present until the poll that is about to be advised, so that
// nothing has to be asked as long as it is not in the front.
func (r *Room) present(s *Snapshot, t *Ticket) bool {
	return s.Known && t.Epoch == s.Epoch && t.covers(s.Elapsed(t.Seen, r.Now()))
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
	return r.standing(t, ans, 0, false), nil
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
	far := now-snap.ReadAt < int64(farAge) && !snap.InFront(t.Order) && r.present(snap, &t)
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

// Leave gives a place (or an unclaimed admission) back. The store keeps nothing of a ticket that it does not hold, as one
// behind the front before its first poll: this gateway answers that it has left for as long as it remembers, and any other
// enrols it if it is polled with.
func (r *Room) Leave(ctx context.Context, t Ticket) error {
	now := r.c.mono()
	if m, ok := r.memory.get(t.ID, now); ok && m.over() && (!m.bare || now-m.at < int64(time.Second)) {
		return nil
	}
	gathered := ""
	if t.Order == 0 && t.Counted() {
		gathered = itoa(t.Fence) + ":" + itoa(max(t.Seen, r.lastSeen(t.ID)))
	}
	_, err := r.gone.ask(ctx, leaveQ{id: t.ID, gathered: gathered})
	return err
}

// leaveQ is a ticket whose visitor leaves: see out.
type leaveQ struct {
	id       ID
	gathered string
}

func (r *Room) sendLeave(ctx context.Context, qs []leaveQ) ([]bool, error) {
	pairs := make([]any, 0, 2*len(qs))
	for _, q := range qs {
		pairs = append(pairs, string(q.id[:]), q.gathered)
	}
	found, err := r.out(ctx, "", ReasonLeft, "", pairs)
	if err != nil {
		return nil, err
	}
	for i, q := range qs {
		r.over(q.id, Ended, ReasonLeft, !found[i])
	}
	return found, nil
}

// lastSeen is when the store confirmed a ticket that waits, as far as this gateway remembers; 0: it does not.
func (r *Room) lastSeen(id ID) int64 {
	if m, ok := r.memory.get(id, r.c.mono()); ok && m.standing.State == Waiting {
		return m.standing.Ticket.Seen
	}
	return 0
}

// out takes tickets out of the line for good, and tells of each whether it was there. pairs are an id and, of a ticket that gathers,
// the fence and when it was confirmed; "": it does not gather, or that is not known.
func (r *Room) out(ctx context.Context, who, reason, label string, pairs []any) (found []bool, err error) {
	if r.down.Load() {
		return nil, ErrStore
	}
	_, rest, err := r.do(ctx, r.c.o.Timeout, "room_leave", append([]any{who, r.id, reason, label}, pairs...)...)
	if err != nil {
		if errors.Is(err, ErrStore) {
			r.failed(err)
		}
		return nil, err
	}
	if len(rest) != len(pairs)/2 {
		return nil, fmt.Errorf("room_leave answered %v for %d tickets", rest, len(pairs)/2)
	}
	found = make([]bool, len(rest))
	for i := range rest {
		found[i] = asInt(rest[i]) > 0
	}
	return found, nil
}

// over remembers that a ticket has ended; bare: the store keeps nothing of it.
func (r *Room) over(id ID, state State, reason string, bare bool) {
	r.memory.put(id, remembered{standing: Standing{State: state, Reason: reason, Ticket: Ticket{ID: id}}, at: r.c.mono(), bare: bare})
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

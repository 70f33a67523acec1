package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ticketCalls runs the scripts about single tickets, each in batches.
type ticketCalls struct {
	identity
	view   *view
	store  *store
	memory *memory

	enter          *batcher[enterQ, reply]
	frontChecks    *batcher[seenQ, reply]  // polls in the front: a client waits for each
	renewals       *batcher[seenQ, reply]  // polls behind it
	prequeueChecks *batcher[enterQ, reply] // polls in the pre-queue
	claims         *batcher[claimQ, reply]
	leaves         *batcher[leaveQ, bool]

	entering sync.Mutex // held by room_enter
}

func (r *ticketCalls) init(me identity, v *view, s *store, m *memory) {
	r.identity, r.view, r.store, r.memory = me, v, s, m
	r.enter = &batcher[enterQ, reply]{script: "room_enter", wait: time.Millisecond, send: r.sendEnter}
	r.frontChecks = &batcher[seenQ, reply]{script: "room_seen", wait: time.Millisecond, send: r.sendSeen}
	r.renewals = &batcher[seenQ, reply]{script: "room_seen", wait: 8 * time.Millisecond, send: r.sendSeen}
	r.prequeueChecks = &batcher[enterQ, reply]{script: "room_enter", wait: 8 * time.Millisecond, send: r.sendEnter}
	r.claims = &batcher[claimQ, reply]{script: "room_claim", wait: time.Millisecond, send: r.sendClaim}
	r.leaves = &batcher[leaveQ, bool]{script: "room_leave", wait: time.Millisecond, send: r.sendLeave}
}

// reply is a script's reply about one ticket.
type reply struct {
	code   string
	ord    int64
	wall   int64
	reason string
	h      header
}

// replies reads the groups of four after a header.
func replies(h header, rest []any, n int) ([]reply, error) {
	if len(rest) != 4*n {
		return nil, fmt.Errorf("admission: a script replied %d values for %d tickets, want 4 for each", len(rest), n)
	}
	out := make([]reply, n)
	for i := range out {
		g := rest[4*i:]
		out[i] = reply{code: asString(g[0]), ord: asInt(g[1]), wall: asInt(g[2]), reason: asString(g[3]), h: h}
	}
	return out, nil
}

// enterQ is a request to room_enter.
type enterQ struct {
	kind   string // arrive, keyed, find, account, held, return, recall, enrol, signed, prequeue, charge
	id     ID
	client Client
	hold   time.Duration
	t      Ticket // of arrivals only its Address
	former []ID   // of an account
	from   ID     // of an account: the ticket whose place becomes the account's; zero: none
	proof  ID     // of an account, or a visitor who returns; zero: none
	pass   string // of an account, or a visitor who returns
	// sessionOnly: a session or nothing, no place.
	sessionOnly bool
}

// args appends one group of room_enter, whose header lists the arguments of each kind.
func (q *enterQ) args(dst []any) []any {
	if q.sessionOnly {
		dst = append(dst, "session_only")
	}
	dst = append(dst, q.kind)
	if q.kind == "charge" {
		return dst
	}
	dst = append(dst, string(q.id[:]))
	if q.kind == "account" || q.kind == "held" {
		var others []byte
		for _, id := range q.former {
			others = append(others, id[:]...)
		}
		dst = append(dst, others)
	}
	dst = append(dst, q.client.arg(), int64(q.hold/time.Second))
	switch t := &q.t; q.kind {
	case "arrive", "keyed":
		dst = append(dst, t.Address)
	case "account":
		dst = append(dst, t.Address, q.proof.arg(), q.from.arg(), q.pass)
	case "return":
		dst = append(dst, t.Address, q.proof.arg(), q.pass)
	case "recall":
		dst = append(dst, q.pass)
	case "enrol", "signed":
		dst = append(dst, t.Order, t.Seen, t.Epoch, t.Fence, t.Address, t.lastAnswered(), int64(t.Hold/time.Second))
	case "prequeue":
		dst = append(dst, t.Seen, t.Epoch, t.Fence, t.Address, t.lastAnswered(), int64(t.Hold/time.Second))
	}
	return dst
}

// enterArgs returns the groups of room_enter.
func enterArgs(qs []enterQ) []any {
	args := make([]any, 0, 12*len(qs))
	for i := range qs {
		args = qs[i].args(args)
	}
	return args
}

// sendEnter runs room_enter, one batch at a time, so that the position of a new ticket counts all tickets enrolled before it.
func (r *ticketCalls) sendEnter(ctx context.Context, qs []enterQ) ([]reply, error) {
	args := enterArgs(qs)
	r.entering.Lock()
	defer r.entering.Unlock()
	answers, err := r.store.ask(ctx, "room_enter", args, len(qs))
	var orders []int64
	for i, a := range answers {
		switch kind := qs[i].kind; {
		case a.code != replyWaiting && a.code != replySigned:
		case kind == "arrive", (kind == "keyed" || kind == "account") && strings.HasPrefix(a.reason, replyNewPlace):
			orders = append(orders, a.ord)
		}
	}
	if len(orders) > 0 { // a newer snapshot may hold some of them by now
		r.view.change(func(b *sinceSnapshot) { b.recent = b.recent.with(orders).after(b.snap.Time) })
	}
	return answers, err
}

// askAgain sends a join, and repeats it when the reply does not come in time. The store may have given a place, which the
// repeated join finds; otherwise the first poll would enrol the ticket behind visitors who joined later.
func (r *ticketCalls) askAgain(ctx context.Context, q enterQ) (reply, error) {
	ans, err := r.enter.ask(ctx, q)
	for range joinAgain {
		if !errors.Is(err, ErrStore) || r.store.away.Load() || redis.IsOOMError(err) {
			break
		}
		ans, err = r.enter.ask(ctx, q)
	}
	return ans, err
}

type seenQ struct {
	id     ID
	client Client
	hold   time.Duration
}

func (r *ticketCalls) sendSeen(ctx context.Context, qs []seenQ) ([]reply, error) {
	args := make([]any, 0, 3*len(qs))
	for _, q := range qs {
		args = append(args, string(q.id[:]), q.client.arg(), int64(q.hold/time.Second))
	}
	return r.store.ask(ctx, "room_seen", args, len(qs))
}

type claimQ struct {
	id     ID
	client Client
}

func (r *ticketCalls) sendClaim(ctx context.Context, qs []claimQ) ([]reply, error) {
	args := make([]any, 0, 2*len(qs))
	for _, q := range qs {
		args = append(args, string(q.id[:]), q.client.arg())
	}
	return r.store.ask(ctx, "room_claim", args, len(qs))
}

// leaveQ is a ticket that leaves the queue. fence and confirmed are those of a ticket in the pre-queue, as its gateway knows them, else 0.
type leaveQ struct {
	id               ID
	fence, confirmed int64
}

func (r *ticketCalls) sendLeave(ctx context.Context, qs []leaveQ) ([]bool, error) {
	found, err := r.remove(ctx, "", ReasonLeft, "", qs)
	if err != nil {
		return nil, err
	}
	for i, q := range qs {
		r.ended(q.id, Ended, ReasonLeft, !found[i])
	}
	return found, nil
}

// remove removes tickets from the queue for good, and reports for each whether it was there.
func (r *ticketCalls) remove(ctx context.Context, who, reason, label string, qs []leaveQ) (found []bool, err error) {
	if r.store.away.Load() {
		return nil, r.store.away.err()
	}
	args := append(make([]any, 0, 4+3*len(qs)), who, r.id, reason, label)
	for _, q := range qs {
		args = append(args, string(q.id[:]), q.fence, q.confirmed)
	}
	_, rest, err := r.store.do(ctx, r.c.o.Timeout, "room_leave", args...)
	if err != nil {
		if errors.Is(err, ErrStore) {
			r.store.failed(err)
		}
		return nil, err
	}
	if len(rest) != len(qs) {
		return nil, fmt.Errorf("room_leave replied %v for %d tickets", rest, len(qs))
	}
	found = make([]bool, len(rest))
	for i := range rest {
		found[i] = asInt(rest[i]) > 0
	}
	return found, nil
}

// ended remembers that a ticket has ended. bare: the store keeps no record of it.
func (r *ticketCalls) ended(id ID, state State, reason string, bare bool) {
	r.memory.put(id, remembered{standing: Standing{State: state, Reason: reason, Ticket: Ticket{ID: id}}, at: r.c.mono(), bare: bare})
}

// arg returns the id as scripts take it; "" for the zero ID.
func (id ID) arg() string {
	if id == (ID{}) {
		return ""
	}
	return string(id[:])
}

func (c Client) arg() string {
	if c == (Client{}) {
		return ""
	}
	return string(c[:])
}

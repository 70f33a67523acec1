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
	r.enter = &batcher[enterQ, reply]{wait: time.Millisecond, send: r.sendEnter}
	r.frontChecks = &batcher[seenQ, reply]{wait: time.Millisecond, send: r.sendSeen}
	r.renewals = &batcher[seenQ, reply]{wait: 8 * time.Millisecond, send: r.sendSeen}
	r.prequeueChecks = &batcher[enterQ, reply]{wait: 8 * time.Millisecond, send: r.sendEnter}
	r.claims = &batcher[claimQ, reply]{wait: time.Millisecond, send: r.sendClaim}
	r.leaves = &batcher[leaveQ, bool]{wait: time.Millisecond, send: r.sendLeave}
}

// reply is a script's answer about one ticket.
type reply struct {
	code   string
	ord    int64
	wall   int64
	reason string
	h      header
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

// enterArgs are the groups of room_enter.
func enterArgs(qs []enterQ) []any {
	args := make([]any, 0, 11*len(qs))
	for i := range qs {
		args = qs[i].args(args)
	}
	return args
}

func (r *ticketCalls) sendEnter(ctx context.Context, qs []enterQ) ([]reply, error) {
	args := enterArgs(qs)
	// One at a time: whoever is told a place must know of all who were enrolled before.
	r.entering.Lock()
	defer r.entering.Unlock()
	answers, err := r.store.ask(ctx, "room_enter", args, len(qs))
	var orders []int64
	for i, a := range answers {
		switch kind := qs[i].kind; {
		case a.code != "W" && a.code != codeSigned:
		case kind == "arrive", (kind == "keyed" || kind == "account") && strings.HasPrefix(a.reason, "n"):
			orders = append(orders, a.ord)
		}
	}
	if len(orders) > 0 { // but for those that a newer snapshot holds by now
		r.view.change(func(b *sinceSnapshot) { b.recent = b.recent.with(orders).after(b.snap.Time) })
	}
	return answers, err
}

// askAgain asks for a place. A late answer is no outage, and the place may have been given: asking again finds it.
// Without, it would be taken with the first poll, behind those who came meanwhile.
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

// leaveQ is a ticket whose visitor leaves: see out.
type leaveQ struct {
	id       ID
	gathered string
}

func (r *ticketCalls) sendLeave(ctx context.Context, qs []leaveQ) ([]bool, error) {
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

// out takes tickets out of the line for good, and tells of each whether it was there. pairs are an id and, of a ticket that gathers,
// the fence and when it was confirmed; "": it does not gather, or that is not known.
func (r *ticketCalls) out(ctx context.Context, who, reason, label string, pairs []any) (found []bool, err error) {
	if r.store.away.Load() {
		return nil, ErrStore
	}
	_, rest, err := r.store.do(ctx, r.c.o.Timeout, "room_leave", append([]any{who, r.id, reason, label}, pairs...)...)
	if err != nil {
		if errors.Is(err, ErrStore) {
			r.store.failed(err)
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
func (r *ticketCalls) over(id ID, state State, reason string, bare bool) {
	r.memory.put(id, remembered{standing: Standing{State: state, Reason: reason, Ticket: Ticket{ID: id}}, at: r.c.mono(), bare: bare})
}

func (c Client) arg() string {
	if c == (Client{}) {
		return ""
	}
	return string(c[:])
}

package admission_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/internal/short"
)

// history records what several clients did in one room through several gateways, and the replies.
type history struct {
	rooms []*Room // the same one, of every gateway
	start time.Time

	mu      sync.Mutex
	left    []pair // yet to be used
	ids     []ID
	tickets []Ticket // newest
	has     []bool
	orders  []int64 // the smallest that the store answered
	shown   [][]shownOrder
	ops     []porcupine.Operation
	gaps    int // answers that are not known
	moved   bool

	sessions int // that replies reported
}

// shownOrder is an order that the store answered, and the time at which that answer was there.
type shownOrder struct{ at, order int64 }

// pair is a ticket and a gateway. A gateway repeats a reply about a ticket for a second, which a history cannot distinguish
// from a wrong reply, so each gateway is asked about each ticket once.
type pair struct{ ticket, gateway int }

// The size of one history: enough to meet, few enough to be checked.
const (
	linearTickets  = 6
	linearGateways = 10
	linearClients  = 5
	linearMost     = 2 // max_active
	// linearTimeout is long enough for most calls on a busy machine: each call without a reply doubles the search.
	linearTimeout = 500 * time.Millisecond
	// linearLead is the time after which the faults of the gateways come at different times.
	linearLead = 250 * time.Millisecond
)

func newHistory(rooms []*Room) *history {
	h := &history{
		rooms: rooms, start: time.Now(), ids: make([]ID, linearTickets), tickets: make([]Ticket, linearTickets),
		has: make([]bool, linearTickets), orders: make([]int64, linearTickets), shown: make([][]shownOrder, linearTickets),
	}
	for i := range h.ids {
		_, _ = rand.Read(h.ids[i][:])
		for g := range rooms {
			h.left = append(h.left, pair{i, g})
		}
	}
	mrand.Shuffle(len(h.left), func(i, j int) { h.left[i], h.left[j] = h.left[j], h.left[i] })
	return h
}

// play lets every client do random things, one after the other.
func (h *history) play(ctx context.Context) {
	var all sync.WaitGroup
	for c := range linearClients {
		all.Go(func() {
			for {
				h.mu.Lock()
				if len(h.left) == 0 {
					h.mu.Unlock()
					return
				}
				next := h.left[0]
				h.left = h.left[1:]
				h.mu.Unlock()
				h.once(ctx, c, next)
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Duration(1+mrand.IntN(8)) * time.Millisecond):
				}
			}
		})
	}
	all.Wait()
}

// once is one call by client c.
func (h *history) once(ctx context.Context, c int, p pair) {
	t, r := p.ticket, h.rooms[p.gateway]
	client := byte('a' + c)
	who := Client{1, client}
	h.mu.Lock()
	has, ticket := h.has[t], h.tickets[t]
	h.mu.Unlock()
	ticket.Client, ticket.Interval = who, 2*time.Second
	q := asked{ticket: t, client: client}
	var s Standing
	var err error
	call := int64(time.Since(h.start))
	switch n := mrand.IntN(20); {
	case !has || n < 3:
		q.what = "enter"
		var refusal Refusal
		s, refusal, err = r.Join(ctx, Arrival{ID: h.ids[t], Client: who, Keyed: true, Interval: 2 * time.Second})
		if refusal != Granted {
			err = errors.New(string(refusal))
		}
		s.Ticket.ID = h.ids[t]
	case n < 6:
		q.what = "check"
		s, err = r.Check(ctx, ticket)
	case n < 14:
		q.what = "claim"
		s, err = r.Claim(ctx, ticket)
	case n < 17:
		q.what = "lookup"
		var f Found
		f, err = r.Lookup(ctx, h.ids[t])
		s = Standing{State: f.State, Ticket: Ticket{Order: f.Order}}
		if f.Parked {
			err = errors.New("parked")
		}
	case n < 19 && ticket.Epoch != "": // of one that the store does not hold it keeps nothing
		q.what = "leave"
		if err = r.Leave(ctx, ticket); errors.Is(err, ErrUnknown) {
			err = nil
		}
	default:
		q.what = "revoke"
		err = r.RevokeSession(ctx, "ann", h.ids[t])
	}
	h.note(q, call, s, err)
}

// note records a reply. Replies that may not come from the store are left out: lookups and checks without it, and checks that
// return waiting or admitted, which may come from the snapshot.
func (h *history) note(q asked, call int64, s Standing, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	op := porcupine.Operation{Input: q, Call: call, Return: int64(time.Since(h.start)), Output: told(unknown)}
	switch {
	case err != nil && !errors.Is(err, ErrNotYet) && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrStore):
		op.Output = told('!') // no reply of the model
	case errors.Is(err, ErrStore) || s.Offline:
		op.Return = never
		h.gaps++
	case q.what == "leave" || q.what == "revoke":
		op.Output = told(done)
	case errors.Is(err, ErrUnknown):
		op.Output = told(nowhere)
	case s.State == Waiting:
		op.Output = told(waits)
	case s.State == Admitted:
		op.Output = told(admitted)
	case s.State == Active:
		op.Output = told(active)
	default:
		op.Output = told(over)
	}
	if q.what == "enter" && op.Output == told(waits) && !s.New {
		op.Output = told(unknown) // it was in the queue once; memory does not show whether it still is
	}
	if op.Output == told(active) {
		h.sessions++
	}
	t := q.ticket
	if s.State == Waiting && q.what != "lookup" {
		if !h.has[t] || !s.Offline && s.Ticket.Epoch != "" {
			h.tickets[t], h.has[t] = s.Ticket, true
		}
	}
	if s.State == Waiting && !s.Offline && s.Ticket.Order > 0 && (q.what == "lookup" || s.Ticket.Epoch != "" && q.what != "claim") {
		// A gateway that got no reply may sign the same place once more: the smallest order counts, so an order never grows.
		for _, before := range h.shown[t] {
			if before.at < call && before.order < s.Ticket.Order {
				h.moved = true
			}
		}
		h.shown[t] = append(h.shown[t], shownOrder{int64(time.Since(h.start)), s.Ticket.Order})
		if h.orders[t] == 0 || s.Ticket.Order < h.orders[t] {
			h.orders[t] = s.Ticket.Order
		}
	}
	if op.Output == told(unknown) && (q.what == "lookup" || q.what == "check" && h.tickets[t].Epoch != "") ||
		q.what == "check" && (op.Output == told(waits) || op.Output == told(admitted)) {
		return
	}
	h.ops = append(h.ops, op)
}

// linearFaults are what happens on the way to the store while histories are made.
var linearFaults = []struct {
	name string
	run  func(ctx context.Context, p *redistest.FaultProxy)
}{
	{"none", func(context.Context, *redistest.FaultProxy) {}},
	{"replies lost", func(ctx context.Context, p *redistest.FaultProxy) {
		scripts := []string{"room_claim", "room_enter", "room_leave", "room_revoke", "room_seen", "room_advance"}
		alternate(ctx, func() { p.Drop(calls(scripts[mrand.IntN(len(scripts))])) }, p.Heal)
	}},
	{"connections reset", func(ctx context.Context, p *redistest.FaultProxy) { alternate(ctx, p.Reset, func() {}) }},
	{"held back and let go when nobody waits for them any more", func(ctx context.Context, p *redistest.FaultProxy) {
		alternate(ctx, p.Hold, p.Heal)
	}},
}

// alternate does one and the other by turns, ending with the other.
func alternate(ctx context.Context, one, other func()) {
	for {
		for _, f := range []func(){one, other} {
			select {
			case <-ctx.Done():
				other()
				return
			case <-time.After(time.Duration(50+mrand.IntN(200)) * time.Millisecond):
				f()
			}
		}
	}
}

// Clients enter, check, claim, leave and revoke concurrently through ten gateways, whose connections to the store break. The
// test searches for an order of all these calls in which a room without concurrency would have replied the same.
func TestRoom_IsLinearizable(t *testing.T) {
	short.Skip(t, "needs many rounds")
	for _, f := range linearFaults {
		t.Run(f.name, func(t *testing.T) { // one at a time: each keeps a machine busy, and a busy store does not reply in time
			cores, proxies := linearCores(t)
			var sum struct{ rounds, histories, calls, gaps, in, decided int }
			// A fault that hits no call tests nothing.
			for ; sum.rounds == 0 || f.name != "none" && sum.gaps < 10 && sum.rounds < 30; sum.rounds++ {
				for _, h := range linearRound(t, cores, sum.rounds, func(ctx context.Context, gateway int) { f.run(ctx, proxies[gateway]) }) {
					sum.histories, sum.calls, sum.gaps, sum.in = sum.histories+1, sum.calls+len(h.ops), sum.gaps+h.gaps, sum.in+h.sessions
					if h.judge(t) {
						sum.decided++
					}
				}
			}
			t.Logf("%+v", sum)
			if sum.decided < sum.histories/3 && !t.Failed() {
				t.Errorf("only %d of %d histories could be decided", sum.decided, sum.histories)
			}
			if sum.in == 0 || f.name != "none" && sum.gaps == 0 {
				t.Errorf("nothing was tried: %d sessions, %d calls without an answer", sum.in, sum.gaps)
			}
		})
	}
}

// linearCores starts the gateways, each with a proxy on its way to the store.
func linearCores(t *testing.T) ([]*Core, []*redistest.FaultProxy) {
	server := redistest.Server(t)
	ctx, stop := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	t.Cleanup(func() { stop(); runs.Wait() })
	cores, proxies := make([]*Core, linearGateways), make([]*redistest.FaultProxy, linearGateways)
	for i := range cores {
		proxies[i] = redistest.Proxy(t, server.Socket())
		client, err := redisurl.Open("redis://"+proxies[i].Addr(), linearTimeout)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		cores[i], err = New(Options{Client: client, Timeout: linearTimeout, Tick: 3 * faultTick, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		runs.Go(func() { _ = cores[i].Run(ctx) })
	}
	return cores, proxies
}

// linearRound makes some histories, in rooms of their own, while a fault breaks each gateway's way to the store.
func linearRound(t *testing.T, cores []*Core, round int, fault func(ctx context.Context, gateway int)) []*history {
	p := faultPolicy
	p.Rate, p.Burst, p.MaxActive = 1_000_000, 1000, linearMost
	var all sync.WaitGroup
	list := make([]*history, 6)
	for i := range list {
		id := fmt.Sprintf("sale-%d-%d", round, i)
		rooms := make([]*Room, len(cores))
		for k, core := range cores {
			rooms[k] = core.Room(id, p)
			defer core.Remove(id)
		}
		awaitWithin(t, patience, "the room is known", func() bool {
			for _, r := range rooms {
				if !r.Snapshot().Known {
					return false
				}
			}
			return true
		})
		list[i] = newHistory(rooms)
	}
	ctx, stop := context.WithCancel(t.Context())
	var faults sync.WaitGroup
	for gateway := range cores {
		faults.Go(func() { fault(ctx, gateway) })
	}
	time.Sleep(linearLead)
	for _, h := range list {
		all.Go(func() { h.play(t.Context()) })
	}
	all.Wait()
	stop()
	faults.Wait()
	return list
}

// judge reports whether an order explains the history. A search that takes too long leaves the question open.
func (h *history) judge(t *testing.T) (decided bool) {
	if h.moved {
		t.Errorf("an order that the store answered has grown:\n%s", h.text(porcupine.LinearizationInfo{}))
	}
	m := sequential{most: linearMost, orders: h.orders}
	result, info := porcupine.CheckOperationsVerbose(m.model(), h.ops, 10*time.Second)
	if result == porcupine.Illegal {
		t.Errorf("not linearizable:\n%s", h.text(info))
	}
	return result != porcupine.Unknown
}

// text is the history as it was called, with the orders, and how far it can be explained.
func (h *history) text(info porcupine.LinearizationInfo) string {
	out := fmt.Sprintf("orders %d\n", h.orders)
	m := sequential{most: linearMost, orders: h.orders}.model()
	for i, op := range h.ops {
		out += fmt.Sprintf("%3d %9d–%9d µs  %s\n", i, op.Call/1000, min(op.Return, 1e15)/1000, m.DescribeOperation(op.Input, op.Output))
	}
	longest := 0
	for _, part := range info.PartialLinearizations() {
		for _, p := range part {
			longest = max(longest, len(p))
		}
	}
	return out + fmt.Sprintf("at most %d of %d calls fit", longest, len(h.ops))
}

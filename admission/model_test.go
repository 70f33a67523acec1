package admission_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

const tick = 250 * time.Millisecond

// visitor keeps the newest token.
type visitor struct {
	t     Ticket
	state State
}

// crowd drives several gateways over one store, and the model beside them.
type crowd struct {
	t        *rapid.T
	client   redis.UniversalClient
	prefix   string
	policy   Policy
	now      int64
	gateways []*gateway
	model    *Model
	visitors []*visitor
	serial   byte
	live     bool // an operator has changed the rate
}

type gateway struct {
	core   *Core
	room   *Room
	calls  int // store calls
	enters int // of them room_enter
}

func (c *crowd) newGateway() *gateway {
	g := &gateway{}
	core, err := New(Options{
		Client: c.client, Prefix: c.prefix, Timeout: patience, Tick: tick, Log: slog.New(slog.DiscardHandler),
		Now: func() int64 { return c.now },
		Observe: func(script string, _ time.Duration, _ error) {
			g.calls++
			if script == "room_enter" {
				g.enters++
			}
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	g.core, g.room = core, core.Room("sale", c.policy)
	return g
}

func (c *crowd) tick(g *gateway) {
	if err := g.room.Tick(context.Background()); err != nil {
		c.t.Fatal(err)
	}
	c.model.Tick(int64(tick/time.Microsecond) * 7 / 10)
	if g.room.Snapshot().Gathering() {
		state := c.prefix + ":{room:sale}:state"
		if n, err := c.client.HGet(context.Background(), state, "prequeued").Int64(); err != nil || n != c.model.Prequeued {
			c.t.Fatalf("%d tickets in the pre-queue, model %d (%v)", n, c.model.Prequeued, err)
		}
	}
}

// configure gives every gateway the policy that a reload would; a rate that was changed live stays in force.
func (c *crowd) configure(p Policy) {
	if c.live {
		p.Rate = c.model.P.Rate
	}
	c.policy = p
	for _, g := range c.gateways {
		g.core.Room("sale", p)
	}
	paused := c.model.P.Paused
	c.model.P = p
	c.model.P.Paused = paused
}

func (c *crowd) any() *gateway {
	return c.gateways[rapid.IntRange(0, len(c.gateways)-1).Draw(c.t, "gateway")]
}

func (c *crowd) one() *visitor {
	if len(c.visitors) == 0 {
		c.t.Skip("nobody is there")
	}
	return c.visitors[rapid.IntRange(0, len(c.visitors)-1).Draw(c.t, "visitor")]
}

func (c *crowd) arrive() {
	c.serial++
	id := ID{0: c.serial, 1: byte(len(c.visitors))}
	a := Arrival{ID: id, Client: Client{1, c.serial}, Interval: time.Duration(rapid.IntRange(2, 69).Draw(c.t, "interval")) * time.Second}
	s, refusal, err := c.any().room.Join(context.Background(), a)
	if err != nil || refusal != Granted {
		c.t.Fatalf("join: %v %q", err, refusal)
	}
	if want := c.model.Arrive(a); s.State != want {
		c.t.Fatalf("arrival: %d, model %d", s.State, want)
	}
	s.Ticket.Interval, s.Ticket.Client = a.Interval, a.Client
	c.visitors = append(c.visitors, &visitor{t: s.Ticket, state: s.State})
}

// account is a device of one of a few accounts, which may bring a ticket from before it was known.
func (c *crowd) account() {
	if c.policy.Method == Lottery {
		c.t.Skip("before an opening gateways know an account's place from memory alone")
	}
	who := byte(rapid.IntRange(1, 3).Draw(c.t, "account"))
	a := Arrival{
		ID: ID{0: 250, 1: who, 15: 240}, Client: Client{2, who}, Keyed: true, Account: true, Interval: 5 * time.Second,
		Held: rapid.IntRange(0, 4).Draw(c.t, "held") == 0,
	}
	// Its gateway's active key may be another by now, but it knows both.
	a.Former = []ID{{0: 250, 1: who, 2: 1, 15: 240}}
	if rapid.Bool().Draw(c.t, "the other key") {
		a.ID, a.Former[0] = a.Former[0], a.ID
	}
	bases := []ID{a.ID, a.Former[0]}
	if !a.Held && len(c.visitors) > 0 && rapid.IntRange(0, 2).Draw(c.t, "brings a ticket") == 0 {
		if v := c.one(); !v.t.ID.Of(a.ID) && v.t.ID[0] != 250 {
			a.From = v.t.ID
		}
	}
	if n := rapid.IntRange(0, 3).Draw(c.t, "brings a proof"); n > 0 { // one that may have been brought before
		a.Proof = ID{0: 251, 1: byte(n)}
	}
	s, refusal, err := c.any().room.Join(context.Background(), a)
	if err != nil || refusal != Granted {
		c.t.Fatalf("account: %v %q", err, refusal)
	}
	want, id, fresh := c.model.Account(a)
	if s.State != want || s.New != fresh || want != Ended && s.Ticket.ID != id {
		c.t.Fatalf("account %d: %d %v, new %t; model %d %v, new %t", who, s.State, s.Ticket.ID, s.New, want, id, fresh)
	}
	places := 0
	for n := range 64 {
		id := bases[n/32]
		id[15] += byte(n % 32)
		g := c.model.Grants[id]
		if c.model.Queue[id] != nil || c.model.Sessions[id] > c.model.Room() || g != nil && g.What == "admitted" {
			places++
		}
	}
	if places > 1 {
		c.t.Fatalf("account %d has %d places", who, places)
	}
	if s.State == Ended {
		return
	}
	s.Ticket.Interval, s.Ticket.Client = a.Interval, a.Client
	c.visitors = slices.DeleteFunc(c.visitors, func(v *visitor) bool { return slices.ContainsFunc(bases, v.t.ID.Of) })
	c.visitors = append(c.visitors, &visitor{t: s.Ticket, state: s.State})
}

// comeBack returns a visitor whose pass has ended. The place has the order of the pass, if the pass keeps it. A session makes one
// such place.
func (c *crowd) comeBack() {
	v, g := c.one(), c.any()
	id := ID{0: 252, 1: v.t.ID[0], 2: v.t.ID[1], 3: v.t.ID[2] + v.t.ID[3] + 1}
	if grant := c.model.Grants[v.t.ID]; v.t.ID[0] == 250 || v.t.Order == 0 || grant == nil || grant.What == ReasonReturned || grant.What == "admitted" || c.model.Queue[id] != nil {
		c.t.Skip("it is no session, or is an account's, or has its place")
	}
	a := Arrival{
		ID: id, Client: Client{3, v.t.ID[0]}, Keyed: true, Interval: 5 * time.Second, Held: rapid.IntRange(0, 4).Draw(c.t, "held") == 0,
		Return: &Return{Session: v.t.ID, Order: v.t.Order, Fence: v.t.Fence, Ended: c.now/1e6 - int64(rapid.IntRange(-5, 250).Draw(c.t, "ended ago"))},
	}
	before := g.calls
	s, refusal, err := g.room.Join(context.Background(), a)
	if refusal != Granted || err != nil && !errors.Is(err, ErrUnknown) {
		c.t.Fatalf("came back: %v %q", err, refusal)
	}
	if g.calls == before {
		if err == nil {
			c.t.Fatalf("came back without the store: %+v", s)
		}
		return
	}
	want, kept := c.model.Return(a)
	if kept != (err == nil) || kept && s.State != want {
		c.t.Fatalf("came back with %+v: %d %v, model %d, kept %t", a.Return, s.State, err, want, kept)
	}
	if !kept {
		return
	}
	if s.State == Waiting && s.Ticket.Order > v.t.Order {
		c.t.Fatalf("an order grew from %d to %d", v.t.Order, s.Ticket.Order)
	}
	s.Ticket.Interval, s.Ticket.Client = a.Interval, a.Client
	v.t, v.state = s.Ticket, s.State
}

func (c *crowd) poll() {
	v, g := c.one(), c.any()
	v.t.Interval = time.Duration(rapid.IntRange(2, 69).Draw(c.t, "interval")) * time.Second
	v.t.Wait = time.Duration(rapid.IntRange(0, 900).Draw(c.t, "wait")) * time.Second
	before, entered := g.calls, g.enters
	s, err := g.room.Check(context.Background(), v.t)
	if err != nil {
		c.t.Fatal(err)
	}
	if g.enters > entered {
		c.model.Refill()
	}
	if g.calls == before {
		// From memory, at most a second old: other gateways may know better, but
		// a session or the end of a ticket is not made up. (Before a tick shows a
		// reset, an admitted ticket is still reported as admitted; the claim decides.)
		if _, settled := c.model.Grants[v.t.ID]; s.State != Waiting && s.State != Admitted && !settled && s.Reason != ReasonReset && c.model.Fence == v.t.Fence {
			c.t.Fatalf("memory says %d %q of %v, which was never admitted", s.State, s.Reason, v.t.ID)
		}
	} else if s.State == Expired && s.Reason == ReasonReset && v.t.Fence < c.model.Fence {
		// A gateway that knows a reset does not ask how an earlier ticket ended; one that does not know it may.
	} else if want, reason := c.model.Seen(v.t); s.State != want || reason != "" && s.Reason != reason {
		c.t.Fatalf("poll: %d %q, model %d %q", s.State, s.Reason, want, reason)
	}
	v.state = s.State
	if s.State == Waiting {
		if s.Ticket.Order > v.t.Order && v.t.Order != 0 {
			c.t.Fatalf("an order grew from %d to %d", v.t.Order, s.Ticket.Order)
		}
		client, interval, wait := v.t.Client, v.t.Interval, v.t.Wait
		v.t = s.Ticket
		v.t.Client, v.t.Interval, v.t.Wait = client, interval, wait
	}
}

func (c *crowd) claim() {
	v := c.one()
	t := v.t
	if t.Order == 0 {
		c.t.Skip("a lottery has not drawn it")
	}
	if rapid.Bool().Draw(c.t, "thief") {
		t.Client = Client{9, 9}
	}
	g := c.any()
	before, entered := g.calls, g.enters
	s, err := g.room.Claim(context.Background(), t)
	if err != nil && !errors.Is(err, ErrNotYet) {
		c.t.Fatal(err)
	}
	if g.calls == before { // repeated within a second: nothing was claimed, and no claim of another client is reported
		grant := c.model.Grants[t.ID]
		if s.State == Active && grant != nil && (grant.What != ReasonClaimed || grant.Client != t.Client) {
			c.t.Fatalf("memory gives a session to a claim of %v, model %+v", t.ID, grant)
		}
		return
	}
	if g.enters > entered {
		c.model.Refill()
	}
	want, known := c.model.Claim(t.ID, t.Client)
	if !known {
		want, _ = c.model.Seen(t)
		if s.State != want {
			c.resync(t)
		}
		return
	}
	if s.State != want {
		c.t.Fatalf("claim: %d %q, model %d", s.State, s.Reason, want)
	}
}

// resync forgives an answer from memory to a claim of an unknown ticket: the
// model must then not hold it either.
func (c *crowd) resync(t Ticket) {
	f, err := c.gateways[0].room.Lookup(context.Background(), t.ID)
	if errors.Is(err, ErrUnknown) {
		delete(c.model.Queue, t.ID)
		return
	}
	c.t.Fatalf("claim of an unknown ticket: the store holds %+v (%v)", f, err)
}

// compare looks up every ticket.
func (c *crowd) compare() {
	room := c.gateways[0].room
	rank := map[ID]int64{}
	for i, id := range c.model.InOrder() {
		rank[id] = int64(i)
	}
	for _, v := range c.visitors {
		id := v.t.ID
		f, err := room.Lookup(context.Background(), id)
		if err != nil && !errors.Is(err, ErrUnknown) {
			c.t.Fatal(err)
		}
		have := "unknown"
		if err == nil {
			switch f.State {
			case Waiting:
				have = fmt.Sprintf("waiting at %d, parked %t", f.Order, f.Parked)
				if !f.Parked {
					have += fmt.Sprintf(", %d ahead", f.Ahead)
				}
			case Admitted:
				have = fmt.Sprintf("admitted at %d", f.AdmittedAt)
			case Active:
				have = "active"
			default:
				have = "ended"
			}
		}
		if want := c.want(id, rank); have != want {
			c.t.Fatalf("ticket %v: the store says %q, the model %q", id, have, want)
		}
	}
}

func (c *crowd) want(id ID, rank map[ID]int64) string {
	if p := c.model.Queue[id]; p != nil {
		s := fmt.Sprintf("waiting at %d, parked %t", p.Order, p.Parked)
		if !p.Parked {
			s += fmt.Sprintf(", %d ahead", rank[id])
		}
		return s
	}
	g := c.model.Grants[id]
	switch {
	case g == nil && c.model.Sessions[id] > c.model.Room():
		return "active"
	case g == nil:
		return "unknown"
	case g.What == "admitted":
		return fmt.Sprintf("admitted at %d", g.Wall)
	case g.What == ReasonClaimed && c.model.Sessions[id] > c.model.Room():
		return "active"
	}
	return "ended"
}

func (c *crowd) invariants() {
	if n := int64(len(c.model.Sessions)); c.policy.MaxActive > 0 && n > c.policy.MaxActive {
		c.t.Fatalf("%d sessions, max_active %d", n, c.policy.MaxActive)
	}
}

func checkRoom(t *rapid.T, client redis.UniversalClient, prefix string) {
	rate := int64(rapid.IntRange(200, 20000).Draw(t, "rate"))
	strategies := []Strategy{StrategyTokenBucket, StrategyLeakyBucket, StrategyFixedWindow, StrategyAdaptive}
	strategy := rapid.SampledFrom(strategies).Draw(t, "strategy")
	c := &crowd{
		t: t, client: client, prefix: prefix, now: 1_780_000_000_000_000,
		policy: Policy{
			Enabled: true, Method: FIFO, Strategy: strategy, Rate: rate, MinRate: 200, MaxRate: 30000, Burst: int64(rapid.SampledFrom([]int{0, 1000, 3500, 8000}).Draw(t, "burst")),
			MaxActive:  int64(rapid.SampledFrom([]int{0, 0, 3, 8}).Draw(t, "max_active")),
			HeadWindow: int64(rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "head_window")),
			MinWait:    rapid.SampledFrom([]time.Duration{0, 0, 0, 2 * time.Second}).Draw(t, "min_wait"),
			Absence:    3 * time.Minute, ClaimWindow: time.Minute, SessionTTL: 2 * time.Minute, OnStoreError: OnErrorWait,
		},
	}
	if seconds := rapid.SampledFrom([]int64{0, 0, 5, 60, 300}).Draw(t, "a lottery opens after"); seconds > 0 {
		p := &c.policy
		p.Method, p.PollBudget = Lottery, int64(rapid.SampledFrom([]int{1, 20000}).Draw(t, "poll_budget"))
		p.OpensAt = c.now + seconds*1e6
		p.Plan = NewPlan([]byte("a secret of the model's"), "sale", p, nil)
	}
	c.model = newModel(c.policy, c.now)
	for range 3 {
		g := c.newGateway()
		c.gateways = append(c.gateways, g)
		c.tick(g)
	}
	patched := false
	actions := map[string]func(*rapid.T){
		"arrive": func(*rapid.T) { c.arrive() },
		"crowd": func(*rapid.T) {
			for range 5 {
				c.now += 100
				c.model.Wall = c.now
				c.arrive()
			}
		},
		"account":   func(*rapid.T) { c.account() },
		"come back": func(*rapid.T) { c.comeBack() },
		"poll":      func(*rapid.T) { c.poll() },
		"claim":     func(*rapid.T) { c.claim() },
		"leave": func(*rapid.T) {
			v := c.one()
			// Of a ticket that it does not hold the store keeps nothing: it has left at one gateway alone.
			if _, err := c.gateways[0].room.Lookup(context.Background(), v.t.ID); err != nil && (v.t.Order != 0 || !v.t.Counted()) {
				return
			}
			g := c.any()
			before := g.calls
			if err := g.room.Leave(context.Background(), v.t); err != nil {
				c.t.Fatal(err)
			}
			if g.calls > before { // else the gateway knows that it is over
				c.model.Leave(v.t.ID)
			}
		},
		"tick": func(*rapid.T) { c.tick(c.any()); c.compare() },
		"soon": func(t *rapid.T) {
			c.now += int64(rapid.IntRange(1, 400_000).Draw(t, "µs"))
			c.model.Wall = c.now
		},
		"later": func(t *rapid.T) {
			// Time that passes with a tick each second, as in production. Whose it is comes of one number, or what a
			// failure prints would be hundreds of lines; 0 is always the first gateway.
			seconds, whose := rapid.IntRange(1, 200).Draw(t, "s"), rapid.Uint64().Draw(t, "whose ticks")
			dice := rand.New(rand.NewPCG(whose, 0))
			for range seconds {
				g := 0
				if whose > 0 {
					g = dice.IntN(len(c.gateways))
				}
				c.now += 1_000_000
				c.model.Wall = c.now
				c.tick(c.gateways[g])
			}
			c.compare()
		},
		"outage": func(t *rapid.T) {
			c.now += int64(rapid.IntRange(4_000_000, 900_000_000).Draw(t, "µs"))
			c.model.Wall = c.now
		},
		"clock goes back": func(t *rapid.T) {
			c.now -= int64(rapid.IntRange(1, 3_000_000).Draw(t, "µs"))
			c.model.Wall = c.now
		},
		"a gateway dies": func(t *rapid.T) {
			g := c.newGateway()
			c.model.Save() // it introduces itself
			c.gateways[rapid.IntRange(0, 2).Draw(t, "which")] = g
			c.tick(g)
		},
		"pause or resume": func(t *rapid.T) {
			g := c.any()
			pause := rapid.Bool().Draw(t, "pause")
			err := error(nil)
			if pause {
				err = g.room.Pause(context.Background(), "ann")
			} else {
				err = g.room.Resume(context.Background(), "ann")
			}
			if err != nil {
				c.t.Fatal(err)
			}
			c.model.Patch(func(p *Policy) { p.Paused = pause })
			c.model.Tick(175_000)
		},
		"change the rate": func(t *rapid.T) {
			patched = true
			rate := int64(rapid.IntRange(0, 30000).Draw(t, "rate"))
			if err := c.any().room.Patch(context.Background(), "ann", Live{Rate: &rate}); err != nil {
				c.t.Fatal(err)
			}
			c.live = true
			c.model.Patch(func(p *Policy) { p.Rate = rate })
			c.model.Tick(175_000)
		},
		"another configuration": func(t *rapid.T) {
			patched = true
			p := c.policy
			p.Strategy = rapid.SampledFrom(strategies).Draw(t, "strategy")
			p.Rate = int64(rapid.IntRange(200, 30000).Draw(t, "rate"))
			p.SessionTTL = rapid.SampledFrom([]time.Duration{2 * time.Minute, 20 * time.Second, 10 * time.Minute}).Draw(t, "ttl")
			if c.policy.Method != Lottery {
				p.Absence = rapid.SampledFrom([]time.Duration{3 * time.Minute, time.Minute, 10 * time.Minute}).Draw(t, "absence")
			}
			c.configure(p)
		},
		"closed for seconds": func(t *rapid.T) {
			if c.policy.Method == Lottery {
				t.Skip("a draw that is called off for a time is another test's")
			}
			for _, method := range []string{Reject, FIFO} {
				p := c.policy
				p.Method = method
				c.configure(p)
				for _, g := range c.gateways { // each sees it with a snapshot that is new
					c.now += 1_000_000
					c.model.Wall = c.now
					c.tick(g)
				}
			}
		},
		"reset": func(t *rapid.T) {
			if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
				t.Skip()
			}
			if err := c.any().room.Reset(context.Background(), "ann"); err != nil {
				c.t.Fatal(err)
			}
			c.model.Reset()
			c.model.Tick(175_000)
		},
		"evacuate": func(t *rapid.T) {
			if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
				t.Skip()
			}
			g := c.any()
			if err := g.room.Evacuate(context.Background(), "ann", "the model's"); err != nil {
				c.t.Fatal(err)
			}
			c.model.Evacuate()
			c.model.Tick(175_000)
			if s := g.room.Snapshot(); s.Active+s.Admitted != 0 || s.Evacuation.Fence != c.model.time-1 && !c.model.moved {
				c.t.Fatalf("%d sessions, %d admissions after an evacuation at %d, order time %d", s.Active, s.Admitted, s.Evacuation.Fence, c.model.time)
			}
		},
		"": func(*rapid.T) { c.invariants() },
	}
	t.Repeat(actions)
	c.compare()
	if !patched {
		burst := c.policy.Burst
		if burst == 0 {
			burst = max(1000, c.policy.Rate)
		}
		switch strategy {
		case StrategyLeakyBucket:
			burst = max(1000, c.policy.Rate/2)
		case StrategyFixedWindow:
			burst = 2 * max(1000, c.policy.Rate)
		}
		if err := OverRate(c.model.Admissions, c.policy.Rate, burst); err != nil {
			t.Fatal(err)
		}
	}
}

// Random operations run through three gateways on a real Redis and on the model, and every ticket is compared.
func TestRoom_FollowsModel(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		checkRoom(rt, client, fmt.Sprintf("%sx%d", prefix, n))
	})
}

// TestRoom_FollowsModelOnCluster repeats TestRoom_FollowsModel where every script must keep to one slot.
func TestRoom_FollowsModelOnCluster(t *testing.T) {
	short.Skip(t, "repeats the model on a cluster")
	t.Parallel()
	client, prefix := redistest.Cluster(t), redistest.Prefix(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		checkRoom(rt, client, fmt.Sprintf("%sx%d", prefix, n))
	})
}

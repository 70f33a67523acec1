package admission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
)

// survivors checks what holds when the store loses the room: all of it, or all writes since an older copy.
type survivors struct {
	crowd
	in   map[ID]int64 // admitted_at of those who are in
	copy map[string]string
}

func (c *survivors) keys(t *rapid.T) []string {
	ctx := context.Background()
	var keys []string
	it := c.client.Scan(ctx, 0, c.prefix+":{room:*", 1000).Iterator()
	for it.Next(ctx) {
		keys = append(keys, it.Val())
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}

func (c *survivors) lose(t *rapid.T) {
	if keys := c.keys(t); len(keys) > 0 {
		if err := c.client.Del(context.Background(), keys...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *survivors) save(t *rapid.T) {
	c.copy = map[string]string{}
	for _, k := range c.keys(t) {
		v, err := c.client.Dump(context.Background(), k).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		c.copy[k] = v
	}
}

func (c *survivors) older(t *rapid.T) {
	if c.copy == nil {
		t.Skip("no copy yet")
	}
	// Every gateway knows the writes that are about to be lost. A gateway that does not
	// cannot detect their loss (a failover may repeat the admissions of its lag).
	for _, g := range c.gateways {
		if err := g.room.Tick(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	c.lose(t)
	for k, v := range c.copy {
		if err := c.client.Restore(context.Background(), k, 0, v).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// pollAndClaim checks a ticket as a client does, and claims it when it is admitted.
func (c *survivors) pollAndClaim(t *rapid.T, v *visitor, g *gateway) {
	if v.state == Active {
		return
	}
	s, err := g.room.Check(context.Background(), v.t)
	if err == nil && s.State == Admitted {
		s, err = g.room.Claim(context.Background(), v.t)
	}
	if err != nil && !errors.Is(err, ErrNotYet) {
		t.Fatal(err)
	}
	switch s.State {
	case Waiting:
		if s.Ticket.Order != v.t.Order {
			t.Fatalf("the order changed from %d to %d", v.t.Order, s.Ticket.Order)
		}
		v.t.Seen, v.t.Epoch, v.t.Fence = s.Ticket.Seen, s.Ticket.Epoch, s.Ticket.Fence
	case Active:
		c.in[v.t.ID] = s.AdmittedAt
		v.state = Active
	case Lapsed:
		v.state = Active // out of the game; its admission counted
		c.in[v.t.ID] = s.AdmittedAt
	default:
		t.Fatalf("a visitor who polled lost the place: %+v", s)
	}
}

func (c *survivors) everybodyPolls(t *rapid.T) {
	for i, v := range c.visitors {
		c.pollAndClaim(t, v, c.gateways[i%len(c.gateways)])
	}
}

func (c *survivors) second(t *rapid.T) {
	c.now += 1_000_000
	for _, g := range c.gateways {
		if err := g.room.Tick(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLossOfData_KeepsPlaces(t *testing.T) {
	t.Parallel()
	// Its own: looking for the keys of a room among those of all other tests takes long.
	client, prefix := redistest.Server(t).Client(), redistest.Prefix(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		c := &survivors{in: map[ID]int64{}}
		c.crowd = crowd{
			t: rt, client: client, prefix: fmt.Sprintf("%sx%d", prefix, n), now: 1_780_000_000_000_000,
			policy: Policy{
				Enabled: true, Method: FIFO, Rate: 1500, Burst: 3000, Absence: 10 * time.Minute,
				ClaimWindow: 5 * time.Minute, SessionTTL: 5 * time.Minute, OnStoreError: OnErrorWait,
			},
		}
		for range 2 {
			c.gateways = append(c.gateways, c.newGateway())
		}
		c.second(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"arrive": func(rt *rapid.T) {
				if len(c.visitors) > 200 {
					rt.Skip()
				}
				c.serial++
				c.now += 1000
				id := ID{0: c.serial, 1: byte(len(c.visitors))}
				s, refusal, err := c.any().room.Join(context.Background(), Arrival{ID: id, Client: Client{1, c.serial}})
				if err != nil || refusal != Granted {
					rt.Fatalf("join: %v %q", err, refusal)
				}
				v := &visitor{t: s.Ticket, state: s.State}
				v.t.Client = Client{1, c.serial}
				if s.State == Active {
					c.in[id] = s.AdmittedAt
				}
				c.visitors = append(c.visitors, v)
			},
			"a second": func(rt *rapid.T) { c.second(rt); c.everybodyPolls(rt) },
			"poll":     func(rt *rapid.T) { c.pollAndClaim(rt, c.one(), c.any()) },
			"lost":     func(rt *rapid.T) { c.lose(rt) },
			"copied":   func(rt *rapid.T) { c.save(rt) },
			"older":    func(rt *rapid.T) { c.older(rt) },
			"again":    func(rt *rapid.T) { c.claimTwice(rt) },
		})
		// Everybody gets in, in order, never over the limit.
		for i := 0; i < 400 && len(c.in) < len(c.visitors); i++ {
			c.second(rt)
			c.everybodyPolls(rt)
		}
		c.judge(rt)
	})
}

// claimTwice checks that no token of an admitted visitor makes a second session.
func (c *survivors) claimTwice(t *rapid.T) {
	v := c.one()
	if v.state != Active {
		t.Skip()
	}
	thief := v.t
	thief.Client = Client{7}
	s, err := c.any().room.Claim(context.Background(), thief)
	if err != nil && !errors.Is(err, ErrNotYet) {
		t.Fatal(err)
	}
	if s.State == Active {
		t.Fatalf("a second session of one ticket: %+v", s)
	}
}

func (c *survivors) judge(t *rapid.T) {
	if len(c.in) < len(c.visitors) {
		t.Fatalf("%d of %d got in", len(c.in), len(c.visitors))
	}
	list := make([]Admission, 0, len(c.visitors))
	for _, v := range c.visitors {
		list = append(list, Admission{ID: v.t.ID, Room: c.in[v.t.ID]})
	}
	slices.SortFunc(list, func(a, b Admission) int { return int(a.Room - b.Room) })
	if err := OverRate(list, c.policy.Rate, c.policy.Burst); err != nil {
		t.Fatal(err)
	}
	// Visitors joined one after the other.
	for i := 1; i < len(c.visitors); i++ {
		a, b := c.visitors[i-1], c.visitors[i]
		if c.in[b.t.ID] < c.in[a.t.ID] {
			t.Fatalf("visitor %d was admitted at %d, visitor %d before it at %d", i, c.in[b.t.ID], i-1, c.in[a.t.ID])
		}
	}
}

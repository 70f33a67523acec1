package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
)

// at is the hash of an address in a network.
func at(address, network int) string {
	return fmt.Sprintf("address %dnetwork %d", address, network)
}

func limited(joins int64, per time.Duration, wide int64, widePer time.Duration) Policy {
	return Policy{
		Enabled: true, Method: FIFO, Rate: 1000, Burst: 1000, MinWait: time.Hour, Joins: joins, JoinsPer: per, Wide: wide, WidePer: widePer,
		Absence: 5 * time.Minute, ClaimWindow: time.Minute, SessionTTL: 2 * time.Minute, OnStoreError: OnErrorWait,
	}
}

// Addresses join, and tokens that were signed earlier are enrolled late and in any order, on several gateways and in the model.
func TestJoins_FollowModel(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		c := &crowd{t: rt, client: client, prefix: fmt.Sprintf("%s%d", prefix, n), now: 1_700_000_000_000_000}
		seconds := func(name string) time.Duration {
			return time.Duration(rapid.IntRange(1, 100).Draw(rt, name)) * time.Second
		}
		c.policy = limited(int64(rapid.IntRange(1, 4).Draw(rt, "joins")), seconds("per"), int64(rapid.IntRange(1, 8).Draw(rt, "wide")), seconds("wide per"))
		c.model = newModel(c.policy, c.now)
		for range 2 {
			g := c.newGateway()
			c.gateways = append(c.gateways, g)
			c.tick(g)
		}
		var signed []Ticket
		serial := 0
		place := func() (ID, string) {
			serial++
			address := rapid.IntRange(0, 3).Draw(rt, "address")
			return ID{1: byte(serial >> 8), 2: byte(serial), 3: 1}, at(address, address/2)
		}
		same := func(id ID, got, want State) {
			if got != want {
				rt.Fatalf("%v: %d, model %d", id, got, want)
			}
			if f, err := c.gateways[0].room.Lookup(context.Background(), id); err == nil && want == Waiting && f.Order != c.model.Queue[id].Order {
				rt.Fatalf("%v has order %d, model %d", id, f.Order, c.model.Queue[id].Order)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"join": func(*rapid.T) {
				id, address := place()
				a := Arrival{ID: id, Keyed: true, Address: address}
				s, refusal, err := c.any().room.Join(context.Background(), a)
				if err != nil {
					rt.Fatal(err)
				}
				if refusal == TooMany {
					s.State = Refused
				}
				same(id, s.State, c.model.Arrive(a))
			},
			"a token is signed": func(*rapid.T) {
				id, address := place()
				signed = append(signed, Ticket{ID: id, Order: c.now, Fence: 1, Address: address})
			},
			"and comes": func(*rapid.T) {
				if len(signed) == 0 {
					rt.Skip()
				}
				i := rapid.IntRange(0, len(signed)-1).Draw(rt, "which")
				g := c.any()
				before, entered := g.calls, g.enters
				s, err := g.room.Check(context.Background(), signed[i])
				if err != nil {
					rt.Fatal(err)
				}
				if g.enters > entered {
					c.model.Refill()
				}
				if g.calls == before { // refused or confirmed a moment ago
					return
				}
				want, _ := c.model.Seen(signed[i])
				same(signed[i].ID, s.State, want)
			},
			"time passes": func(*rapid.T) {
				for range rapid.IntRange(1, 20).Draw(rt, "times 4 s") {
					c.now += 4_000_000
					c.model.Wall = c.now
					c.tick(c.any())
				}
			},
			"a moment passes": func(*rapid.T) {
				c.now += int64(rapid.IntRange(1, 900_000).Draw(rt, "µs"))
				c.model.Wall = c.now
			},
			"": func(*rapid.T) {
				held, err := client.ZCard(context.Background(), c.prefix+":{room:sale}:joins").Result()
				if err != nil {
					rt.Fatal(err)
				}
				if held != int64(c.model.Joined()) {
					rt.Fatalf("the store remembers %d windows, the model %d", held, c.model.Joined())
				}
			},
		})
	})
}

// One address joins on several gateways in every way that exists.
func TestJoins_AddressGetsOnlyItsShare(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	now := int64(1_700_000_000_000_000)
	gateway := func() *Room {
		core, err := New(Options{Client: client, Prefix: prefix, Timeout: patience, Now: func() int64 { return now }})
		if err != nil {
			t.Fatal(err)
		}
		r := core.Room("sale", limited(20, time.Minute, 50, time.Minute))
		if err := r.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	gateways := []*Room{gateway(), gateway(), gateway()}
	serial := 0
	try := func(n, address int) (in int, last Standing) {
		for i := range n {
			serial++
			a := Arrival{ID: ID{byte(serial >> 8), byte(serial), 1}, Keyed: i%2 == 0, Address: at(address, 1)}
			s, refusal, err := gateways[i%3].Join(t.Context(), a)
			switch {
			case err != nil:
				t.Fatal(err)
			case refusal == Granted:
				in++
			default:
				last = s
			}
		}
		return in, last
	}
	in, last := try(1000, 1)
	if in != 20 || last.Reason != ReasonAddress || last.Retry <= 0 || last.Retry > time.Minute+time.Second {
		t.Errorf("%d places, refused %q for %v; want 20, for the address, a minute at most", in, last.Reason, last.Retry)
	}
	if in, last = try(100, 2); in != 20 {
		t.Errorf("another address: %d places, want 20", in)
	}
	if in, last = try(100, 3); in != 10 || last.Reason != ReasonNetwork {
		t.Errorf("a third of one network: %d places, refused for its %q; want the network's other 10", in, last.Reason)
	}
	for range last.Retry/time.Second + 1 { // room time stands still where nothing ticks
		now += 1_000_000
		if err := gateways[0].Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if in, _ = try(100, 1); in != 20 {
		t.Errorf("a window later: %d places, want 20", in)
	}
}

// A ticket with an epoch was counted when the store confirmed it, and a ticket in the queue is no join.
func TestJoins_PlaceIsCountedOnce(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	core, err := New(Options{Client: client, Prefix: prefix, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	r := core.Room("sale", limited(1, time.Hour, 100, time.Hour))
	if err := r.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := Arrival{ID: ID{1}, Keyed: true, Address: at(1, 1)}
	s, refusal, err := r.Join(t.Context(), a)
	if err != nil || refusal != Granted {
		t.Fatal(err, refusal)
	}
	for range 3 {
		if again, refusal, err := r.Join(t.Context(), a); err != nil || refusal != Granted || again.Ticket.Order != s.Ticket.Order {
			t.Fatalf("joined again: %+v %q %v", again, refusal, err)
		}
	}
	if _, refusal, _ := r.Join(t.Context(), Arrival{ID: ID{2}, Keyed: true, Address: at(1, 1)}); refusal != TooMany {
		t.Errorf("a second place: %q, want %q", refusal, TooMany)
	}
	// The store is emptied: queued tickets come back, even if their address has used up its share.
	if err := client.Del(t.Context(), keysOf(t, client.Keys(t.Context(), prefix+":*").Val())...).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, refusal, _ := r.Join(t.Context(), Arrival{ID: ID{3}, Keyed: true, Address: at(1, 1)}); refusal != TooMany {
		t.Errorf("the gateway has forgotten the windows with the store: %q", refusal)
	}
	other, err := New(Options{Client: client, Prefix: prefix, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	if _, refusal, err := other.Room("sale", limited(1, time.Hour, 100, time.Hour)).Join(t.Context(), Arrival{ID: ID{3}, Keyed: true, Address: at(1, 1)}); err != nil || refusal != Granted {
		t.Fatalf("a lost store has forgotten the windows: %q %v", refusal, err)
	}
	s.Ticket.ID, s.Ticket.Address = a.ID, ""
	back, err := r.Check(t.Context(), s.Ticket)
	if err != nil || back.State != Waiting || back.Ticket.Order != s.Ticket.Order {
		t.Errorf("its place came back as %+v, %v", back, err)
	}
}

func keysOf(t *testing.T, all []string) (keys []string) {
	t.Helper()
	for _, key := range all {
		if strings.Contains(key, "{room:") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		t.Fatal("there are no keys")
	}
	return keys
}

// Without the store a gateway counts all visitors that it admits, also those with keys and accounts, which the store counts
// otherwise.
func TestJoins_LimitHoldsDuringOutage(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst, p.OnStoreError = 100_000, 100_000, OnErrorOpen
	p.Joins, p.JoinsPer, p.Wide, p.WidePer = 3, time.Minute, 5, time.Minute
	s := newStage(t)
	g := s.gateway(p)
	g.tick2()
	s.cutOff(g)
	s.pass(100 * time.Millisecond)
	in, refused := 0, 0
	for n := range byte(12) {
		a := Arrival{ID: ID{9, n}, Client: Client{1, n}, Keyed: true, Account: n%2 == 0, Address: "address-1network-1"}
		got, refusal, err := g.room.Join(g.ctx(), a)
		switch {
		case err != nil:
			t.Fatal(err)
		case refusal == TooMany && got.Reason == ReasonAddress && got.Retry > 0:
			refused++
		case got.State == Active:
			in++
		}
		if again, refusal, _ := g.room.Join(g.ctx(), a); got.State == Active && (again.State != Active || refusal != Granted) {
			t.Errorf("once more: %+v %q", again, refusal)
		}
	}
	if in != 3 || refused != 9 {
		t.Errorf("%d were admitted and %d refused, want 3 and 9", in, refused)
	}
}

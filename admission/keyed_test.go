package admission

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// usedMemory returns used_memory of a server, in bytes.
func usedMemory(t *testing.T, client redis.UniversalClient) int {
	t.Helper()
	info, err := client.Info(ctx5(t), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	digits, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Joins by key or account that never poll are batched, and behind the front the store keeps nothing of them. Joins that a join
// limit refuses do not reach the store.
func TestKeyedJoin_CostsAsMuchAsPlain(t *testing.T) {
	const joins, connections = 8000, 64
	for name, a := range map[string]Arrival{"key": {Keyed: true}, "account": {Keyed: true, Account: true}} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Server(t).Client()
			var calls atomic.Int64
			core, err := New(Options{Client: client, Timeout: patience, Log: quiet(),
				Observe: func(string, time.Duration, error) { calls.Add(1) }})
			if err != nil {
				t.Fatal(err)
			}
			p := basePolicy
			p.Rate, p.Burst = 0, 1000
			r := core.Room("sale", p)
			mustTick(t, r)
			flood := func(n int, address string, want Refusal) {
				t.Helper()
				var sent sync.WaitGroup
				for range connections {
					sent.Go(func() {
						for range n / connections {
							one := a
							one.ID, one.Address = testID(), address
							s, refusal, err := r.Join(context.Background(), one)
							if err != nil || refusal != want && refusal != Granted || want == Granted && (s.State != Waiting || !s.New) {
								t.Errorf("%+v %q %v, want %q", s, refusal, err, want)
								return
							}
						}
					})
				}
				sent.Wait()
			}
			flood(frontSizeTest+connections, "", Granted) // fills the front
			before, had := usedMemory(t, client), calls.Load()
			flood(joins, "", Granted)
			// How many joins a batch has depends on the machine's load: without batches each join is a call.
			if n := calls.Load() - had; n > joins/4 {
				t.Errorf("%d joins over %d connections made %d calls, want at most %d", joins, connections, n, joins/4)
			}
			if grew := usedMemory(t, client) - before; grew > 40*joins {
				t.Errorf("the store grew by %d bytes for each of %d joins behind the front, want at most 40", grew/joins, joins)
			}
			if n := client.ZCard(ctx5(t), r.keys[2]).Val(); n != frontSizeTest {
				t.Errorf("the queue holds %d, want the front of %d", n, frontSizeTest)
			}

			p.Joins, p.JoinsPer = 1, time.Hour
			r.setPolicy(p)
			mustTick(t, r)
			flood(connections, "address-1network-1", TooMany) // all of an address at the same time; those within the limit are granted
			had = calls.Load()
			flood(joins, "address-1network-1", TooMany)
			if n := calls.Load() - had; n > joins/40 {
				t.Errorf("%d joins that a limit refuses made %d calls, want at most %d", joins, n, joins/40)
			}
		})
	}
}

const frontSizeTest = 1000

// A key that joins twice behind the front is signed two orders for one id. Whichever polls first, the smaller order counts.
// There is one place, and an order that a join limit has postponed stays postponed.
func TestKeyedJoin_SmallestSignedOrderCounts(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 0, 1000
	rooms := []*Room{testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)}
	mustJoin(t, rooms[0], testID(), Client{}) // takes the burst
	for range frontSizeTest {
		mustJoin(t, rooms[0], testID(), Client{})
	}
	c.pass(time.Second)
	for _, r := range rooms {
		mustTick(t, r)
	}
	queue := func() int64 { return client.ZCard(ctx5(t), rooms[0].keys[2]).Val() }
	if queue() != frontSizeTest {
		t.Fatalf("the queue holds %d", queue())
	}
	a := Arrival{ID: testID(), Client: testClient(1), Keyed: true, Interval: 5 * time.Second}
	var tickets []Ticket
	for _, r := range rooms {
		s, refusal, err := r.Join(ctx5(t), a)
		if err != nil || refusal != Granted || s.Ticket.ID != a.ID || !s.New {
			t.Fatalf("%+v %q %v", s, refusal, err)
		}
		tickets = append(tickets, s.Ticket)
		c.pass(time.Second)
	}
	if queue() != frontSizeTest {
		t.Fatalf("a join behind the front was enrolled")
	}
	early, late := tickets[0], tickets[1]
	if early.Order >= late.Order {
		t.Fatalf("orders %d and %d", early.Order, late.Order)
	}
	if s := mustCheck(t, rooms[0], late); s.Ticket.Order != late.Order {
		t.Errorf("the later order alone: %+v", s)
	}
	for _, r := range rooms { // on the one that has just answered, too
		if s := mustCheck(t, r, early); s.State != Waiting || s.Ticket.Order != early.Order {
			t.Errorf("the smaller order: %+v, want order %d", s, early.Order)
		}
	}
	c.pass(2 * time.Second)
	for _, r := range rooms {
		if s := mustCheck(t, r, late); s.State != Waiting || s.Ticket.Order != early.Order {
			t.Errorf("the later order again: %+v, want order %d", s, early.Order)
		}
		if s, _, err := r.Join(ctx5(t), a); err != nil || s.New || s.Ticket.Order != early.Order {
			t.Errorf("joined again once it polled: %+v %v", s, err)
		}
	}
	if queue() != frontSizeTest+1 {
		t.Errorf("the queue holds %d, want one place more than the front", queue())
	}
}

// If the window of an address is full for longer than that of its network, the address is refused for that long, and the
// network is not.
func TestJoinLimiter_AppliesLongerWindow(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	p := basePolicy
	p.Rate, p.Burst, p.Joins, p.JoinsPer, p.Wide, p.WidePer = 0, 1000, 1, time.Hour, 1, time.Minute
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	join := func(address string) (Standing, Refusal) {
		t.Helper()
		s, refusal, err := r.Join(ctx5(t), Arrival{ID: testID(), Keyed: true, Address: address})
		if err != nil {
			t.Fatal(err)
		}
		return s, refusal
	}
	const first, second = "address-1network-1", "address-2network-1"
	if _, refusal := join(first); refusal != Granted {
		t.Fatal(refusal)
	}
	if s, refusal := join(first); refusal != TooMany || s.Reason != ReasonAddress || s.Retry < 59*time.Minute {
		t.Errorf("both are full: %q for its %q, %s", refusal, s.Reason, s.Retry)
	}
	for range 31 {
		c.pass(2 * time.Second)
		mustTick(t, r)
	}
	if s, refusal := join(second); refusal != Granted {
		t.Errorf("a neighbour, a minute later: %q for its %q, %s", refusal, s.Reason, s.Retry)
	}
}

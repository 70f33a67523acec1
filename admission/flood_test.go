package admission

import (
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Of arrivals that never poll, through gateways whose snapshots show no queue yet, the store keeps at most one front, until
// absence. They count as ahead of later visitors.
func TestFlood_StoreHoldsOneFront(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	p := basePolicy
	p.Rate, p.Burst = 0, 1000
	rooms := []*Room{testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)}
	mustJoin(t, rooms[0], testID(), Client{}) // takes the burst
	const flood = 4000
	var sent sync.WaitGroup
	for _, r := range rooms {
		for range flood / 200 {
			sent.Go(func() {
				for range 200 {
					s, refusal, err := r.Join(ctx5(t), Arrival{ID: testID()})
					if err != nil || refusal != Granted || s.State != Waiting || s.Ticket.Order == 0 {
						t.Errorf("join: %+v %q %v", s, refusal, err)
						return
					}
				}
			})
		}
	}
	sent.Wait()
	queue := func() int64 {
		t.Helper()
		n, err := client.ZCard(ctx5(t), rooms[0].keys[2]).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := queue(); n != 1000 {
		t.Fatalf("%d are in the store after %d arrivals that never polled; the front is 1000", n, 3*flood)
	}
	c.pass(250 * time.Millisecond)
	for _, r := range rooms {
		if err := r.Tick(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	c.pass(250 * time.Millisecond)
	if err := rooms[0].Tick(ctx5(t)); err != nil {
		t.Fatal(err)
	}
	c.pass(time.Second)
	if n := rooms[0].Ahead(c.us); n < 3*flood {
		t.Errorf("%d are ahead of the next visitor, of %d", n, 3*flood)
	}
	// Only tickets that poll take up memory.
	for range 40 * 60 {
		c.pass(250 * time.Millisecond)
		if err := rooms[0].Tick(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	c.pass(time.Second)
	for range 30 {
		c.pass(250 * time.Millisecond)
		if err := rooms[0].Tick(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	if n := queue(); n != 0 {
		t.Errorf("%d are left in the queue after absence", n)
	}
	if n, err := client.HLen(ctx5(t), rooms[0].keys[4]).Result(); err != nil || n != 0 {
		t.Errorf("%d bags of presence are left: %v", n, err)
	}
}

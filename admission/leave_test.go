package admission

import (
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// Of joins that are followed by a departure, the store remembers at most one front, and none behind the front, within maxmemory
// and beyond. The gateway remembers a bounded number.
func TestLeave_UnpolledTicketLeavesNothing(t *testing.T) {
	short.Skip(t, "makes many thousands of joins")
	client, c := redistest.Server(t).Client(), newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 0, 1000
	r := testRoom(t, client, "wr", c, p)
	mustJoin(t, r, testID(), Client{}) // takes the burst
	kept := func() (n int64) {
		for _, key := range r.keys {
			switch client.Type(ctx5(t), key).Val() {
			case "zset":
				n += client.ZCard(ctx5(t), key).Val()
			case "hash":
				n += client.HLen(ctx5(t), key).Val()
			}
		}
		return n
	}
	giveUp := func(n int) {
		t.Helper()
		for range n {
			s := mustJoin(t, r, testID(), Client{})
			if err := r.Leave(ctx5(t), s.Ticket); err != nil {
				t.Fatal(err)
			}
		}
	}
	giveUp(1)
	before := kept()
	giveUp(frontSizeTest + 300)
	if n := kept() - before; n > 2*frontSizeTest {
		t.Errorf("%d joins before the front that were given up keep %d entries, want two for each of a front's worth", frontSizeTest+300, n)
	}
	before = kept()
	giveUp(300)
	if n := kept() - before; n != 0 {
		t.Errorf("300 more keep %d entries", n)
	}
	for range frontSizeTest {
		mustJoin(t, r, testID(), Client{})
	}
	c.pass(time.Second)
	mustTick(t, r)
	giveUp(1)
	c.pass(time.Second)
	mustTick(t, r)
	before = kept()
	giveUp(300)
	if n := kept() - before; n != 0 {
		t.Errorf("300 joins behind the front that were given up keep %d entries", n)
	}
	if err := client.ConfigSet(ctx5(t), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	had := usedMemory(t, client)
	giveUp(2000)
	if grew := usedMemory(t, client) - had; grew > 64<<10 {
		t.Errorf("beyond maxmemory 2,000 joins that were given up grew the store by %d bytes", grew)
	}
	for range 64 * bareMost / 2 {
		for range 4 {
			r.memory.put(testID(), remembered{standing: Standing{State: Ended, Reason: ReasonLeft}, bare: true})
		}
	}
	n := 0
	r.memory.all(c.us*1000, func(ID, remembered) { n++ }, nil)
	if n > 64*bareMost {
		t.Errorf("the gateway remembers %d tickets that left and that the store did not hold, want at most %d", n, 64*bareMost)
	}
}

// A ticket that left stays left on every gateway. A ticket behind the front that never polled is not in the
// store: the gateway where it left remembers its end, and elsewhere a poll finds the place of its order.
func TestLeave_IsFinalForPlaceInQueue(t *testing.T) {
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 0, 1000
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	mustJoin(t, a, testID(), Client{}) // takes the burst
	silent, polled := mustJoin(t, a, testID(), testClient(1)).Ticket, mustJoin(t, a, testID(), testClient(2)).Ticket
	for range frontSizeTest {
		mustJoin(t, a, testID(), Client{})
	}
	behind := mustJoin(t, a, testID(), testClient(3)).Ticket
	if behind.Epoch != "" {
		t.Fatal("a join behind the front was enrolled")
	}
	c.pass(2 * time.Second)
	mustCheck(t, a, polled)
	for _, row := range []struct {
		name   string
		ticket Ticket
		want   State // at another gateway
	}{{"never polled", silent, Ended}, {"polled", polled, Ended}, {"behind the front", behind, Waiting}} {
		if err := a.Leave(ctx5(t), row.ticket); err != nil {
			t.Fatal(err)
		}
		if s := mustCheck(t, a, row.ticket); s.State != Ended || s.Reason != ReasonLeft {
			t.Errorf("%s, at the gateway that it left: %+v", row.name, s)
		}
		if s := mustCheck(t, b, row.ticket); s.State != row.want || row.want == Waiting && s.Ticket.Order != row.ticket.Order {
			t.Errorf("%s, at another gateway: %+v, want state %v", row.name, s, row.want)
		}
	}
}

// Those who leave together cost one call, and each is remembered by what the store held of it.
func TestLeave_BatchIsOneCall(t *testing.T) {
	c, p := newTestClock(), basePolicy
	p.Rate, p.Burst = 0, 1000
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	mustJoin(t, r, testID(), testClient(1)) // takes the burst
	waits := mustCheck(t, r, mustJoin(t, r, testID(), testClient(2)).Ticket)
	stranger := testID()
	found, err := r.calls.sendLeave(t.Context(), []leaveQ{{id: waits.Ticket.ID}, {id: stranger}, {id: waits.Ticket.ID}})
	if err != nil || !slices.Equal(found, []bool{true, false, false}) {
		t.Fatalf("%v %v", found, err)
	}
	if s := mustCheck(t, r, waits.Ticket); s.State != Ended || s.Reason != ReasonLeft {
		t.Errorf("the one that waited: %+v", s)
	}
	if m, ok := r.memory.get(stranger, r.c.mono()); !ok || !m.bare {
		t.Errorf("the one that the store did not hold: %+v", m)
	}
}

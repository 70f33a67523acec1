package admission

import (
	"errors"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// backWith is the arrival of a visitor whose pass of a session has ended; id is what a gateway derives from the session.
func backWith(id ID, s *Standing, ended int64) Arrival {
	return Arrival{
		ID: id, Client: testClient(7), Keyed: true, Interval: 5 * time.Second,
		Return: &Return{Session: s.Ticket.ID, Order: s.Ticket.Order, Fence: s.Ticket.Fence, Ended: ended},
	}
}

func mustComeBack(t *testing.T, r *Room, a Arrival) Standing {
	t.Helper()
	s, refusal, err := r.Join(ctx5(t), a)
	if err != nil || refusal != Granted {
		t.Fatalf("%+v %q %v", s, refusal, err)
	}
	return s
}

// While the store is away a visitor returns in the old order, through two gateways with one ticket. When the store is back the
// place is ahead of later visitors, and the former session has ended.
func TestReturn_KeepsOrderOffline(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 1, 1000
	rooms := []*Room{testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)}
	in := mustJoin(t, rooms[0], testID(), testClient(7))
	if in.State != Active || in.Ticket.Order == 0 || in.Ticket.Fence == 0 {
		t.Fatalf("admitted at once as %+v", in)
	}
	c.pass(time.Second)
	other := mustJoin(t, rooms[0], testID(), testClient(8))
	for range 61 { // until the pass has ended, and its session sends no more heartbeats
		c.pass(3 * time.Second)
		mustTick(t, rooms[0])
		mustTick(t, rooms[1])
	}
	a := backWith(testID(), &in, c.us/1e6-6)
	for _, r := range rooms {
		r.store.markAway(errAway)
	}
	c.pass(time.Second)
	var places []Standing
	for _, r := range append(rooms, rooms...) {
		s := mustComeBack(t, r, a)
		if s.State != Waiting || s.Ticket.Order != in.Ticket.Order || s.Ticket.ID != a.ID {
			t.Fatalf("came back without the store as %+v", s)
		}
		places = append(places, s)
	}
	if !rooms[1].Revoked(in.Ticket.ID) {
		t.Error("the session goes on")
	}
	c.pass(p.Absence + time.Minute)
	for _, r := range rooms {
		mustTick(t, r)
	}
	for i, s := range places {
		got := mustCheck(t, rooms[i%2], s.Ticket)
		if got.State != Waiting || got.Ticket.Order != in.Ticket.Order {
			t.Errorf("place %d with the store: %+v", i, got)
		}
	}
	mustCheck(t, rooms[0], other.Ticket)
	if f, err := rooms[0].Lookup(ctx5(t), a.ID); err != nil || f.Ahead != 0 {
		t.Errorf("%+v %v, want the first place", f, err)
	}
	if f, err := rooms[0].Lookup(ctx5(t), other.Ticket.ID); err != nil || f.Ahead != 1 {
		t.Errorf("the later visitor: %+v %v", f, err)
	}
	mustTick(t, rooms[0])
	if f, err := rooms[0].Lookup(ctx5(t), in.Ticket.ID); err != nil || f.State != Ended {
		t.Errorf("the session: %+v %v", f, err)
	}
}

// An account whose session has ended returns while the store is away, through a gateway that does not know the session. The
// gateway gives a place other than the ended one, which keeps its order when the store is back.
func TestReturn_AccountOfflineIsNewPlace(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 1, 1000
	a, b := testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)
	account := Arrival{ID: ID{9, 1}, Client: testClient(7), Keyed: true, Account: true, Interval: time.Minute}
	in := mustComeBack(t, a, account)
	if in.State != Active {
		t.Fatalf("admitted at once as %+v", in)
	}
	for range 61 {
		c.pass(3 * time.Second)
		mustTick(t, a)
		mustTick(t, b)
	}
	b.store.markAway(errAway)
	c.pass(time.Second)
	account.Return = backWith(ID{}, &in, c.us/1e6-6).Return
	s := mustComeBack(t, b, account)
	if s.State != Waiting || s.Ticket.ID == in.Ticket.ID || s.Ticket.Order != in.Ticket.Order {
		t.Fatalf("came back without the store as %+v", s)
	}
	c.pass(p.Absence + time.Minute)
	mustTick(t, b)
	mustTick(t, a)
	for _, r := range []*Room{b, a} {
		if got := mustCheck(t, r, s.Ticket); got.State != Waiting || got.Ticket.Order != in.Ticket.Order {
			t.Errorf("with the store: %+v", got)
		}
	}
	if again := mustComeBack(t, a, account); again.Ticket.ID != s.Ticket.ID {
		t.Errorf("the account has two places: %v and %v", again.Ticket.ID, s.Ticket.ID)
	}
}

// After a loss of data the place comes back from its token in the old order, and its session from its heartbeats. The pass
// makes no other place.
func TestReturn_IsOnePlaceAfterLossOfData(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 1000, 1000
	r := testRoom(t, client, prefix, c, p)
	in := mustJoin(t, r, testID(), testClient(7))
	other := mustJoin(t, r, testID(), testClient(8))
	c.pass(7 * time.Second)
	p.Rate = 0
	r.setPolicy(p)
	mustTick(t, r)
	a := backWith(testID(), &in, c.us/1e6-6)
	s := mustComeBack(t, r, a)
	wipe := func() *Room {
		t.Helper()
		if err := client.Del(ctx5(t), r.keys...).Err(); err != nil {
			t.Fatal(err)
		}
		fresh := testRoom(t, client, prefix, c, p)
		mustTick(t, fresh)
		return fresh
	}
	fresh := wipe()
	if got := mustCheck(t, fresh, s.Ticket); got.State != Waiting || got.Ticket.Order != in.Ticket.Order {
		t.Fatalf("its token: %+v", got)
	}
	if again := mustComeBack(t, fresh, a); again.New || again.Ticket.ID != s.Ticket.ID || again.Ticket.Order != in.Ticket.Order {
		t.Errorf("the pass once more: %+v", again)
	}
	if got := mustCheck(t, fresh, other.Ticket); got.State != Waiting {
		t.Fatalf("%+v", got)
	}

	fresh = wipe()
	fresh.Touch(a.ID, false) // the place has become a session meanwhile
	mustTick(t, fresh)
	if again, _, err := fresh.Join(ctx5(t), a); !errors.Is(err, ErrUnknown) {
		t.Errorf("the pass gave %+v (%v) beside the session of its place", again, err)
	}
}

// A visitor who was admitted before a draw does not return ahead of the drawn tickets.
func TestReturn_KeepsNoOrderPastDraw(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, basePolicy)
	snap := *r.Snapshot()
	snap.Policy.Method, snap.Opens, snap.Drawn = Lottery, c.us, c.us
	for _, row := range []struct {
		order, began int64
		want         bool
	}{
		{c.us - 1e6, c.us/1e6 - 1, false},
		{c.us - 1e6, c.us/1e6 + 1, true}, // drawn
		{c.us + 1e6, c.us/1e6 + 2, true}, // late
	} {
		if got := r.keeps(&snap, &Return{Order: row.order, Fence: 1, Began: row.began, Ended: c.us / 1e6}); got != row.want {
			t.Errorf("order %d, admitted at %d: kept %t", row.order, row.began, got)
		}
	}
}

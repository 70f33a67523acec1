package admission

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// mixed is a visitor of one of the rooms of a sharing.
type mixed struct {
	room       int
	t          Ticket
	admittedAt int64 // 0: not yet
}

// poll checks all tickets that are not admitted, at either gateway, and keeps the results.
func (s *sharing) poll(all []*mixed) {
	var asking sync.WaitGroup
	for i, v := range all {
		if v.admittedAt > 0 {
			continue
		}
		asking.Go(func() {
			switch got, err := s.rooms[i%len(s.rooms)][v.room].Check(s.test.Context(), v.t); {
			case err != nil:
				s.test.Error(err)
			case got.State == Admitted:
				v.admittedAt = got.AdmittedAt
			case got.State != Waiting:
				s.test.Errorf("visitor %d of room %d: %+v", i, v.room, got)
			case got.Renewed:
				v.t.Order, v.t.Seen, v.t.Epoch, v.t.Fence = got.Ticket.Order, got.Ticket.Seen, got.Ticket.Epoch, got.Ticket.Fence
			}
		})
	}
	asking.Wait()
	s.judge()
}

// A lottery opens and an event slows the other room down while both share a budget on two gateways, and the store is emptied in
// between. Admissions never exceed the budget, use all of it where possible, and follow the weights; drawn tickets keep their
// order, and no place is lost.
func TestBudget_SharedByLotteryAndEvent(t *testing.T) {
	t.Parallel()
	const rate, lots, crowd = 12, 270, 300
	server := redistest.Server(t)
	now := newTestClock().us
	at := func(s int64) int64 { return now + s*1_000_000 }
	drawn, slowed := budgeted(rate*1000, rate*1000, 3000, 1_000_000), budgeted(rate*1000, rate*1000, 1000, 1_000_000)
	slowed.Burst = 0 // it follows the rate, of the event too
	drawn.Method, drawn.PollBudget, drawn.PrequeueAt, drawn.OpensAt = Lottery, 20_000, at(-600), at(10)
	drawn.Plan = NewPlan(drawSecret, "room-0", &drawn, nil)
	slowed.Plan = NewPlan(nil, "room-1", &slowed, []Event{{Name: "slow", Starts: at(36), Ends: at(44), Rate: 1000}})
	s := newSharing(t, t, server.Client(), "wr", 2, drawn, slowed)
	s.run(time.Second, nil)

	var all []*mixed
	for i := range lots + crowd {
		v := &mixed{room: min(1, i/lots), t: Ticket{ID: testID(), Client: testClient(1), Interval: time.Minute}}
		got, refusal, err := s.rooms[i%2][v.room].Join(t.Context(), Arrival{ID: v.t.ID, Client: v.t.Client, Interval: v.t.Interval})
		if err != nil || refusal != Granted || got.State == Waiting && got.Gathering != (v.room == 0) {
			t.Fatalf("visitor %d: %+v %q %v", i, got, refusal, err)
		}
		if v.t = got.Ticket; got.State == Active {
			v.admittedAt, v.t.Order = got.AdmittedAt, 0 // before those who joined in the same microsecond and wait
		}
		v.t.Client, v.t.Interval = testClient(1), time.Minute
		all = append(all, v)
	}
	// until plays to that second and returns how many each room admitted.
	until := func(second int64) []int64 {
		t.Helper()
		got := s.run(time.Duration(at(second)-s.clock.us)*time.Microsecond, nil)
		t.Logf("till %d s: %v", second, got)
		return got
	}
	within := func(what string, got, least, most int64) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: %d were admitted, want %d to %d", what, got, least, most)
		}
	}
	until(4)
	got := until(10)
	within("lots before the opening", got[0], 0, 0)
	within("the other room, which has all of the budget", got[1], 6*rate-6, 6*rate+6)
	until(11)
	s.poll(all) // the drawn tickets poll, and none is admitted for a while
	got = until(16)
	within("the other room meanwhile", got[1], 3*rate, 5*rate)
	got = until(24)
	within("lots, three of four", got[0], 8*rate*3/4-6, 8*rate*3/4+6)
	within("the other room, one of four", got[1], 8*rate/4-6, 8*rate/4+6)
	s.poll(all)
	if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	until(25)
	s.poll(all) // with their tokens
	until(32)
	got = until(36)
	within("lots, again", got[0], 4*rate*3/4-6, 4*rate*3/4+6)
	within("the other room, again", got[1], 4*rate/4-6, 4*rate/4+6)
	until(37)
	got = until(44)
	within("the event, at 1/s", got[1], 5, 9)
	within("lots, all that the event leaves", got[0], 7*(rate-1)-7, 7*(rate-1)+7)
	until(62)
	s.poll(all)
	slices.SortFunc(all, func(a, b *mixed) int {
		return cmp.Or(cmp.Compare(a.room, b.room), cmp.Compare(a.t.Order, b.t.Order), bytes.Compare(a.t.ID[:], b.t.ID[:]))
	})
	for i, v := range all {
		if v.admittedAt == 0 {
			t.Fatalf("%d of room %d was not admitted: %+v", i, v.room, v.t)
		}
		if i > 0 && v.room == all[i-1].room && v.admittedAt < all[i-1].admittedAt {
			t.Fatalf("room %d: order %d at %d, order %d at %d", v.room, all[i-1].t.Order, all[i-1].admittedAt, v.t.Order, v.admittedAt)
		}
	}
}

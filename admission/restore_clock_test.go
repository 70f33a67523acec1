package admission

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission/snapshot"
	"github.com/anteroom/anteroom/internal/redistest"
)

// steppedRoom is a room at three gateways whose store's clock is stepped. Its visitors poll as advised.
type steppedRoom struct {
	t      *testing.T
	client redis.UniversalClient
	c      *testClock
	rooms  []*Room
	queue  []Ticket
	set    int64 // by as much Redis's clock was stepped back, µs
}

func newSteppedRoom(t *testing.T) *steppedRoom {
	s := &steppedRoom{t: t, client: redistest.Server(t).Client(), c: newTestClock()}
	for range 3 {
		s.rooms = append(s.rooms, s.gateway())
	}
	s.ticks()
	s.arrive(s.rooms[0])
	return s
}

func (s *steppedRoom) gateway() *Room {
	p := basePolicy
	p.Rate, p.Burst = 0, 1000
	r := testRoom(s.t, s.client, "wr", s.c, p)
	r.c.ownMono = func() int64 { return (s.c.now() + s.set) * 1000 }
	return r
}

func (s *steppedRoom) ticks() {
	for _, r := range s.rooms {
		mustTick(s.t, r)
	}
}

func (s *steppedRoom) step(d time.Duration) {
	s.c.pass(d)
	s.set -= d.Microseconds()
}

func (s *steppedRoom) arrive(r *Room) {
	s.c.pass(time.Millisecond)
	tk := mustJoin(s.t, r, testID(), testClient(1)).Ticket
	s.queue = append(s.queue, s.poll(r, tk))
}

func (s *steppedRoom) poll(r *Room, tk Ticket) Ticket {
	s.t.Helper()
	tk.Interval, tk.Client = 2*time.Second, testClient(1)
	got := mustCheck(s.t, r, tk)
	if got.State != Waiting || got.Ticket.Order != tk.Order {
		s.t.Fatalf("%+v, ticket %+v", got, tk)
	}
	return got.Ticket
}

func (s *steppedRoom) polls() {
	s.t.Helper()
	s.c.pass(time.Second)
	s.ticks()
	for i := range s.queue {
		s.queue[i] = s.poll(s.rooms[i%3], s.queue[i])
	}
}

// The store is lost after its clock stepped forward by more than absence. Visitors who poll as advised are not late.
func TestRestore_AfterClockStep(t *testing.T) {
	const step = 16 * time.Hour
	for name, faults := range map[string]func(*steppedRoom){
		"lost twice, first with a new gateway": func(s *steppedRoom) {
			s.step(step)
			s.ticks()
			s.arrive(s.rooms[1])
			lost(s.t, s.client)
			s.rooms[0] = s.gateway()
			mustTick(s.t, s.rooms[0])
			s.c.pass(50 * time.Millisecond)
			s.arrive(s.rooms[0])
			mustTick(s.t, s.rooms[1])
			mustTick(s.t, s.rooms[2])
			mustTick(s.t, s.rooms[0])
			lost(s.t, s.client)
		},
		"lost before a tick has shown it, its gateway first": func(s *steppedRoom) {
			s.step(step)
			s.arrive(s.rooms[0])
			lost(s.t, s.client)
		},
		"likewise, another one first": func(s *steppedRoom) {
			s.step(step)
			s.arrive(s.rooms[2])
			lost(s.t, s.client)
		},
		"the new store's clock is ahead": func(s *steppedRoom) {
			s.step(step)
			lost(s.t, s.client)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSteppedRoom(t)
			faults(s)
			s.polls()
			s.polls()
		})
	}
}

// A step forward of Redis's clock makes a new snapshot even if the clock is still behind that of the last snapshot. Every
// gateway then knows the silence.
func TestTick_ShowsStepAfterClockWentBack(t *testing.T) {
	s := newSteppedRoom(t)
	s.step(-20 * time.Minute)
	s.ticks()
	s.step(17 * time.Minute)
	s.ticks()
	for i, r := range s.rooms {
		if g := r.Snapshot().Silences; len(g) != 1 || g[0].Length < (16*time.Minute).Microseconds() {
			t.Errorf("gateway %d knows the silences %v", i, g)
		}
	}
}

// A gateway without the store records polls of a visitor for a limited time, which does not include silences between the last
// confirmation and now.
func TestVouch_SilencesDoNotCount(t *testing.T) {
	const second = int64(1_000_000)
	c := newTestClock()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, basePolicy)
	confirmed := r.Now()
	for name, row := range map[string]struct {
		gaps []snapshot.Silence // till: seconds after the confirmation
		want int64              // likewise, at 2000 s
	}{
		"none":                                  {nil, 900},
		"one in between":                        {[]snapshot.Silence{{Till: 1100, Length: 1000}}, 1900},
		"one after the end":                     {[]snapshot.Silence{{Till: 1900, Length: 100}}, 900},
		"two, of which one is at the end":       {[]snapshot.Silence{{Till: 500, Length: 400}, {Till: 1990, Length: 300}}, 1300},
		"longer than it takes to be at the end": {[]snapshot.Silence{{Till: 1500, Length: 1400}}, 2000},
	} {
		snap := *r.Snapshot()
		snap.Silences = nil
		for _, g := range row.gaps {
			snap.Silences = append(snap.Silences, snapshot.Silence{Till: confirmed + g.Till*second, Length: g.Length * second})
		}
		r.view.snap.Store(&snap)
		c.us = confirmed + 2000*second
		tk, renewed := r.offline.recordPoll(Ticket{ID: testID(), Order: confirmed, Seen: confirmed, Epoch: snap.Epoch, Fence: 1})
		if got := (tk.Heard - confirmed) / second; !renewed || got != row.want {
			t.Errorf("%s: vouched until %d s after the confirmation, want %d", name, got, row.want)
		}
	}
}

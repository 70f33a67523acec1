package admission

import (
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission/alarm"
	"github.com/anteroom/anteroom/internal/redistest"
)

// watchAll passes time second by second; every gateway ticks and watches the alarms.
func watchAll(t *testing.T, c *testClock, rooms []*Room, seconds int) {
	t.Helper()
	for range seconds {
		c.pass(time.Second)
		for _, r := range rooms {
			mustTick(t, r)
			if err := r.WatchAlarms(ctx5(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, r := range rooms {
		mustTick(t, r)
	}
}

// An alarm pauses the room once over two gateways. It takes the pause back after resume_after, and not before the value is low.
func TestAlarms_ActOnceOverGateways(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 1000, 1000
	rooms := []*Room{testRoom(t, client, prefix, c, p), testRoom(t, client, prefix, c, p)}
	for _, r := range rooms {
		r.SetAlarms([]alarm.Spec{
			{Name: "crowd", When: alarm.Waiting, Above: 2, For: 3 * time.Second, Do: alarm.Pause, ResumeAfter: 20 * time.Second},
			{Name: "told", When: alarm.Inside, Above: 0, For: 2 * time.Second, Do: alarm.Notify},
			{Name: "errors", When: alarm.OriginErrors, Above: 0.05, For: time.Second, Do: alarm.Rate, Rate: 1},
		})
	}
	state := func(r *Room) []string {
		var all []string
		for _, a := range r.Alarms() {
			all = append(all, alarm.State(&a.Watch, &a.Record))
		}
		return all
	}
	var tickets []Ticket
	for range 8 {
		c.pass(time.Microsecond)
		if s := mustJoin(t, rooms[0], testID(), testClient(7)); s.State == Waiting {
			tickets = append(tickets, s.Ticket)
		}
	}
	watchAll(t, c, rooms, 2)
	if got := state(rooms[0]); rooms[0].Snapshot().Policy.Paused || !slices.Equal(got, []string{"pending", "pending", "ok"}) {
		t.Fatalf("after 2 s %v, paused %t", got, rooms[0].Snapshot().Policy.Paused)
	}
	watchAll(t, c, rooms, 3)
	for i, r := range rooms {
		if got := state(r); !r.Snapshot().Policy.Paused || !slices.Equal(got, []string{"fired", "fired", "ok"}) {
			t.Errorf("gateway %d after 5 s: %v, paused %t", i, got, r.Snapshot().Policy.Paused)
		}
	}
	watchAll(t, c, rooms, 25) // still above
	if !rooms[0].Snapshot().Policy.Paused {
		t.Error("the pause was taken back while the value was above")
	}
	for _, ticket := range tickets {
		if err := rooms[1].Leave(ctx5(t), ticket); err != nil {
			t.Fatal(err)
		}
	}
	watchAll(t, c, rooms, 6)
	for i, r := range rooms {
		if got := state(r); r.Snapshot().Policy.Paused || got[0] != "ok" {
			t.Errorf("gateway %d after the crowd left: %v, paused %t", i, got, r.Snapshot().Policy.Paused)
		}
	}
	want := []string{"alarm told: alarm", "alarm crowd: alarm paused 1", "alarm crowd: alarm over paused"}
	if got := ramps(t, rooms[0]); !slices.Equal(got, want) {
		t.Errorf("audit log %q, want %q", got, want)
	}
}

// An operator who resumes wins: the alarm does not pause again before the value was low.
func TestAlarms_OperatorResumes(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate = 0
	rooms := []*Room{testRoom(t, client, prefix, c, p)}
	rooms[0].SetAlarms([]alarm.Spec{{Name: "crowd", When: alarm.Waiting, Above: 0, For: time.Second, Do: alarm.Pause}})
	for range 3 {
		mustJoin(t, rooms[0], testID(), testClient(7))
	}
	watchAll(t, c, rooms, 4)
	if !rooms[0].Snapshot().Policy.Paused {
		t.Fatal("not paused")
	}
	if err := rooms[0].Resume(ctx5(t), "ann"); err != nil {
		t.Fatal(err)
	}
	watchAll(t, c, rooms, 10)
	if rooms[0].Snapshot().Policy.Paused {
		t.Error("the alarm has paused the room again")
	}
}

package webhook

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
)

var start = time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)

// scene is one room under a watcher, whose changes are recorded as the store would.
type scene struct {
	t        *testing.T
	w        *watcher
	room     Room
	recorded map[string]string
	now      time.Time
}

func newScene(t *testing.T) *scene {
	s := &scene{t: t, w: newWatcher(), recorded: map[string]string{}, now: start, room: Room{
		ID: "sale", Up: true, Origin: "shop", MaxErrorRate: 0.05, Snapshot: &admission.Snapshot{Known: true, Epoch: "e", Policy: admission.Policy{Rate: 5000}},
	}}
	s.expect("") // the policy is recorded
	return s
}

// expect watches a second later and compares the kinds of the events.
func (s *scene) expect(want string) *change {
	s.t.Helper()
	s.now = s.now.Add(time.Second)
	s.room.Now = s.now.UnixMicro()
	s.room.Snapshot.Seq++
	var got string
	var last change
	for _, c := range s.w.changes(s.now, []Room{s.room}, s.recorded) {
		s.recorded[c.field] = c.value
		if c.event.kind != "" {
			got += c.event.kind + " "
			last = c
		}
	}
	if want != "" {
		want += " "
	}
	if got != want {
		s.t.Fatalf("at %s: %q, want %q", s.now.Sub(start), got, want)
	}
	return &last
}

func (s *scene) quiet(seconds int) {
	s.t.Helper()
	for range seconds {
		s.expect("")
	}
}

func TestWatcher_QueueEndsAfterQuietTime(t *testing.T) {
	s := newScene(t)
	s.room.Snapshot.Waiting = 3
	if c := s.expect(QueueStarted); c.event.data["waiting"] != int64(3) {
		t.Errorf("%v", c.event.data)
	}
	s.quiet(3)
	s.room.Snapshot.Waiting = 0
	s.quiet(5)
	s.room.Snapshot.Waiting = 1 // the quiet time begins anew
	s.quiet(1)
	s.room.Snapshot.Waiting = 0
	s.quiet(9)
	s.expect(QueueEnded)
	s.quiet(20)
}

// A gateway that takes over knows what was recorded, and not for how long nobody has waited.
func TestWatcher_TakesOver(t *testing.T) {
	s := newScene(t)
	s.room.Snapshot.Waiting = 3
	s.expect(QueueStarted)
	s.w = newWatcher()
	s.quiet(2)
	s.w = newWatcher()
	s.room.Snapshot.Waiting = 0
	s.quiet(10)
	s.expect(QueueEnded)
}

func TestWatcher_ReportsChangedFields(t *testing.T) {
	s := newScene(t)
	p := &s.room.Snapshot.Policy
	p.Rate, p.Paused = 1500, true
	c := s.expect(RoomChanged)
	got, _ := json.Marshal(c.event.data)
	if want := `{"after":{"paused":true,"rate":1.5},"before":{"paused":false,"rate":5},"fields":["rate","paused"]}`; string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	p.SessionTTL = time.Minute
	c = s.expect(RoomChanged)
	got, _ = json.Marshal(c.event.data)
	if want := `{"after":{"session":{"ttl":"1m0s"}},"before":{"session":{"ttl":"0s"}},"fields":["session"]}`; string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.quiet(3)
}

func TestWatcher_OriginHasToStayUnhealthy(t *testing.T) {
	s := newScene(t)
	h := &s.room.Health
	h.Gateways, h.Requests, h.Errors = 1, 100, 6
	s.quiet(4)
	h.Errors = 5 // not above max_error_rate
	s.quiet(1)
	h.Errors = 50
	s.quiet(5)
	s.expect(OriginUnhealthy)
	h.Requests, h.Errors = 3, 0 // too few
	s.quiet(20)
	h.Requests = 100
	s.quiet(15)
	s.expect(OriginHealthy)
}

// A room that sells out is reported each time, and by one gateway of those that follow each other.
func TestWatcher_ReportsSoldOutRooms(t *testing.T) {
	s := newScene(t)
	s.quiet(2)
	s.room.Snapshot.Waiting, s.room.Snapshot.Facts.SoldOut, s.room.Snapshot.Policy.SoldOut = 3, true, true
	first := s.expect(QueueStarted + " " + RoomSoldOut)
	if d := first.event.data; d["waiting"] != int64(3) || d["closed"] != true {
		t.Errorf("%v", d)
	}
	s.quiet(3)
	s.w = newWatcher()
	s.quiet(2)
	s.room.Snapshot.Facts.SoldOut, s.room.Snapshot.Policy.SoldOut = false, false
	s.quiet(2)
	s.room.Snapshot.Facts.SoldOut = true
	if again := s.expect(RoomSoldOut); again.event.id() == first.event.id() || again.event.data["closed"] != false {
		t.Errorf("%v after %v", again.event, first.event)
	}
}

// A state that a gateway without on_sold_out has recorded is no change of it.
func TestWatcher_IgnoresFieldsThatWereNotRecorded(t *testing.T) {
	s := newScene(t)
	before := policyOf(&s.room.Snapshot.Policy)
	delete(before, "on_sold_out")
	text, _ := json.Marshal(before)
	s.recorded[policyField("sale")] = string(text)
	s.quiet(1)
	s.room.Snapshot.Policy.SoldOutCloses = true
	c := s.expect(RoomChanged)
	if got, _ := json.Marshal(c.event.data); string(got) != `{"after":{"on_sold_out":"close"},"before":{"on_sold_out":"keep"},"fields":["on_sold_out"]}` {
		t.Errorf("%s", got)
	}
}

// An event that ended while no gateway watched is reported; one that nobody saw begin is not.
func TestWatcher_ReportsPlannedEvents(t *testing.T) {
	s := newScene(t)
	at := func(seconds int) int64 { return s.now.Add(time.Duration(seconds) * time.Second).UnixMicro() }
	s.room.Events = []admission.Event{{Name: "past", Starts: at(-100), Ends: at(-50)}, {Name: "drop", Starts: at(3), Ends: at(6), Gathers: at(1)}}
	s.quiet(2)
	c := s.expect(EventStarting)
	if c.event.data["event"] != "drop" || c.event.data["starts_at"] != micros(at(0)) {
		t.Errorf("%v", c.event.data)
	}
	s.quiet(1)
	s.now = s.now.Add(time.Hour)
	s.expect(EventEnded)
	s.quiet(3)
	if len(s.recorded) != 3 && s.recorded[eventField("sale", &s.room.Events[1])] != "" {
		t.Errorf("%v is left", s.recorded)
	}
}

// While the store of a room is away, or was never reached, its snapshot shows nothing new.
func TestWatcher_IgnoresOldSnapshots(t *testing.T) {
	s := newScene(t)
	s.room.Up = false
	s.room.Snapshot.Waiting = 3
	s.quiet(3)
	s.room.Up, s.room.Snapshot.Known = true, false
	s.quiet(3)
	s.room.Snapshot.Known = true
	s.expect(QueueStarted)
}

// The same event has the same id on every gateway, and another event another one.
func TestEvent_IDIsThatOfTheEvent(t *testing.T) {
	seen := map[string]string{}
	for _, kind := range []string{QueueStarted, QueueEnded} {
		for _, room := range []string{"sale", "vip"} {
			for _, marks := range [][]string{{"e", "1"}, {"e1", ""}, {"e", "2"}} {
				a := event{kind: kind, room: room, at: start, marks: marks}
				b := event{kind: kind, room: room, at: start.Add(time.Hour), marks: marks, data: map[string]any{"waiting": 7}}
				if a.id() != b.id() {
					t.Errorf("%v has two ids", a)
				}
				name := fmt.Sprint(kind, room, marks)
				if other, taken := seen[a.id()]; taken {
					t.Errorf("%s has the id of %s", name, other)
				}
				seen[a.id()] = name
			}
		}
	}
}

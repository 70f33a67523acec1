package policy

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEventsText_IsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var events []Event
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			starts := rapid.Int64Range(0, 1<<50).Draw(t, "starts")
			events = append(events, Event{
				ID: rapid.StringMatching("[0-9a-f]{8}").Draw(t, "id"), Name: rapid.String().Draw(t, "name"), Starts: starts, Ends: starts + rapid.Int64Range(1, 1<<40).Draw(t, "length"),
				Rate: rapid.Int64Range(0, 1e9).Draw(t, "rate"), Method: rapid.SampledFrom([]string{"", FIFO, Passthrough, Reject}).Draw(t, "method"),
			})
		}
		text := EventsText(events)
		got, err := ParseEvents(text)
		if err != nil || !reflect.DeepEqual(got, events) {
			t.Fatalf("%q: %+v, %v, want %+v", text, got, err, events)
		}
		if strings.ContainsAny(text, " \n") {
			t.Fatalf("%q would divide the line of live fields", text)
		}
	})
}

func TestParseEvents_RefusesOtherTexts(t *testing.T) {
	for _, text := range []string{",", "a", "a:1:2:3:fifo", "a:1:2:3:fifo:x y", "a:2:1:3:fifo:", "a:1:2:x:fifo:", ":1:2:3:fifo:", "a:1:2:3:lottery:", "a:1:2:3:fifo:,"} {
		if events, err := ParseEvents(text); err == nil {
			t.Errorf("%q: %+v", text, events)
		}
	}
}

// A live event is in force like a configured one, and never beside another.
func TestPlanWith_LeavesOutOverlappingEvents(t *testing.T) {
	p := timetable(Reject) // 100–200, 300–500, 600–700
	live := []Event{{ID: "a", Starts: 200, Ends: 300, Rate: 7, Method: FIFO}, {ID: "b", Starts: 250, Ends: 260, Rate: 8}, {ID: "c", Starts: 299, Ends: 310}, {ID: "d", Starts: 700, Ends: 800, Method: FIFO}}
	p.Plan = p.Plan.With(live)
	var ids []string
	for e := range p.Plan.All() {
		ids = append(ids, e.ID+e.Name)
	}
	if got := strings.Join(ids, " "); got != "sale a lottery closed d" {
		t.Errorf("the plan has %s", got)
	}
	if q := p.At(250); q.Rate != 7 || q.Method != FIFO {
		t.Errorf("at 250: %s at %d", q.Method, q.Rate)
	}
	if span := NewSchedule(p).At(750); span.Policy.Method != FIFO {
		t.Errorf("at 750: %s", span.Policy.Method)
	}
	if p.Plan.Draw(400) == nil || p.Plan.Lotteries() != 1 {
		t.Error("the lottery has no draw any more")
	}
	if e := p.Plan.Overlapping(&Event{ID: "a", Starts: 200, Ends: 290}); e != nil {
		t.Errorf("a changed event overlaps %+v", e)
	}
	if e := p.Plan.Overlapping(&Event{Starts: 250, Ends: 260}); e == nil || e.ID != "a" {
		t.Errorf("an event at 250 overlaps %+v", e)
	}
	var none *Plan
	if none.Overlapping(&live[0]) != nil || none.With(nil) != nil || none.With(live[:1]).Overlapping(&live[1]).ID != "a" {
		t.Error("a room without a plan")
	}
}

func FuzzParseEvents(f *testing.F) {
	for _, text := range []string{"", "0a1b2c3d:1:2:3000:fifo:c2FsZQ", "a:1:2:0:reject:,b:2:3:5::"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		events, err := ParseEvents(text)
		if err != nil {
			return
		}
		again, err := ParseEvents(EventsText(events))
		if err != nil || !reflect.DeepEqual(again, events) {
			t.Errorf("%q: %+v, then %+v, %v", text, events, again, err)
		}
	})
}

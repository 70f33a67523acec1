package console

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
)

// around returns the body of an event from and to so many seconds from now.
func (b *bench) around(from, to int, more string) string {
	at := func(seconds int) string {
		return time.UnixMicro(b.sale.RedisNow()).Add(time.Duration(seconds) * time.Second).UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprintf(`{"starts_at":%q,"ends_at":%q%s}`, at(from), at(to), more)
}

// A live event is in force at its time, changes with a PUT and ends with a DELETE; undo brings it back.
func TestEvents_AreInForceAtTheirTime(t *testing.T) {
	b := newBench(t)
	const events = "/admin/v1/rooms/sale/events"
	w := b.ask("POST", events, b.around(10, 60, `,"name":"Früh, 1: a","rate":7.5`))
	want(t, w, 201)
	one := decode(t, w.Body.Bytes())
	rate := func() int64 { return b.sale.Snapshot().Policy.Rate }
	if rate() != 1000 {
		t.Errorf("before the event: %d", rate())
	}
	b.tick(11 * time.Second)
	if rate() != 7500 {
		t.Errorf("in the event: %d", rate())
	}
	if v := decode(t, b.ask("GET", "/admin/v1/rooms/sale", "").Body.Bytes()); at(v, "event.name") != "Früh, 1: a" || at(v, "event.id") != one["id"] {
		t.Errorf("the room has %v", at(v, "event"))
	}
	b.tick(50 * time.Second)
	if rate() != 1000 {
		t.Errorf("after the event: %d", rate())
	}
	path := events + "/" + one["id"].(string)
	want(t, b.ask("PUT", path, b.around(-5, 100, `,"method":"reject"`)), 200)
	b.tick(0)
	if m := b.sale.Snapshot().Policy.Method; m != admission.Reject {
		t.Errorf("a changed event: %s", m)
	}
	want(t, b.ask("DELETE", path, ""), 204)
	b.tick(0)
	if m := b.sale.Snapshot().Policy.Method; m != admission.FIFO {
		t.Errorf("a removed event: %s", m)
	}
	entry := b.newest()
	if entry["action"] != "event" || entry["undo"] != "possible" || len(at(entry, "before.events").([]any)) != 1 || at(entry, "after.events") != nil {
		t.Errorf("the audit log has %v", entry)
	}
	if code, body := b.undo(entry["seq"]); code != 200 {
		t.Errorf("undo: %d %s", code, body)
	}
	if m := b.sale.Snapshot().Policy.Method; m != admission.Reject {
		t.Errorf("an undone removal: %s", m)
	}
}

// Events never overlap others of their room. A configured event that a reload brings takes precedence.
func TestEvents_DoNotOverlap(t *testing.T) {
	b := newBench(t)
	const events = "/admin/v1/rooms/sale/events"
	w := b.ask("POST", events, b.around(100, 200, `,"name":"one","rate":3`))
	want(t, w, 201)
	one := decode(t, w.Body.Bytes())["id"].(string)
	for _, span := range [][2]int{{100, 200}, {50, 101}, {199, 300}, {120, 130}, {0, 900}} {
		w := b.ask("POST", events, b.around(span[0], span[1], `,"rate":4`))
		wantCode(t, w, 409, "overlaps")
		if !strings.Contains(w.Body.String(), "one is planned") {
			t.Errorf("%s", w.Body)
		}
	}
	want(t, b.ask("POST", events, b.around(200, 300, `,"name":"two","rate":4`)), 201)
	wantCode(t, b.ask("PUT", events+"/"+one, b.around(150, 250, `,"rate":3`)), 409, "overlaps")
	want(t, b.ask("PUT", events+"/"+one, b.around(150, 200, `,"name":"one","rate":3`)), 200)
	want(t, b.ask("POST", "/admin/v1/rooms/vip/events", b.around(100, 200, `,"rate":3`)), 201) // of another room

	file, now := filePolicy, b.sale.RedisNow()
	file.Plan = admission.NewPlan(nil, "sale", &file, []admission.Event{{Name: "file", Starts: now + 160e6, Ends: now + 170e6, Rate: 9000}})
	b.core.Room("sale", file)
	b.tick(time.Second)
	var list struct {
		Events []struct {
			Room, Name, Overlaps string
			Live                 bool
		}
	}
	if err := json.Unmarshal(b.ask("GET", "/admin/v1/events", "").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list.Events {
		got = append(got, strings.TrimSpace(fmt.Sprint(e.Room, " ", e.Name, " ", e.Live, " ", e.Overlaps)))
	}
	if s := strings.Join(got, ", "); s != "sale one true file, sale file false, sale two true, vip  true" {
		t.Errorf("the calendar has %s", s)
	}
	b.tick(164 * time.Second)
	if r := b.sale.Snapshot().Policy.Rate; r != 9000 {
		t.Errorf("the rate is %d", r)
	}
}

func TestEvents_FaultsNameTheirFields(t *testing.T) {
	b := newBench(t)
	const events = "/admin/v1/rooms/sale/events"
	for body, path := range map[string]string{
		`{"rate":1}`:                                                                              "starts_at",
		b.around(10, 5, `,"rate":1`):                                                              "ends_at",
		b.around(-10, -5, `,"rate":1`):                                                            "ends_at",
		b.around(10, 20, ``):                                                                      "rate",
		b.around(10, 20, `,"rate":0`):                                                             "rate",
		b.around(10, 20, `,"rate":-1`):                                                            "rate",
		b.around(10, 20, `,"method":"lottery"`):                                                   "method",
		b.around(10, 20, `,"method":"lifo"`):                                                      "method",
		b.around(10, 20, `,"rate":1,"prequeue":1`):                                                "prequeue",
		b.around(10, 20, `,"rate":1,"name":"a\nb"`):                                               "name",
		b.around(10, 20, `,"rate":1,"name":"`+strings.Repeat("x", 61)+`"`):                        "name",
		`{"starts_at":"tomorrow","ends_at":"2028-01-01T10:00:00Z","rate":1}`:                      "starts_at",
		`{"starts_at":"2028-01-01T10:00:00","ends_at":"2028-01-01T11:00:00Z","rate":1}`:           "starts_at",
		`{"starts_at":"1900-01-01T10:00:00Z","ends_at":"9999-01-01T11:00:00Z","method":"reject"}`: "starts_at",
	} {
		w := b.ask("POST", events, body)
		wantCode(t, w, 422, "invalid")
		if got := at(at(decode(t, w.Body.Bytes()), "problems").([]any)[0], "path"); got != path {
			t.Errorf("%s: %v, want %s", body, got, path)
		}
	}
	for i := range admission.MostEvents {
		want(t, b.ask("POST", events, b.around(100*i, 100*i+50, `,"rate":1`)), 201)
	}
	wantCode(t, b.ask("POST", events, b.around(99000, 99100, `,"rate":1`)), 409, "too_many_events")
	b.tick(8 * 24 * time.Hour)
	want(t, b.ask("POST", events, b.around(10, 20, `,"rate":1`)), 201)
	if n := len(b.sale.LiveEvents()); n != 1 {
		t.Errorf("%d events are kept after a week", n)
	}
}

package gateway

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
)

// cloudflare returns the object cfWaitingRoom of a response.
func (a *response) cloudflare(t *testing.T) map[string]any {
	t.Helper()
	var out struct {
		CF map[string]any `json:"cfWaitingRoom"`
	}
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || len(out.CF) != 25 {
		t.Fatalf("cfWaitingRoom has %d fields (%v): %s", len(out.CF), err, a.text())
	}
	return out.CF
}

// Every state of a room with compat: cloudflare has the object, on a path of the room as at the endpoints.
func TestCompat_EveryStateHasTheObject(t *testing.T) {
	t.Parallel()
	now := time.Now().UnixMicro()
	const minute = int64(60_000_000)
	event := admission.Event{Name: "sale", Starts: now - minute, Ends: now + 30*minute, Rate: 1}
	planned := policy(0)
	planned.Plan = admission.NewPlan(nil, "event", &planned, []admission.Event{event})
	event.Starts, event.Gathers, event.Method = now+15*minute, now-minute, admission.Lottery
	drawn := policy(0)
	drawn.Plan = admission.NewPlan(drawSecret, "drawn", &drawn, []admission.Event{event})
	open, full := policy(1), policy(0)
	open.Method, full.Capacity = admission.Passthrough, 1
	var rooms []Room
	for _, row := range []struct {
		id string
		p  admission.Policy
	}{
		{"fifo", policy(0)}, {"gathering", lottery("gathering", 10*time.Minute, time.Minute)}, {"event", planned}, {"drawn", drawn}, {"open", open},
		{"shut", shut(policy(1))}, {"full", full}, {"draining", policy(0)}, {"admitted", policy(100)}, {"paused", policy(0)},
	} {
		rooms = append(rooms, Room{ID: row.id, Paths: []string{"/" + row.id}, Policy: row.p, Compat: CompatCloudflare})
	}
	b, _ := oneTicking(t, 20*time.Millisecond, rooms...)
	if err := b.queue("draining").Drain(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	if err := b.queue("paused").Pause(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	b.call("POST /.waiting-room/full/tickets").code(t, 201)
	eventually(t, "the changes are known", func() bool {
		return b.queue("draining").Snapshot().Policy.Draining && b.queue("paused").Snapshot().Policy.Paused && b.queue("full").Snapshot().Waiting == 1
	})
	for _, row := range []struct {
		request string
		status  int
		want    map[string]any
	}{
		{"GET /fifo", 202, map[string]any{"inWaitingRoom": true, "queueingMethod": "fifo", "isFIFOQueue": true, "isEventActive": false, "queueAll": false}},
		{"POST /fifo", 503, map[string]any{"inWaitingRoom": true}},
		{"GET /gathering", 202, map[string]any{"isRandomQueue": true, "isEventActive": true, "isEventPrequeueing": true, "queueAll": true, "timeUntilEventStart": 10., "timeUntilEventEnd": 0., "timeUntilEventEndFormatted": "unavailable", "shuffleAtEventStart": true}},
		{"GET /event", 202, map[string]any{"isEventActive": true, "isEventPrequeueing": false, "timeUntilEventStartFormatted": "unavailable", "timeUntilEventEnd": 30., "timeUntilEventEndFormatted": "30 minutes"}},
		{"GET /drawn", 202, map[string]any{"isEventActive": true, "isEventPrequeueing": true, "timeUntilEventStart": 15., "timeUntilEventStartFormatted": "15 minutes", "timeUntilEventEnd": 30., "shuffleAtEventStart": true}},
		{"POST /.waiting-room/open/tickets", 201, map[string]any{"inWaitingRoom": false, "queueingMethod": "passthrough", "isPassthroughQueue": true}},
		{"GET /shut", 503, map[string]any{"inWaitingRoom": true, "isRejectQueue": true, "refreshIntervalSeconds": 0.}},
		{"POST /.waiting-room/shut/tickets", 503, map[string]any{"inWaitingRoom": true, "queueingMethod": "reject"}},
		{"GET /full", 503, map[string]any{"inWaitingRoom": true, "queueIsFull": true, "refreshIntervalSeconds": 30.}},
		{"GET /draining", 503, map[string]any{"inWaitingRoom": true, "queueIsFull": true}},
		{"POST /.waiting-room/admitted/tickets", 201, map[string]any{"inWaitingRoom": false, "waitTimeKnown": false}},
		{"GET /paused", 202, map[string]any{"inWaitingRoom": true, "queueAll": true}},
	} {
		a := b.call(row.request, asJSON).code(t, row.status)
		got := a.cloudflare(t)
		for name, want := range row.want {
			if got[name] != want {
				t.Errorf("%s: %s is %v, want %v: %s", row.request, name, got[name], want, a.body)
			}
		}
	}
}

// An expired ticket that gets no successor still has the object.
func TestCompat_ExpiredWithoutANewTicket(t *testing.T) {
	t.Parallel()
	full := policy(0)
	full.Capacity = 1
	b, _ := one(t, Room{ID: "sale", Policy: full, Compat: CompatCloudflare})
	old := "X-Waiting-Room-Token: " + b.call("POST /.waiting-room/sale/tickets").code(t, 201).field("token")
	if err := b.queue("sale").Reset(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the room takes a ticket again", func() bool { return b.call("POST /.waiting-room/sale/tickets").status == 201 })
	eventually(t, "the old ticket has expired", func() bool {
		return b.call("GET /.waiting-room/sale/status", old).code(t, 200).field("state") == "expired"
	})
	eventually(t, "the queue is full", func() bool { return b.queue("sale").Snapshot().Waiting >= 1 })
	if got := b.call("GET /.waiting-room/sale/status", old).code(t, 200).cloudflare(t); got["inWaitingRoom"] != true || got["queueIsFull"] != true {
		t.Errorf("%v", got)
	}
}

// compat_status replaces the status of an API client that waits, whatever its method, and nothing else.
func TestCompatStatus_ReplacesTheStatusOfThoseWhoWait(t *testing.T) {
	t.Parallel()
	b, _ := one(t, Room{ID: "sale", Policy: policy(0), Compat: CompatCloudflare, CompatStatus: 200, PageStatus: 429},
		Room{ID: "shut", Paths: []string{"/shut"}, Policy: shut(policy(1)), Compat: CompatCloudflare, CompatStatus: 200},
		Room{ID: "plain", Paths: []string{"/plain"}, Policy: policy(0)})
	for _, row := range []struct {
		request, accept string
		status          int
		object          bool
	}{
		{"GET /", asJSON, 200, true},
		{"HEAD /", asJSON, 200, false},
		{"POST /", asJSON, 200, true},
		{"GET /", asPage, 429, false},
		{"GET /", "Accept: image/png", 503, false},
		{"POST /.waiting-room/sale/tickets", asJSON, 201, true},
		{"GET /shut", asJSON, 503, true},
		{"GET /plain", asJSON, 202, false},
		{"GET /.waiting-room/sale/status", asJSON, 401, false},
	} {
		a := b.call(row.request, row.accept).code(t, row.status)
		if strings.Contains(a.body, `"cfWaitingRoom"`) != row.object {
			t.Errorf("%s, %s: %s", row.request, row.accept, a.text())
		}
	}
}

// A check of another proxy is never answered with compat_status: the proxy would take 200 for a pass.
func TestCompatStatus_IsNotThatOfACheck(t *testing.T) {
	t.Parallel()
	c := startChecked(t, Options{Rooms: []Room{{ID: "sale", Policy: policy(0), Compat: CompatCloudflare, CompatStatus: 200}}})
	if got := c.ask("GET /seats", asJSON).code(t, 401).cloudflare(t); got["inWaitingRoom"] != true {
		t.Errorf("%v", got)
	}
}

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// An event closes a room and opens it again by itself; visitors and operators know beforehand, operators have the last word,
// and what is planned changes with SIGHUP.
func TestPlan_EventClosesAndOpensRoom(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	hour := time.Now().UTC().Truncate(time.Second).Add(time.Hour)
	at := func(moment time.Time) string { return moment.UTC().Format(time.RFC3339) }
	plan := func(from, to time.Time) setup {
		return setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}",
			fmt.Sprintf("events: [{name: break, starts_at: %q, ends_at: %q, method: reject}, {name: later, starts_at: %q, ends_at: %q, rate: 7}]",
				at(from), at(to), at(hour.Add(2*time.Hour)), at(hour.Add(3*time.Hour))))}}
	}
	g := start(t, plan(hour, hour.Add(time.Hour)))
	c, o := newClient(t, g), adminOf(t, g)
	type event struct{ Name string }
	events := func() (current, next event) {
		var r struct {
			Event     event `json:"event"`
			NextEvent event `json:"next_event"`
		}
		if err := json.Unmarshal([]byte(o.get("rooms/sale").body), &r); err != nil {
			t.Fatal(err)
		}
		return r.Event, r.NextEvent
	}
	waits := c.join(g)
	if waits.State != "waiting" || !strings.HasPrefix(waits.ClosesAt, strings.TrimSuffix(at(hour), "Z")) {
		t.Fatalf("before the event: %+v", waits)
	}
	if current, next := events(); current.Name != "" || next.Name != "break" {
		t.Errorf("before: %v, next %v", current, next)
	}
	// It is brought forward, and comes by itself.
	begin := time.Now().Add(4 * time.Second)
	g.reload(plan(begin, hour.Add(time.Hour)))
	until(t, "the event closes the room", func() bool { return c.get(g, "/").code == http.StatusServiceUnavailable })
	a := c.get(g, "/").problem(http.StatusServiceUnavailable, "room_closed")
	if time.Now().Before(begin.Truncate(time.Second)) {
		t.Error("the room is closed before the event")
	}
	if !strings.Contains(a.body, `"opens_at":"`+strings.TrimSuffix(at(hour.Add(time.Hour)), "Z")) {
		t.Errorf("closed: %s", a.body)
	}
	if got := c.poll(g, waits.Token); got.State != "rejected" || got.OpensAt == "" {
		t.Errorf("who waits: %+v", got)
	}
	if current, next := events(); current.Name != "break" || next.Name != "later" {
		t.Errorf("during: %v, next %v", current, next)
	}
	o.patch("rooms/sale", `{"method":"fifo"}`).want(http.StatusOK)
	until(t, "an operator's word counts", func() bool { return c.poll(g, waits.Token).State == "waiting" })
	o.patch("rooms/sale", `{"method":null}`).want(http.StatusOK)
	until(t, "it is taken back", func() bool { return c.poll(g, waits.Token).State == "rejected" })
	end := time.Now().Add(4 * time.Second)
	g.reload(plan(begin, end))
	until(t, "it opens again", func() bool {
		got := c.poll(g, waits.Token)
		return got.State == "waiting" && got.Position != nil && *got.Position == 1
	})
	if time.Now().Before(end.Truncate(time.Second)) {
		t.Error("the room is open before the event has ended")
	}
	o.patch("rooms/sale", `{"method":"lottery"}`).want(http.StatusUnprocessableEntity)
}

// Events begin and end while the store is away, and a reload counts; when it is back nothing of it was forgotten.
func TestPlan_ContinuesWithoutStore(t *testing.T) {
	t.Parallel()
	wait := 15 * time.Second
	for !planWithoutStoreIn(t, wait) {
		if wait *= 2; wait > 2*time.Minute {
			t.Fatal("this machine is too slow for the store to be away before the events")
		}
	}
}

// planWithoutStoreIn starts the events after a delay; it returns false if the store was not away by then.
func planWithoutStoreIn(t *testing.T, wait time.Duration) bool {
	t.Helper()
	site, store := newOrigin(t, nil), redistest.Server(t)
	turn := time.Now().UTC().Truncate(time.Second).Add(wait)
	at := func(d time.Duration) string { return turn.Add(d).Format(time.RFC3339) }
	config := func(opening string) setup {
		return setup{origin: site.URL, rooms: []string{
			fmt.Sprintf("{id: closing, paths: [/closing], admission: {rate: 0}, events: [{starts_at: %q, ends_at: %q, method: reject}]}", at(0), at(time.Hour)),
			fmt.Sprintf("{id: opening, paths: [/opening], admission: {rate: 0}, %sevents: [{starts_at: %q, ends_at: %q, method: reject}]}", opening, at(-time.Hour), at(0)),
			fmt.Sprintf("{id: through, paths: [/through], admission: {rate: 0}, events: [{starts_at: %q, ends_at: %q, method: passthrough}]}", at(0), at(time.Hour)),
		}}.withRedisFor(store.URL(), "1s")
	}
	g := start(t, config(""))
	c := newClient(t, g)
	answers := func() string {
		return fmt.Sprint(c.get(g, "/closing").code, c.get(g, "/opening").code, c.get(g, "/through").code)
	}
	until(t, "it is as before the events", func() bool { return answers() == "202 503 202" || !time.Now().Before(turn) })
	store.Stop()
	each := func(message string) bool {
		for _, room := range []string{"closing", "opening", "through"} {
			if !strings.Contains(g.text(), fmt.Sprintf(`"msg":%q,"room":%q`, message, room)) {
				return false
			}
		}
		return true
	}
	until(t, "the store is away", func() bool { return each("store unavailable") })
	if !time.Now().Before(turn) {
		store.Cont()
		return false
	}
	until(t, "they begin and end while the store is away", func() bool { return answers() == "503 202 200" })
	g.rewrite(config("on_store_error: closed, ").yaml())
	g.signal(sighup)
	until(t, "a reload counts while the store is away", func() bool { return answers() == "503 503 200" })
	c.get(g, "/opening").problem(http.StatusServiceUnavailable, "store_unavailable")
	store.Cont()
	until(t, "each room has it again", func() bool { return each("store is back") })
	until(t, "it is as it was", func() bool { return answers() == "503 202 200" })
	return true
}

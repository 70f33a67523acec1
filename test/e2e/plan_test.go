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
func TestAnEventClosesAndOpensTheRoom(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	begin := time.Now().UTC().Truncate(time.Second)
	at := func(s int) string { return begin.Add(time.Duration(s) * time.Second).Format(time.RFC3339) }
	s := setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}",
		fmt.Sprintf("events: [{name: break, starts_at: %q, ends_at: %q, method: reject}, {name: later, starts_at: %q, ends_at: %q, rate: 7}]", at(8), at(14), at(3600), at(7200)))}}
	g := start(t, s)
	c, o := newClient(t, g), adminOf(t, g)
	type event struct{ Name string }
	plan := func() (current, next event) {
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
	if waits.State != "waiting" || !strings.HasPrefix(waits.ClosesAt, strings.TrimSuffix(at(8), "Z")) {
		t.Fatalf("before the event: %+v", waits)
	}
	if current, next := plan(); current.Name != "" || next.Name != "break" {
		t.Errorf("before: %v, next %v", current, next)
	}
	until(t, "the event closes the room", func() bool { return c.get(g, "/").code == http.StatusServiceUnavailable })
	a := c.get(g, "/").problem(http.StatusServiceUnavailable, "room_closed")
	if !strings.Contains(a.body, `"opens_at":"`+strings.TrimSuffix(at(14), "Z")) {
		t.Errorf("closed: %s", a.body)
	}
	if got := c.poll(g, waits.Token); got.State != "rejected" || got.OpensAt == "" {
		t.Errorf("who waits: %+v", got)
	}
	if current, next := plan(); current.Name != "break" || next.Name != "later" {
		t.Errorf("during: %v, next %v", current, next)
	}
	o.patch("rooms/sale", `{"method":"fifo"}`).want(http.StatusOK)
	until(t, "an operator's word counts", func() bool { return c.poll(g, waits.Token).State == "waiting" })
	o.patch("rooms/sale", `{"method":null}`).want(http.StatusOK)
	until(t, "it opens again", func() bool {
		got := c.poll(g, waits.Token)
		return got.State == "waiting" && got.Position != nil && *got.Position == 1 && time.Now().After(begin.Add(14*time.Second))
	})
	o.patch("rooms/sale", `{"method":"lottery"}`).want(http.StatusUnprocessableEntity)
}

// Events begin and end while the store is away, and a reload counts; when it is back nothing of it was forgotten.
func TestThePlanGoesOnWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	site, store := newOrigin(t, nil), redistest.Server(t)
	turn := time.Now().UTC().Truncate(time.Second).Add(15 * time.Second)
	at := func(d time.Duration) string { return turn.Add(d).Format(time.RFC3339) }
	config := func(opening string) setup {
		return setup{origin: site.URL, rooms: []string{
			fmt.Sprintf("{id: closing, paths: [/closing], admission: {rate: 0}, events: [{starts_at: %q, ends_at: %q, method: reject}]}", at(0), at(time.Hour)),
			fmt.Sprintf("{id: opening, paths: [/opening], admission: {rate: 0}, %sevents: [{starts_at: %q, ends_at: %q, method: reject}]}", opening, at(-time.Hour), at(0)),
			fmt.Sprintf("{id: through, paths: [/through], admission: {rate: 0}, events: [{starts_at: %q, ends_at: %q, method: passthrough}]}", at(0), at(time.Hour)),
		}}.withRedis(store.URL())
	}
	g := start(t, config(""))
	c := newClient(t, g)
	answers := func() string {
		return fmt.Sprint(c.get(g, "/closing").code, c.get(g, "/opening").code, c.get(g, "/through").code)
	}
	until(t, "it is as before the events", func() bool { return answers() == "202 503 202" })
	store.Stop()
	until(t, "the store is away", func() bool { return strings.Count(g.text(), `"msg":"store unavailable"`) == 3 })
	if !time.Now().Before(turn) {
		t.Fatal("this machine is too slow for the store to be away before the events")
	}
	until(t, "they begin and end while the store is away", func() bool { return answers() == "503 202 200" })
	g.rewrite(config("on_store_error: closed, ").yaml())
	g.signal(sighup)
	until(t, "a reload counts while the store is away", func() bool { return answers() == "503 503 200" })
	c.get(g, "/opening").problem(http.StatusServiceUnavailable, "store_unavailable")
	store.Cont()
	until(t, "each room has it again", func() bool { return strings.Count(g.text(), `"msg":"store is back"`) == 3 })
	if got := answers(); got != "503 202 200" {
		t.Errorf("afterwards: %s", got)
	}
}

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/freeport"
	"github.com/anteroom/anteroom/internal/redistest"
)

// A gateway is killed while a crowd waits and started again on the same files: no visitor loses a place.
func TestGatewayKilled_KeepsPlaces(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(8, 8))}})
	crowd := sendCrowd(t, g, 80, nil)
	crowd.waitInside(25)
	before := crowd.snapshot()
	g.kill()
	g.restart()
	places := crowd.wait(80, 8, 8)
	repeats(t, places[:10])
	// Passes from before the kill are valid.
	for _, p := range before[:5] {
		p.client.get(g, "/", headers{"X-Waiting-Room-Pass": p.pass}).want(http.StatusOK)
	}
}

// The embedded store is killed while a crowd waits: the gateway starts it again, and no visitor loses a place.
func TestStoreKilled_KeepsPlaces(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(8, 8))}})
	crowd := sendCrowd(t, g, 80, nil)
	crowd.waitInside(25)
	if err := syscall.Kill(g.redisPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	repeats(t, crowd.wait(80, 8, 8)[:10])
}

// The store loses all data while a crowd waits. All visitors who poll soon have their old order again.
func TestStoreEmptied_KeepsPlaces(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	store := redistest.Server(t)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(5, 5), "session: {ttl: 1m}")}}.withRedis(store.URL()))
	crowd := sendCrowd(t, g, 90, nil)
	crowd.waitInside(20)
	if err := store.Client().FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	var emptied time.Time
	if at, err := store.Client().Time(context.Background()).Result(); err == nil {
		emptied = at
	} else {
		t.Fatal(err)
	}
	before := crowd.inside()
	// Admissions continue after the visitors at the front have polled.
	until(t, "the next are let in", func() bool { return crowd.inside() > before+8 })
	crowd.group.Wait()
	// A visitor who was admitted just before the loss, and had not polled since, waits again, because only the store had the admission.
	var after []place
	for _, p := range crowd.places {
		if p.at.After(emptied) {
			after = append(after, p)
		}
	}
	checkOrder(t, after)
	for i := range crowd.places {
		if !crowd.places[i].at.After(emptied) {
			crowd.places[i].ord = 0
		}
	}
	crowd.wait(90, 5, 5)
	if crowd.joined > 90 {
		t.Errorf("%d places were given to 90 visitors", crowd.joined)
	}
}

// The store loses its scripts: requests do not fail.
func TestStore_ScriptFlush(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	store := redistest.Server(t)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}}.withRedis(store.URL()))
	c := newClient(t, g)
	s := c.join(g)
	if err := store.Client().ScriptFlush(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	c.join(g)
	if now := c.poll(g, s.Token); now.State != "waiting" || now.Position == nil || *now.Position != 1 {
		t.Errorf("%+v", now)
	}
}

// With the store away at the start the gateway serves by on_store_error and logs this; it recovers when the store replies.
func TestStore_DownAtStart(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	dead := freeport.Address(t)
	s := setup{origin: site.URL, rooms: []string{
		"{id: sale, paths: [/sale], admission: {rate: 50, burst: 50}}",
		"{id: shut, paths: [/shut], on_store_error: closed, admission: {rate: 50, burst: 50}}",
		"{id: free, paths: [/free], on_store_error: open, admission: {rate: 50, burst: 50}}",
		"{id: own, paths: [/own], on_store_error: local, admission: {rate: 2, burst: 2}}",
	}}.withRedis("redis://" + dead)
	s.alone = true
	g := start(t, s)
	o, c := adminOf(t, g), newClient(t, g)
	until(t, "it is ready without its store", func() bool { return o.ask(http.MethodGet, "/readyz", "").code == http.StatusOK })
	o.ask(http.MethodGet, "/healthz", "").want(http.StatusOK)
	until(t, "store_up is 0", func() bool { return o.metric("anteroom_store_up 0") })
	until(t, "the log says how it serves", func() bool { return strings.Contains(g.text(), "on_store_error") })

	waiting := c.get(g, "/sale").want(http.StatusAccepted).waits("waiting").status()
	second := c.join(g)
	c.get(g, "/shut").problem(http.StatusServiceUnavailable, "store_unavailable").has(headers{"Retry-After": "*"})
	c.ask(g, http.MethodPost, "/.waiting-room/shut/tickets", "").problem(http.StatusServiceUnavailable, "store_unavailable")
	newBrowser(t, g).get(g, "/shut", asBrowser).want(http.StatusServiceUnavailable).has(headers{"Content-Type": "text/html*", "Retry-After": "*"})
	free := c.get(g, "/free").want(http.StatusOK)
	// local: the gateway's own bucket, which starts empty.
	began, in := time.Now(), 0
	until(t, "local lets somebody in", func() bool { return c.get(g, "/own").code == http.StatusOK })
	for range 10 {
		if c.get(g, "/own").code == http.StatusOK {
			in++
		}
	}
	if most := 2 + 2*time.Since(began).Seconds(); float64(in+1) > most {
		t.Errorf("local let %d in where %.1f may come, rate 2, burst 2", in+1, most)
	}
	for _, token := range []string{waiting.Token, second.Token} {
		if s := c.poll(g, token); s.State != "waiting" {
			t.Errorf("a poll without the store: %+v", s)
		}
	}
	// A pass that was signed without the store is valid without the store.
	if pass := free.header.Get("X-Waiting-Room-Pass"); pass != "" {
		c.get(g, "/free/more", headers{"X-Waiting-Room-Pass": pass}).want(http.StatusOK)
	}

	_, port, _ := strings.Cut(dead, ":")
	redistest.Server(t, "--port", port)
	for _, token := range []string{waiting.Token, second.Token} {
		until(t, "those who came before the store are let in", func() bool {
			s := c.poll(g, token)
			if s.State == "expired" {
				t.Fatalf("a place was lost: %+v", s)
			}
			return s.Pass != ""
		})
	}
	until(t, "newcomers are let in at once again", func() bool { return c.get(g, "/shut").code == http.StatusOK })
	// Each room detects on its own that the store is away.
	until(t, "store_up is 1", func() bool {
		return strings.Contains(o.ask(http.MethodGet, "/metrics", "").body, "anteroom_store_up 1\n")
	})
}

// The store hangs: passes work, waiting visitors keep their page, no ticket expires, and admissions continue afterwards.
func TestStore_Hangs(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	store := redistest.Server(t)
	s := setup{origin: site.URL, rooms: []string{room("admission: {rate: 1, burst: 1}")}}.withRedisFor(store.URL(), "1s")
	g := start(t, s)
	c := newClient(t, g)
	pass := c.get(g, "/").want(http.StatusOK).header.Get("X-Waiting-Room-Pass")
	o := adminOf(t, g)
	o.post("rooms/sale/pause", "").want(http.StatusOK)
	var tokens []string
	until(t, "ten wait", func() bool {
		if s := c.join(g); s.State == "waiting" {
			tokens = append(tokens, s.Token)
		}
		return len(tokens) == 10
	})
	o.rooms("sale", func(r roomInfo) bool { return r.Waiting == 10 })

	store.Stop()
	for i, token := range tokens {
		s := c.poll(g, token) // the response arrives while the store hangs
		if s.State != "waiting" || s.Position == nil || *s.Position != int64(i+1) {
			t.Errorf("number %d, while the store hangs: %v", i+1, s)
		}
	}
	for range 20 {
		c.get(g, "/shop", headers{"X-Waiting-Room-Pass": pass}).want(http.StatusOK)
	}
	c.get(g, "/").want(http.StatusAccepted).waits("waiting") // wait: the ticket is enrolled later
	o.ask(http.MethodGet, "/readyz", "").want(http.StatusOK)
	if r := o.room("sale"); r.Waiting != 10 {
		t.Errorf("the room for operators while the store hangs: %+v", r)
	}
	store.Cont()
	o.rooms("sale", func(r roomInfo) bool { return r.Waiting >= 10 })
	until(t, "the room goes on", func() bool { return o.post("rooms/sale/resume", "").code == http.StatusOK })
	places := make([]place, len(tokens))
	for i, token := range tokens {
		_, w := decode(t, token)
		until(t, fmt.Sprintf("number %d is let in", i+1), func() bool {
			s := c.poll(g, token)
			if s.State == "expired" || s.State == "ended" {
				t.Fatalf("number %d lost the place: %v", i+1, s)
			}
			if s.Pass == "" {
				return false
			}
			at, err := time.Parse(time.RFC3339Nano, s.AdmittedAt)
			if err != nil {
				t.Fatal(err)
			}
			places[i] = place{ord: w.Ord, at: at, admittedAt: s.AdmittedAt}
			return true
		})
	}
	checkOrder(t, places)
	checkRate(t, places, 1, 1)
}

// A gateway whose Redis has never replied exits with 0.
func TestSIGTERM_WithoutStore(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, alone: true, rooms: []string{room(admission(5, 5))}}.withRedis("redis://"+freeport.Address(t)))
	g.signal(syscall.SIGTERM)
	if code := g.wait(); code != 0 {
		t.Errorf("ended with %d", code)
	}
}

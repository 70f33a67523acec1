package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// A crowd of 200 is admitted at the rate of the room, in order. Claims can be repeated.
func TestCrowd_AdmittedAtRateInOrder(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ visitors, rate, burst int }{{200, 20, 20}, {60, 5, 5}} {
		t.Run(fmt.Sprintf("%d at %d", row.visitors, row.rate), func(t *testing.T) {
			t.Parallel()
			site := newOrigin(t, nil)
			g := start(t, setup{origin: site.URL, rooms: []string{room(admission(row.rate, row.burst))}})
			places := sendCrowd(t, g, row.visitors, nil).wait(row.visitors, float64(row.rate), float64(row.burst))
			repeats(t, places)
			// Their passes are good.
			for _, p := range places[:min(10, len(places))] {
				p.client.get(g, "/shop", headers{"X-Waiting-Room-Pass": p.pass}).want(http.StatusOK)
			}
		})
	}
}

// Positions are 1 to n in the order of the tokens, and shrink.
func TestPositions_ExactAtFront(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}})
	const n = 30
	var tokens []string
	c := newClient(t, g)
	for i := range n {
		s := c.join(g)
		tokens = append(tokens, s.Token)
		if s.State != "waiting" || s.Position == nil || *s.Position != int64(i+1) {
			t.Fatalf("joined as number %d: %v", i+1, s)
		}
	}
	exact := func() bool {
		for i, token := range tokens {
			s := c.poll(g, token)
			if s.Position == nil || *s.Position != int64(i+1) || *s.Waiting != n {
				return false
			}
		}
		return true
	}
	until(t, "every position is exact", exact)
}

// With min_wait no visitor is admitted before that time.
func TestMinWait_IsFloor(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 100, burst: 100, min_wait: 3s}")}})
	newBrowser(t, g).get(g, "/", asBrowser).want(http.StatusOK).waits("waiting")
	if len(site.Requests()) > 0 {
		t.Error("somebody reached the origin at once")
	}
	for _, p := range sendCrowd(t, g, 10, nil).wait(10, 100, 100) {
		if waited := p.at.Sub(time.UnixMicro(p.ord)); waited < 3*time.Second {
			t.Errorf("admitted after %s", waited)
		}
	}
}

// At most max_active visitors are admitted and active; each that ends admits the next.
func TestMaxActive_Holds(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 100, burst: 100, max_active: 3}")}})
	c := newClient(t, g)
	var sids []string
	for range 3 {
		s := c.join(g)
		if s.State != "admitted" {
			t.Fatalf("want three let in at once: %+v", s)
		}
		_, pass := decode(t, s.Pass)
		sids = append(sids, pass.Sid)
	}
	fourth := c.join(g)
	if fourth.State != "waiting" {
		t.Fatalf("a fourth was let in: %+v", fourth)
	}
	adminOf(t, g).rooms("sale", func(r roomInfo) bool { return r.Active == 3 && r.Waiting == 1 })
	adminOf(t, g).post("rooms/sale/sessions/"+sids[0]+"/revoke", "").want(http.StatusNoContent)
	until(t, "the fourth is let in when one has gone", func() bool {
		s := c.poll(g, fourth.Token)
		return s.State == "admitted" || s.State == "active"
	})
	if s := c.join(g); s.State != "waiting" {
		t.Errorf("a fifth was let in: %+v", s)
	}
}

// The queue holds at most queue.capacity visitors.
func TestCapacity(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}", "queue: {capacity: 5}")}})
	c := newClient(t, g)
	for range 5 {
		c.join(g)
	}
	// It may overshoot by a few seconds of arrivals.
	until(t, "the line is full", func() bool {
		return c.ask(g, http.MethodPost, "/.waiting-room/sale/tickets", "").code == http.StatusServiceUnavailable
	})
	c.ask(g, http.MethodPost, "/.waiting-room/sale/tickets", "").problem(http.StatusServiceUnavailable, "room_full").waits("rejected")
	c.get(g, "/").problem(http.StatusServiceUnavailable, "room_full")
	newBrowser(t, g).get(g, "/", asBrowser).waits("rejected").has(headers{"Content-Type": "text/html*"})
}

// A leaky bucket admits visitors one after another, a fixed window at most its number in an aligned second, and head_window at most
// its number in one tick.
func TestStrategies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		admission string
		most      int // at one moment
		a         time.Duration
		within    int // at most so many within an aligned time a
	}{
		{"strategy: leaky_bucket, rate: 8", 5, 2 * time.Second, 8*2 + 5},
		{"strategy: fixed_window, rate: 5", 5, time.Second, 5},
		{"rate: 1000, burst: 1000, head_window: 2, min_wait: 1s", 2, time.Second, 2 * 6},
	} {
		t.Run(row.admission, func(t *testing.T) {
			t.Parallel()
			site := newOrigin(t, nil)
			g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {" + row.admission + "}")}})
			adminOf(t, g).post("rooms/sale/pause", "").want(http.StatusOK)
			c := sendCrowd(t, g, 30, nil)
			adminOf(t, g).rooms("sale", func(r roomInfo) bool { return r.Waiting == 30 })
			adminOf(t, g).post("rooms/sale/resume", "").want(http.StatusOK)
			c.waitInside(30)
			moments, windows := map[int64]int{}, map[int64]int{}
			for _, p := range c.snapshot() {
				moments[p.at.UnixMicro()]++
				windows[p.at.UnixMicro()/row.a.Microseconds()]++
			}
			for at, n := range moments {
				if n > row.most {
					t.Errorf("%d admitted at %d", n, at)
				}
			}
			for at, n := range windows {
				if n > row.within {
					t.Errorf("%d admitted within %s at %d", n, row.a, at)
				}
			}
		})
	}
}

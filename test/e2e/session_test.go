package e2e

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The next request of an admitted visitor is forwarded to the origin, and its response sets the pass.
func TestClaim_WithGatedRequest(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}})
	b, c := newBrowser(t, g), newClient(t, g)
	b.get(g, "/", asBrowser).waits("waiting")
	ticket := c.join(g).Token
	adminOf(t, g).patch("rooms/sale", `{"rate":100,"burst":100}`).want(http.StatusOK)
	until(t, "the browser's next look is the site", func() bool {
		return b.get(g, "/seats?row=7", asBrowser).want(http.StatusOK).header.Get("X-Origin") != ""
	})
	if b.cookie(g, "wr_sale_pass") == "" || site.last().URI != "/seats?row=7" {
		t.Errorf("the pass is missing, or the request was changed: %+v", site.last())
	}
	// A POST of an API client with its ticket in a header goes through too, body and all.
	until(t, "the client's POST goes through", func() bool {
		a := c.ask(g, http.MethodPost, "/order", "seat=1", headers{"Cookie": "wr_sale_ticket=" + ticket, "Accept": "application/json"})
		return a.header.Get("X-Origin") != ""
	})
	if r := site.last(); r.Method != http.MethodPost || r.Body != "seat=1" {
		t.Errorf("the origin got %+v", r)
	}
}

// A session that an operator or the origin has revoked cannot be claimed again with its ticket.
func TestClaim_RevokedSessionIsRefused(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"the operator", "the origin"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			site := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/bye" {
					w.Header().Set("X-Waiting-Room-Command", "revoke")
				}
				_, _ = io.WriteString(w, "site")
			})
			g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}})
			o, b := adminOf(t, g), newBrowser(t, g)
			b.get(g, "/", asBrowser).waits("waiting")
			ticket := b.cookie(g, "wr_sale_ticket")
			o.patch("rooms/sale", `{"rate":100}`).want(http.StatusOK)
			until(t, "it is in", func() bool { return b.get(g, "/", asBrowser).header.Get("X-Origin") != "" })
			_, pass := decode(t, b.cookie(g, "wr_sale_pass"))
			o.patch("rooms/sale", `{"rate":0}`).want(http.StatusOK)
			o.rooms("sale", func(r roomInfo) bool { return strings.Contains(toJSON(r.Policy), `"rate":0,`) })
			if by == "the origin" {
				b.get(g, "/bye", asBrowser).want(http.StatusOK)
			} else {
				o.post("rooms/sale/sessions/"+pass.Sid+"/revoke", "").want(http.StatusNoContent)
			}
			until(t, "it is out", func() bool { return b.get(g, "/", asBrowser).header.Get("X-Origin") == "" })
			for range 3 {
				b.get(g, "/", asBrowser).waits("waiting")
			}
			s := b.get(g, "/.waiting-room/sale/status", headers{"Cookie": "", "X-Waiting-Room-Token": ticket}).want(http.StatusOK).status()
			if s.Pass != "" || s.State == "active" || s.State == "admitted" {
				t.Errorf("the old ticket: %v", s)
			}
			b.ask(g, http.MethodPost, "/.waiting-room/sale/claim", "", headers{"X-Waiting-Room-Token": ticket}).want(http.StatusGone)
		})
	}
}

// Without renewal a session ends session.ttl after its pass was signed, and its ticket makes no other session.
func TestSession_EndsWithoutRenewal(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0.001, burst: 1}", "session: {ttl: 2s, renew: false}")}})
	c := newClient(t, g)
	a := c.get(g, "/").want(http.StatusOK)
	pass := headers{"X-Waiting-Room-Pass": a.header.Get("X-Waiting-Room-Pass")}
	until(t, "the pass has expired", func() bool {
		a := c.get(g, "/", pass)
		if a.header.Get("X-Waiting-Room-Pass") != "" {
			t.Fatal("the pass was renewed")
		}
		return a.code == http.StatusAccepted
	})
}

// Without a script, the page and a reload are enough: cookies carry the place, and reloading claims it.
func TestCrowd_OnlyReloads(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(10, 10))}})
	const visitors = 40
	var group sync.WaitGroup
	var in atomic.Int64
	for range visitors {
		group.Go(func() {
			b := newBrowser(t, g)
			for {
				a, err := b.try(g, http.MethodGet, "/tickets", "", asBrowser)
				switch {
				case err != nil || a.code != http.StatusOK:
					t.Errorf("%v %d", err, a.code)
					return
				case a.header.Get("X-Origin") != "":
					in.Add(1)
					return
				}
				after, err := strconv.Atoi(a.header.Get("Retry-After"))
				if err != nil {
					t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
					return
				}
				select {
				case <-time.After(time.Duration(after) * time.Second):
				case <-t.Context().Done():
					return
				}
			}
		})
	}
	group.Wait()
	sessions := map[string]bool{}
	for _, r := range site.Requests() {
		sessions[r.Header.Get("X-Waiting-Room-Session")] = true
	}
	if in.Load() != visitors || len(sessions) != visitors {
		t.Errorf("%d of %d are in, with %d sessions", in.Load(), visitors, len(sessions))
	}
	adminOf(t, g).rooms("sale", func(r roomInfo) bool { return r.Waiting == 0 && r.Admitted == 0 && r.Active == visitors })
}

// Operators' requests may omit Content-Type.
func TestOperators_ContentTypeIsOptional(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(5, 5))}})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://"+g.admin+"/admin/v1/rooms/sale", strings.NewReader(`{"rate":7}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("PATCH without a content type: %d", resp.StatusCode)
	}
}

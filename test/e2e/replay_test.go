package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Two hundred clients claim one admitted ticket at the same time at two gateways. One client receives the session, the others receive
// the problem claimed, and no other visitor loses a place.
func TestClaim_OneOfTwoHundredClients(t *testing.T) {
	t.Parallel()
	_, a, b := fleet(t, room("admission: {rate: 0}"))
	both := []*gateway{a, b}
	c := newClient(t, a, b)
	ticket := c.join(a).Token
	adminOf(t, a).patch("rooms/sale", `{"rate":100}`).want(http.StatusOK)
	until(t, "the ticket is admitted", func() bool { return adminOf(t, a).room("sale").Admitted == 1 })

	const clients = 200
	codes, sessions := map[int]int{}, map[string]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range clients {
		all.Go(func() {
			<-begin
			got, err := newClient(t).try(both[i%2], http.MethodPost, "/.waiting-room/sale/claim", "", headers{
				"X-Waiting-Room-Token": ticket, "User-Agent": fmt.Sprint("client ", i),
			})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			codes[got.code]++
			if got.code == http.StatusOK {
				_, claims := decode(t, got.status().Pass)
				sessions[claims.Sid] = true
			}
		})
	}
	close(begin)
	all.Wait()
	if want := map[int]int{http.StatusOK: 1, http.StatusGone: clients - 1}; !maps.Equal(codes, want) || len(sessions) != 1 {
		t.Errorf("answers %v, want %v; sessions %v", codes, want, sessions)
	}
	until(t, "one session counts", func() bool { r := adminOf(t, b).room("sale"); return r.Active == 1 && r.Admitted == 0 })
}

// An invalid pass is neither renewed nor accepted, in whatever header it is sent.
func TestPass_InvalidIsNotRenewed(t *testing.T) {
	t.Parallel()
	site, g, _ := fleet(t, "{id: sale, paths: [/sale], admission: {rate: 0}, session: {ttl: 10m}}", "{id: vip, paths: [/vip], admission: {rate: 0.001, burst: 2}}")
	c := newClient(t, g)
	pass := c.get(g, "/vip").want(http.StatusOK).header.Get("X-Waiting-Room-Pass")
	header, claims := parts(t, pass)
	revoked := c.get(g, "/vip", headers{"User-Agent": "another"}).want(http.StatusOK).header.Get("X-Waiting-Room-Pass")
	_, session := decode(t, revoked)
	adminOf(t, g).post("rooms/vip/sessions/"+session.Sid+"/revoke", "").want(http.StatusNoContent)
	ticket := c.join(g).Token
	soon := time.Now().Unix() + 60 // past half its life, so that a valid pass would be renewed
	past := time.Now().Unix() - 60
	before := len(site.Requests())
	for name, bad := range map[string]string{
		"expired":        forge(header, with(claims, "exp", past), signingSecret),
		"another secret": forge(header, with(claims, "exp", soon), strings.Repeat("another-secret-", 3)),
		"another room's": forge(header, with(claims, "exp", soon), signingSecret),
		"edited":         pass[:len(pass)-20] + strings.Repeat("A", 20),
		"a ticket":       ticket,
		"not a token":    "x.y.z",
	} {
		for _, h := range []headers{{"X-Waiting-Room-Pass": bad}, {"Cookie": "wr_sale_pass=" + bad}, {"Cookie": "wr_sale_pass=" + bad + "; wr_sale_pass=" + bad}} {
			a := c.get(g, "/sale", h).want(http.StatusAccepted)
			if got := a.header.Get("X-Waiting-Room-Pass"); got != "" || strings.Contains(strings.Join(a.header.Values("Set-Cookie"), "\n"), "_pass=") {
				t.Errorf("%s is renewed: %v", name, a.header)
			}
		}
	}
	until(t, "the revocation is known", func() bool {
		return c.get(g, "/vip", headers{"X-Waiting-Room-Pass": revoked}).code == http.StatusAccepted
	})
	if a := c.get(g, "/vip", headers{"X-Waiting-Room-Pass": revoked}).want(http.StatusAccepted); a.header.Get("X-Waiting-Room-Pass") != "" {
		t.Errorf("a revoked session is renewed: %v", a.header)
	}
	for _, r := range site.Requests()[before:] {
		if r.URI == "/sale" {
			t.Errorf("a bad pass reached the site: %v", r)
		}
	}
}

// A shared pass is one session. The operator can bind it, without ending a session, and can limit its requests over both gateways.
func TestPass_Shared(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	rooms := func(guard string) []string { return []string{room("admission: {rate: 0.001, burst: 1}", guard)} }
	s := setup{origin: site.URL, rooms: rooms("guard: {requests_per_session: ''}")}
	g := start(t, s)
	mine, thief := newClient(t, g), newClient(t, g)
	mine.ip, thief.ip = "203.0.113.7", "198.51.100.9"
	first := mine.get(g, "/").want(http.StatusOK).header.Get("X-Waiting-Room-Pass")
	waits := mine.join(g)
	for range 3 {
		thief.get(g, "/", headers{"X-Waiting-Room-Pass": first}).want(http.StatusOK)
	}
	if n := adminOf(t, g).room("sale").Active; n > 1 {
		t.Errorf("%d sessions count, want 1", n)
	}

	s.store, s.more = ownStore(g.dir), "tokens: {bind: ip}\n"
	g.rewrite(s.yaml())
	g.signal(sighup)
	var pass string
	until(t, "the pass is bound", func() bool {
		pass = mine.get(g, "/", headers{"X-Waiting-Room-Pass": first}).want(http.StatusOK).header.Get("X-Waiting-Room-Pass")
		return pass != ""
	})
	thief.get(g, "/", headers{"X-Waiting-Room-Pass": pass}).want(http.StatusAccepted)
	mine.get(g, "/", headers{"X-Waiting-Room-Pass": pass}).want(http.StatusOK)
	st := mine.poll(g, waits.Token)
	if *st.Position != 1 || st.Token == "" {
		t.Errorf("who waited before: %v", st)
	}
	thief.get(g, "/.waiting-room/sale/status", headers{"X-Waiting-Room-Token": st.Token}).problem(http.StatusUnauthorized, "token_bound")
	thief.get(g, "/.waiting-room/sale/events", headers{"X-Waiting-Room-Token": st.Token}).problem(http.StatusUnauthorized, "token_bound")

	s.rooms = rooms("guard: {requests_per_session: 5/1h}")
	g.rewrite(s.yaml())
	g.signal(sighup)
	var last answer
	until(t, "the session has made its requests", func() bool {
		last = mine.get(g, "/", headers{"X-Waiting-Room-Pass": pass})
		return last.code != http.StatusOK
	})
	last.problem(http.StatusTooManyRequests, "session_requests")
	if last.header.Get("Retry-After") == "" {
		t.Error("it is not told when to come again")
	}
	until(t, "the refusal is counted", func() bool { return adminOf(t, g).metric(`anteroom_session_requests_refused_total{room="sale"} 1`) })
	s.rooms = rooms("guard: {requests_per_session: ''}")
	g.rewrite(s.yaml())
	g.signal(sighup)
	until(t, "the session goes on", func() bool { return mine.get(g, "/", headers{"X-Waiting-Room-Pass": pass}).code == http.StatusOK })
}

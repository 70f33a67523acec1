package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// fleet starts two gateways on one store.
func fleet(t *testing.T, rooms ...string) (site *origin, a, b *gateway) {
	t.Helper()
	site = newOrigin(t, nil)
	s := setup{origin: site.URL, rooms: rooms}.withRedis(redistest.Server(t).URL())
	return site, start(t, s), start(t, s)
}

// Two gateways serve one room: rate and order hold over both, whichever gateway a visitor polls.
func TestFleet_TwoGatewaysShareRoom(t *testing.T) {
	t.Parallel()
	_, a, b := fleet(t, room(admission(10, 10)))
	both := []*gateway{a, b}
	// Each visitor changes gateways with every request.
	places := sendCrowd(t, nil, 100, func(visitor, try int) *gateway { return both[(visitor+try)%2] }).wait(100, 10, 10)
	for i := range places[:20] {
		p := &places[i]
		if p.gateway == a { // admitted by one gateway, valid at the other
			p.gateway = b
		} else {
			p.gateway = a
		}
		p.client.get(p.gateway, "/", headers{"X-Waiting-Room-Pass": p.pass}).want(http.StatusOK)
	}
	repeats(t, places[:20])
}

func TestFleet_TicketValidAtEveryGateway(t *testing.T) {
	t.Parallel()
	_, a, b := fleet(t, room("admission: {rate: 0}"))
	c := newClient(t, a, b)
	first, second := c.join(a), c.join(b)
	for _, g := range []*gateway{a, b} {
		until(t, "the places are the same everywhere", func() bool {
			one, two := c.poll(g, first.Token), c.poll(g, second.Token)
			return one.Position != nil && *one.Position == 1 && two.Position != nil && *two.Position == 2
		})
	}
	// A live change at one is in force at the other within a second.
	began := time.Now()
	adminOf(t, a).patch("rooms/sale", `{"message":"Hello from A"}`).want(http.StatusOK)
	until(t, "B tells A's message", func() bool { return *c.poll(b, second.Token).Message == "Hello from A" })
	t.Logf("told after %s", time.Since(began))
	adminOf(t, b).patch("rooms/sale", `{"rate":100,"burst":100}`).want(http.StatusOK)

	// A claim at one, the status at the other.
	var claimed status
	until(t, "the first can claim at A", func() bool {
		got := c.ask(a, http.MethodPost, "/.waiting-room/sale/claim", "", headers{"Authorization": "Bearer " + first.Token})
		if got.code == http.StatusConflict {
			return false
		}
		claimed = got.want(http.StatusOK).status()
		return true
	})
	if claimed.State != "admitted" || claimed.Pass == "" {
		t.Errorf("the claim: %+v", claimed)
	}
	var again status
	// A gateway checks a ticket at most once a second.
	until(t, "B knows of the claim", func() bool { again = c.poll(b, first.Token); return again.Pass != "" })
	_, one := decode(t, claimed.Pass)
	_, two := decode(t, again.Pass)
	if again.State != "active" || again.AdmittedAt != claimed.AdmittedAt || one.Sid != two.Sid {
		t.Errorf("claimed at A: %+v, status at B: %+v", claimed, again)
	}
	// A revoked session is over at both within a second.
	adminOf(t, a).post("rooms/sale/sessions/"+one.Sid+"/revoke", "").want(http.StatusNoContent)
	for _, g := range []*gateway{a, b} {
		until(t, "the session is over", func() bool {
			// The visitor has to wait, or is admitted with another session.
			got := c.get(g, "/", headers{"X-Waiting-Room-Pass": claimed.Pass})
			return got.code == http.StatusAccepted || got.want(http.StatusOK).header.Get("X-Waiting-Room-Pass") != ""
		})
	}
}

// The origin revokes a session at one gateway; the session ends at the others within a second.
func TestFleet_RevocationReachesEveryGateway(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bye" {
			w.Header().Set("X-Waiting-Room-Command", "revoke")
		}
	})
	s := setup{origin: site.URL, rooms: []string{room("admission: {rate: 0.001, burst: 1}")}}.withRedis(redistest.Server(t).URL())
	a, b := start(t, s), start(t, s)
	c := newClient(t, a, b)
	pass := headers{"X-Waiting-Room-Pass": c.get(a, "/").want(http.StatusOK).header.Get("X-Waiting-Room-Pass")}
	c.get(b, "/", pass).want(http.StatusOK)
	c.get(a, "/bye", pass).want(http.StatusOK)
	c.get(a, "/", pass).want(http.StatusAccepted)
	until(t, "B knows", func() bool { return c.get(b, "/", pass).code == http.StatusAccepted })
}

// A session revoked while the store hangs has ended at every gateway when the store is back.
func TestFleet_RevocationAfterStoreOutage(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bye" {
			w.Header().Set("X-Waiting-Room-Command", "revoke")
		}
	})
	store := redistest.Server(t)
	s := setup{origin: site.URL, rooms: []string{room("admission: {rate: 0.001, burst: 1}")}}.withRedisFor(store.URL(), "1s")
	a, b := start(t, s), start(t, s)
	c := newClient(t, a, b)
	pass := headers{"X-Waiting-Room-Pass": c.get(a, "/").want(http.StatusOK).header.Get("X-Waiting-Room-Pass")}
	c.get(b, "/", pass).want(http.StatusOK)
	store.Stop()
	c.get(a, "/bye", pass).want(http.StatusOK)
	c.get(a, "/", pass).want(http.StatusAccepted)
	c.get(b, "/", pass).want(http.StatusOK) // B cannot have the revocation yet
	until(t, "A has noticed that the store is away", func() bool { return strings.Contains(a.text(), "store unavailable") })
	store.Cont()
	until(t, "B knows", func() bool { return c.get(b, "/", pass).code == http.StatusAccepted })
}

// One gateway dies; its visitors continue at the other.
func TestFleet_GatewayDies(t *testing.T) {
	t.Parallel()
	_, a, b := fleet(t, room(admission(8, 8)))
	dead := make(chan struct{})
	crowd := sendCrowd(t, nil, 60, func(visitor, _ int) *gateway {
		select {
		case <-dead:
			return b
		default:
			return []*gateway{a, b}[visitor%2]
		}
	})
	crowd.waitInside(20)
	a.kill()
	close(dead)
	crowd.wait(60, 8, 8)
}

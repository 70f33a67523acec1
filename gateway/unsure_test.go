package gateway

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/lua"
)

// The store admitted the visitor, and its reply was lost: the token of the join is for the session, which the next poll finds, also
// without cookies and by a client that keeps them.
func TestJoin_KeepsASessionWhoseReplyWasLost(t *testing.T) {
	rows := []struct {
		name, request string
		kept          bool
	}{
		{"with cookies", "POST /.waiting-room/sale/tickets", true},
		{"without cookies", "POST /.waiting-room/sale/tickets", false},
		{"by a call of the site", "GET /sale/seats", true},
		{"by a page", "GET /sale/seats\nAccept: text/html", true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			p := redistest.Proxy(t, redistest.SharedSocket(t))
			client, err := redisurl.Open("redis://"+p.Addr(), 500*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			b := startTicking(t, client, redistest.Prefix(t), calm, Options{
				Origins: []proxy.Config{originAt("shop", plainOrigin(t))}, Rooms: []Room{{ID: "sale", Policy: policy(10)}},
			})
			sha := []byte(lua.MustLoad().Script("room_enter").SHA)
			p.Drop(func(command []byte) bool { return bytes.Contains(command, sha) })
			joined := b.call(strings.Split(row.request, "\n")...)
			if p.Dropped() == 0 {
				t.Fatal("no reply was lost")
			}
			p.Heal()
			if joined.status >= 500 || len(joined.cookies) == 0 {
				t.Fatal(joined.text())
			}
			credentials := "Authorization: Bearer " + joined.field("token")
			if row.kept {
				credentials = joined.jar()
			}
			eventually(t, "the session of the join", func() bool {
				switch state := b.call("GET /.waiting-room/sale/status", credentials).field("state"); state {
				case "admitted", "active":
					return true
				case "ended":
					t.Fatal("the place became ended")
				}
				return false
			})
		})
	}
}

// A gateway that answers gave the key a session, and the response was lost. The client repeats its join at a gateway that is cut off: the
// ticket that it receives there is for the session.
func TestJoin_KeepsASessionOfItsKeyWithoutTheStore(t *testing.T) {
	p, prefix := redistest.Proxy(t, redistest.SharedSocket(t)), redistest.Prefix(t)
	client, err := redisurl.Open("redis://"+p.Addr(), 500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	options := Options{Origins: []proxy.Config{originAt("shop", plainOrigin(t))}, Rooms: []Room{{ID: "sale", Policy: policy(10)}}}
	reached, cut := startTicking(t, redistest.Client(t), prefix, calm, options), startTicking(t, client, prefix, calm, options)
	p.Cut()
	eventually(t, "the store is away", func() bool { return !cut.core.Up() })
	join := []string{"POST /.waiting-room/sale/tickets", "Idempotency-Key: 5f0c2b9e-8d1a-4b57-a3c6"}
	if lost := reached.call(join...); lost.field("state") != "admitted" {
		t.Fatal(lost.text())
	}
	repeated := cut.call(join...)
	if repeated.field("state") != "waiting" {
		t.Fatal(repeated.text())
	}
	p.Heal()
	eventually(t, "the session of the key", func() bool {
		state := cut.call("GET /.waiting-room/sale/status", repeated.jar()).field("state")
		if state == "ended" {
			t.Fatal("the place became ended")
		}
		return state == "active"
	})
}

// A visitor returned with an ended pass, and the response was lost. The repeated request finds the place admitted, and the reply to its
// claim is lost: the next poll has the session.
func TestReturn_KeepsASessionWhoseClaimWasLost(t *testing.T) {
	for name, accept := range map[string]string{"a page": asPage, "a call": asJSON} {
		t.Run(name, func(t *testing.T) {
			p := redistest.Proxy(t, redistest.SharedSocket(t))
			client, err := redisurl.Open("redis://"+p.Addr(), 500*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			b := startTicking(t, client, redistest.Prefix(t), calm, Options{
				Origins: []proxy.Config{originAt("shop", plainOrigin(t))}, Rooms: []Room{{ID: "sale", Policy: policy(1), MaxSession: time.Hour}},
			})
			over := agedPass(t, b.call("GET /", asJSON).code(t, 200), 6)
			if lost := b.call("GET /", accept, over); lost.cookies["wr_sale_ticket"] == "" {
				t.Fatal(lost.text())
			}
			b.rate("sale", 5)
			eventually(t, "the place is admitted", func() bool { return b.queue("sale").Snapshot().Admitted == 1 })
			sha := []byte(lua.MustLoad().Script("room_claim").SHA)
			p.Drop(func(command []byte) bool { return bytes.Contains(command, sha) })
			again := b.call("GET /", accept, over)
			if p.Dropped() == 0 || again.cookies["wr_sale_ticket"] == "" {
				t.Fatalf("%d replies were lost; %s", p.Dropped(), again.text())
			}
			p.Heal()
			eventually(t, "the session of the claim", func() bool {
				state := b.call("GET /.waiting-room/sale/status", again.jar()).field("state")
				if state == "ended" {
					t.Fatal("the place became ended")
				}
				return state == "admitted" || state == "active"
			})
		})
	}
}

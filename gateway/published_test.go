package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

// es256Key returns a new key for ES256.
func es256Key(t testing.TB, id string, active bool) token.Key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return token.Key{ID: id, Alg: token.ES256, Private: private, Active: active}
}

func ringOf(t testing.TB, keys ...token.Key) *token.Ring {
	t.Helper()
	r, err := token.NewRing("anteroom", keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestKeySet_IsCacheable(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	hs := token.Key{ID: "k1", Alg: token.HS256, Secret: testSecret}
	first, second := es256Key(t, "first", true), es256Key(t, "second", false)
	reload := func(keys ...token.Key) {
		t.Helper()
		o := b.o
		o.Ring = ringOf(t, keys...)
		if err := b.Reload(o); err != nil {
			t.Fatal(err)
		}
	}
	ids := func(a *response) (ids []string) {
		var set struct{ Keys []struct{ Kid string } }
		if err := json.Unmarshal([]byte(a.body), &set); err != nil {
			t.Fatal(err)
		}
		for _, k := range set.Keys {
			ids = append(ids, k.Kid)
		}
		return ids
	}
	const path = "/.waiting-room/jwks.json"
	b.call("GET "+path).is(t, `
200
Cache-Control: public, max-age=300
Content-Type: application/json
Etag: "`+strings.Trim(b.call("GET "+path).header.Get("Etag"), `"`)+`"
X-Content-Type-Options: nosniff

{"keys":[]}`)

	reload(hs, first)
	a := b.call("GET "+path, "Cookie: wr_sale_pass=x").code(t, 200)
	if got := ids(a); !slices.Equal(got, []string{"first"}) || len(a.cookies) > 0 || a.header.Get("Vary") != "" {
		t.Errorf("with a retired HS256 key: %s", a.text())
	}
	_, router := visitorAPI(t)
	conforms(t, router, a, "GET "+path)
	tag := a.header.Get("Etag")
	for _, condition := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
		for _, method := range []string{"GET ", "HEAD "} {
			if a := b.call(method+path, "If-None-Match: "+condition); a.status != 304 || a.body != "" || a.header.Get("Etag") != tag || a.header.Get("Cache-Control") != "public, max-age=300" || a.closed {
				t.Errorf("%sIf-None-Match: %s: %s", method, condition, a.text())
			}
		}
	}
	b.call("GET "+path, `If-None-Match: "other"`).code(t, 200)
	if a := b.call("HEAD "+path).code(t, 200); a.body != "" || a.header.Get("Etag") != tag {
		t.Errorf("HEAD: %s", a.text())
	}
	b.call("POST "+path).code(t, 405)

	// A new key is published before it signs, and a retired one while tokens that it has signed may be valid.
	reload(hs, first, second)
	a = b.call("GET "+path, "If-None-Match: "+tag).code(t, 200)
	first.Active, second.Active = false, true
	reload(hs, first, second)
	if later := b.call("GET " + path); !slices.Equal(ids(later), []string{"first", "second"}) || later.body != a.body || later.header.Get("Etag") != a.header.Get("Etag") {
		t.Errorf("before the switch %s\nafter it %s", a.text(), later.text())
	}
	reload(second)
	if got := ids(b.call("GET " + path)); !slices.Equal(got, []string{"second"}) {
		t.Errorf("after the first key was removed: %v", got)
	}
}

// revokedSessions returns the published list of a room: the end of each session by its id.
func revokedSessions(t testing.TB, a *response) map[string]int64 {
	t.Helper()
	var list struct {
		Room        string
		GeneratedAt time.Time `json:"generated_at"`
		Complete    bool
		Revoked     []struct {
			SID   string `json:"sid"`
			Until int64
		}
	}
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || list.Room != "sale" || !list.Complete || time.Since(list.GeneratedAt).Abs() > time.Minute {
		t.Fatalf("%v: %s", err, a.text())
	}
	ends := map[string]int64{}
	for _, s := range list.Revoked {
		ends[s.SID] = s.Until
	}
	return ends
}

func TestRevoked_ReachesEveryGateway(t *testing.T) {
	s := newSite(t, "shop", nil)
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	var gateways []*bench
	for range 2 {
		gateways = append(gateways, start(t, client, prefix, Options{
			Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(100), Renew: true, MaxSession: time.Hour, CORSOrigins: []string{"https://app.example"}}},
		}))
	}
	const path = "GET /.waiting-room/sale/revoked"
	before := gateways[0].call(path).code(t, 200)
	if got := revokedSessions(t, before); len(got) != 0 {
		t.Errorf("before the first revocation: %v", got)
	}
	var want []string
	for i := range 3 {
		pass := gateways[0].call("GET /", asJSON).code(t, 200).header.Get("X-Waiting-Room-Pass")
		p := readPass(t, pass, "sale")
		want = append(want, p.Session.String())
		if err := gateways[i%2].queue("sale").RevokeSession(t.Context(), "ann", admission.ID(p.Session)); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(want)
	for i, g := range gateways {
		began := time.Now()
		var last *response
		eventually(t, "the list has all sessions", func() bool {
			last = g.call(path, "Cookie: wr_sale_ticket=x").code(t, 200)
			return slices.Equal(slices.Sorted(maps.Keys(revokedSessions(t, last))), want)
		})
		t.Logf("gateway %d lists them after %v", i, time.Since(began))
		for id, until := range revokedSessions(t, last) {
			if left := until - time.Now().Unix(); left < 300 || left > 310 { // session.ttl and the leeway
				t.Errorf("gateway %d: %s until %d s from now", i, id, left)
			}
		}
		if len(last.cookies) > 0 || last.header.Get("Vary") != "Origin" || last.header.Get("Cache-Control") != "public, max-age=1" {
			t.Errorf("%s", last.text())
		}
		tag := last.header.Get("Etag")
		if tag == before.header.Get("Etag") {
			t.Error("the ETag is the one of the empty list")
		}
		if a := g.call(path, "If-None-Match: "+tag).code(t, 304); a.body != "" {
			t.Errorf("%s", a.text())
		}
		if a := g.call(path, "Origin: https://app.example").code(t, 200); a.header.Get("Vary") != "Origin" || a.header.Get("Access-Control-Allow-Origin") != "https://app.example" {
			t.Errorf("%s", a.text())
		}
	}
	gateways[0].call("POST /.waiting-room/sale/revoked").code(t, 405)
	gateways[0].call("GET /.waiting-room/none/revoked").code(t, 404)
}

// A request for the list needs no store, and the list is made once for each change, however many ask.
func TestRevoked_AsksNoStore(t *testing.T) {
	srv := redistest.Server(t)
	s := newSite(t, "shop", nil)
	b := start(t, srv.Client(), "wr", Options{Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(0)}}})
	const path = "GET /.waiting-room/sale/revoked"
	b.queue("sale").Revoke(admission.ID(randomID()))
	eventually(t, "the list has the session", func() bool { return len(revokedSessions(t, b.call(path))) == 1 })
	srv.Kill()
	eventually(t, "the store is known to be away", func() bool { return !b.core.Up() })
	b.queue("sale").Revoke(admission.ID(randomID()))
	eventually(t, "a session revoked during an outage is in the list", func() bool { return len(revokedSessions(t, b.call(path).code(t, 200))) == 2 })
	tag := b.call(path).header.Get("Etag")
	for range 100 {
		b.call(path, "If-None-Match: "+tag).code(t, 304)
	}
}

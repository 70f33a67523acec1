package gateway

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/client/clienttest"
	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/meter"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

const tickets = "POST /.waiting-room/sale/tickets"

// as returns the header field of an account, as the trusted proxy on loopback sends it.
func as(account string) string { return "X-Account: " + account }

func members(p admission.Policy) Room {
	return Room{ID: "sale", Policy: p, Renew: true, MaxSession: time.Hour, Identity: Identity{OnePlace: true, Header: "X-Account", LoginURL: "/login"}}
}

// fleetOf starts n gateways with the same rooms on one store.
func fleetOf(t testing.TB, n int, rooms ...Room) ([]*bench, *site) {
	t.Helper()
	s := newSite(t, "shop", nil)
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	var all []*bench
	for range n {
		all = append(all, start(t, client, prefix, Options{
			Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: rooms, TrustedProxies: loopback(),
		}))
	}
	return all, s
}

func waitingIn(t testing.TB, a *response) token.Waiting {
	t.Helper()
	w, err := testRing(t).VerifyWaiting([]byte(a.field("token")), "sale", time.Now().Unix())
	if err != nil {
		t.Fatalf("%v in %s", err, a.text())
	}
	return w
}

func bearing(a *response) string { return "X-Waiting-Room-Token: " + a.field("token") }

// Fifty devices of one account join at two gateways at the same time. They receive one place in the queue, and later one session.
func TestAccount_HasOnePlace(t *testing.T) {
	t.Parallel()
	p := policy(0)
	p.MaxActive = 3
	fleet, s := fleetOf(t, 2, members(p))
	const devices = 50
	answers := make([]*response, devices)
	var all sync.WaitGroup
	for i := range devices {
		all.Go(func() {
			a, err := fleet[i%2].try(tickets, as("ann"), fmt.Sprintf("User-Agent: device %d", i))
			if err != nil {
				t.Error(err)
				return
			}
			answers[i] = a
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	taken := 0
	for _, a := range answers {
		if a.status == 201 {
			taken++
		}
		if a.field("position") != "1" || a.field("joined_at") != answers[0].field("joined_at") || waitingIn(t, a).ID != waitingIn(t, answers[0]).ID {
			t.Fatalf("another place:\n%s\n%s", answers[0].text(), a.text())
		}
	}
	if taken != 1 {
		t.Errorf("%d responses have status 201, want 1", taken)
	}
	other := fleet[0].call(tickets, as("bob")).code(t, 201)
	eventually(t, "the queue has two tickets", func() bool { return fleet[0].queue("sale").Snapshot().Waiting == 2 })
	if waitingIn(t, other).ID == waitingIn(t, answers[0]).ID {
		t.Error("two accounts share a place")
	}

	for _, b := range fleet {
		reload(t, b, func(r *Room) { r.Policy.MinWait, r.Policy.Rate, r.Policy.Burst = 0, 100_000, 100_000 })
	}
	sessions := map[token.ID]bool{}
	passes := make([]string, devices)
	for i, a := range answers {
		all.Go(func() {
			eventually(t, "every device is admitted", func() bool {
				got, err := fleet[(i+1)%2].try("GET /.waiting-room/sale/status", as("ann"), bearing(a), fmt.Sprintf("User-Agent: device %d", i))
				if err != nil {
					return false
				}
				passes[i] = got.field("pass")
				return passes[i] != ""
			})
		})
	}
	all.Wait()
	for _, raw := range passes {
		if raw != "" {
			sessions[readPass(t, raw, "sale").Session] = true
		}
	}
	if len(sessions) != 1 {
		t.Errorf("%d sessions, want 1", len(sessions))
	}
	for i, raw := range passes {
		if a := fleet[i%2].call("GET /", "X-Waiting-Room-Pass: "+raw); !strings.HasPrefix(a.body, "shop GET /") {
			t.Fatalf("a device's pass: %s", a.text())
		}
	}
	eventually(t, "one session counts", func() bool { n := fleet[0].queue("sale").Snapshot().Active; return n == 1 })
	if n := len(s.requests()); n != devices {
		t.Errorf("%d requests reached the site, want %d", n, devices)
	}
	// Long after the claim, and without a ticket: the same session.
	late := fleet[1].call("GET /", as("ann"), asJSON).code(t, 200)
	if got := readPass(t, late.header.Get("X-Waiting-Room-Pass"), "sale"); !sessions[got.Session] {
		t.Errorf("another device has another session: %s", late.text())
	}
	// The ticket is useless to another account, and to a client without an account.
	for _, who := range [][]string{{as("bob")}, {}, {as("ann"), as("ann")}} {
		a := fleet[0].call(append([]string{"POST /.waiting-room/sale/claim", bearing(answers[0]), "User-Agent: thief"}, who...)...)
		if a.status != 410 && a.status != 401 {
			t.Errorf("%v with ann's ticket: %s", who, a.text())
		}
	}
}

// reload changes the rooms of a running gateway.
func reload(t testing.TB, b *bench, change func(*Room)) {
	t.Helper()
	o := b.o
	o.Rooms = append([]Room(nil), o.Rooms...)
	for i := range o.Rooms {
		change(&o.Rooms[i])
	}
	if err := b.Reload(o); err != nil {
		t.Fatal(err)
	}
	b.o = o
}

// A client without an account receives no ticket. A ticket stays valid after its holder logs out.
func TestAccount_IsRequiredForPlace(t *testing.T) {
	t.Parallel()
	fleet, s := fleetOf(t, 1, members(policy(0)))
	b := fleet[0]
	b.call(tickets).is(t, `
401
Cache-Control: no-store
Content-Type: application/problem+json
Vary: Cookie
Www-Authenticate: Bearer realm="account"
X-Content-Type-Options: nosniff
X-Waiting-Room: rejected

{"type":"urn:anteroom:problem:account_required","title":"Please log in","status":401,"detail":"Each account has one place in this queue. Log in on the site, then return to this page.","code":"account_required"}`)
	if a := b.call("GET /", asPage).code(t, 401); !strings.Contains(a.body, `<a href="/login">`) || strings.Contains(a.jar(), "ticket") {
		t.Errorf("%s", a.text())
	}
	for _, lines := range [][]string{{"X-Account:"}, {as("ann"), as("bob")}, {as(strings.Repeat("x", accountMax+1))}} {
		b.call(append([]string{"GET /", asJSON}, lines...)...).code(t, 401)
	}
	mine := b.call(tickets, as("ann")).code(t, 201)
	if a := b.call("GET /.waiting-room/sale/status", bearing(mine)).code(t, 200); a.field("position") != "1" {
		t.Errorf("logged out: %s", a.text())
	}
	if a := b.call("GET /.waiting-room/sale/status", as("bob"), bearing(mine)).code(t, 401); !strings.Contains(a.body, "token_account") {
		t.Errorf("%s", a.text())
	}
	bob := b.call("GET /", asJSON, as("bob"), "Cookie: wr_sale_ticket="+mine.field("token")).code(t, 202)
	if bob.field("position") != "2" {
		t.Errorf("bob with ann's ticket: %s", bob.text())
	}
	if n := len(s.requests()); n != 0 {
		t.Errorf("%d requests reached the site", n)
	}
}

// The account field is read only from a trusted proxy. From other clients it is neither used nor forwarded.
func TestAccountHeader_ForgedIsIgnored(t *testing.T) {
	t.Parallel()
	s := newSite(t, "shop", func(w http.ResponseWriter, r *http.Request) {
		named := []string{}
		for name, values := range r.Header {
			if http1.IsAlias([]byte(strings.ToLower(name)), "x-account") {
				named = append(named, values...)
			}
		}
		fmt.Fprintf(w, "%q %q", named, r.Header["X-Account-Kind"])
	})
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)},
		Rooms:   []Room{members(policy(0)), {ID: "open", Paths: []string{"/open"}, Policy: policy(5)}},
	})
	b.call(tickets, as("ann")).code(t, 401)
	if a := b.call("GET /open", as("ann"), "x_account: ann", "X.Account: ann", "x~account: ann", "X-Account-Kind: free", asJSON).code(t, 200); a.body != `[] ["free"]` {
		t.Errorf("the site received %s", a.body)
	}
	o := b.o
	o.TrustedProxies = loopback()
	if err := b.Reload(o); err != nil {
		t.Fatal(err)
	}
	if a := b.call("GET /open", as("ann"), "x_account: eve", "X.Account: eve", asJSON).code(t, 200); a.body != `["ann"] []` {
		t.Errorf("behind a trusted proxy the site received %s", a.body)
	}
}

// A visitor who logs in while waiting keeps the place, which then belongs to the account.
func TestAccount_LoginKeepsPlace(t *testing.T) {
	t.Parallel()
	r := members(policy(0))
	r.Identity.Anonymous = true
	fleet, _ := fleetOf(t, 2, r)
	b := fleet[0]
	first := b.call(tickets).code(t, 201)
	b.call(tickets).code(t, 201)
	in := b.call("GET /.waiting-room/sale/status", as("ann"), bearing(first)).code(t, 200)
	w := waitingIn(t, in)
	if in.field("position") != "1" || in.field("joined_at") != first.field("joined_at") || !w.Account || w.ID == waitingIn(t, first).ID {
		t.Errorf("%s", in.text())
	}
	if a := fleet[1].call(tickets, as("ann")).code(t, 200); waitingIn(t, a).ID != w.ID || waitingIn(t, a).Order != w.Order {
		t.Errorf("the other device: %s", a.text())
	}
	// The former ticket is spent: it admits no other client, and no other account can adopt it.
	if a := fleet[1].call("GET /.waiting-room/sale/status", bearing(first)); a.field("state") != "ended" {
		t.Errorf("the former ticket: %s", a.text())
	}
	if a := b.call(tickets, as("eve"), bearing(first)).code(t, 201); a.field("position") != "3" {
		t.Errorf("eve with ann's former ticket: %s", a.text())
	}
	// An account that already has a place keeps that place.
	second := b.call(tickets).code(t, 201)
	if a := b.call("GET /.waiting-room/sale/status", as("ann"), bearing(second)).code(t, 200); waitingIn(t, a).ID != w.ID || a.field("position") != "1" {
		t.Errorf("ann with another browser's ticket: %s", a.text())
	}
}

// The response to the poll with which a visitor logged in was lost: the next one, with the ticket from before the login, has the place of
// the account, as has a claim, and as long as the place is alive.
func TestAccount_LoginKeepsPlaceWhenItsResponseIsLost(t *testing.T) {
	t.Parallel()
	r := members(policy(0))
	r.Identity.Anonymous = true
	fleet, _ := fleetOf(t, 2, r)
	first := fleet[0].call(tickets).code(t, 201)
	poll := []string{"GET /.waiting-room/sale/status", as("ann"), bearing(first)}
	lost := fleet[0].call(poll...).code(t, 200)
	w := waitingIn(t, lost)
	for i, b := range fleet {
		if a := b.call(poll...).code(t, 200); a.field("state") != "waiting" || waitingIn(t, a).ID != w.ID || waitingIn(t, a).Order != w.Order {
			t.Errorf("gateway %d: %s", i, a.text())
		}
		if a := b.call("POST /.waiting-room/sale/claim", as("ann"), bearing(first)); a.status != 409 {
			t.Errorf("gateway %d: the claim: %s", i, a.text())
		}
		if a := b.call("GET /.waiting-room/sale/status", as("eve"), bearing(first)).code(t, 200); a.field("state") != "ended" {
			t.Errorf("gateway %d: another account: %s", i, a.text())
		}
	}
	fleet[0].call("DELETE /.waiting-room/sale/tickets", as("ann"), bearing(lost)).code(t, 204)
	for i, b := range fleet {
		if a := b.call(poll...).code(t, 200); a.field("state") != "ended" {
			t.Errorf("gateway %d after ann has left: %s", i, a.text())
		}
	}
}

// After its holder or an operator has ended a ticket, the account can take another.
func TestAccount_JoinsAgainAfterPlaceEnds(t *testing.T) {
	t.Parallel()
	fleet, _ := fleetOf(t, 1, members(policy(0)))
	b := fleet[0]
	seen := map[token.ID]bool{}
	for n := range 32 {
		a := b.call(tickets, as("ann")).code(t, 201)
		w := waitingIn(t, a)
		if seen[w.ID] {
			t.Fatal("an ended ticket was returned again")
		}
		seen[w.ID] = true
		b.call("GET /.waiting-room/sale/status", as("ann"), bearing(a)).code(t, 200)
		if n%2 == 0 {
			b.call("DELETE /.waiting-room/sale/tickets", as("ann"), bearing(a)).code(t, 204)
			continue
		}
		if err := b.core.Room("sale", b.o.Rooms[0].Policy).RemoveTicket(t.Context(), "ops", admission.ID(w.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if a := b.call(tickets, as("ann")).code(t, 429); !strings.Contains(a.body, "account_spent") {
		t.Errorf("%s", a.text())
	}
}

// Fifty accounts send one ticket from before the login at the same time. One of them adopts it.
func TestAccount_OneOfManyAdoptsTicket(t *testing.T) {
	t.Parallel()
	r := members(policy(0))
	r.Identity.Anonymous = true
	fleet, _ := fleetOf(t, 2, r)
	early := fleet[0].call(tickets).code(t, 201)
	fleet[0].call(tickets).code(t, 201)
	answers := make([]*response, 50)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			var err error
			if answers[i], err = fleet[i%2].try(tickets, as(fmt.Sprint("account ", i)), bearing(early)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	first := 0
	for _, a := range answers {
		if w := waitingIn(t, a); w.Account && w.Order == waitingIn(t, early).Order {
			first++
		}
	}
	if first != 1 {
		t.Errorf("%d accounts took over one place", first)
	}
}

// Turning one_place on or off keeps every visitor's place.
func TestReload_OnePlaceKeepsPlaces(t *testing.T) {
	t.Parallel()
	r := members(policy(0))
	r.Identity.OnePlace = false
	fleet, _ := fleetOf(t, 1, r)
	b := fleet[0]
	var waiting []*response
	for range 5 {
		waiting = append(waiting, b.call(tickets).code(t, 201))
	}
	reload(t, b, func(r *Room) { r.Identity.OnePlace = true })
	for i, a := range waiting {
		poll := []string{"GET /.waiting-room/sale/status", bearing(a)}
		if i != 2 { // a visitor who has not logged in keeps waiting
			poll = append(poll, as(fmt.Sprint("account ", i)))
		}
		next := b.call(poll...).code(t, 200)
		if next.field("position") != fmt.Sprint(i+1) {
			t.Errorf("number %d of the queue: %s", i+1, next.text())
		}
		if i != 2 {
			waiting[i] = next
		}
	}
	reload(t, b, func(r *Room) { r.Identity.OnePlace = false })
	for i, a := range waiting {
		if next := b.call("GET /.waiting-room/sale/status", bearing(a)).code(t, 200); next.field("position") != fmt.Sprint(i+1) {
			t.Errorf("number %d of the queue: %s", i+1, next.text())
		}
	}
}

// Keys are rotated in three steps, gateway by gateway. Each account keeps its place through the first two steps; accounts that joined
// after the switch keep it through the third.
func TestAccount_KeepsPlaceDuringKeyRotation(t *testing.T) {
	t.Parallel()
	fleet, _ := fleetOf(t, 2, members(policy(0)))
	k1, k2 := testSecret, []byte("Kx8vTq2Lw9-ZpR4mYb7NcUe1HsJdAfG0")
	with := func(b *bench, active []byte, others ...[]byte) {
		t.Helper()
		keys := append([][]byte{active}, others...)
		var ring []token.Key
		for i, k := range keys {
			id := "k1"
			if string(k) == string(k2) {
				id = "k2"
			}
			ring = append(ring, token.Key{ID: id, Alg: token.HS256, Secret: k, Active: i == 0})
		}
		o := b.o
		var err error
		if o.Ring, err = token.NewRing("anteroom", ring); err != nil {
			t.Fatal(err)
		}
		o.AccountKeys = keys
		if err := b.Reload(o); err != nil {
			t.Fatal(err)
		}
		b.o = o
	}
	ann := fleet[0].call(tickets, as("ann")).code(t, 201)
	same := func(b *bench, who string, first *response) {
		t.Helper()
		if a := b.call(tickets, as(who)).code(t, 200); a.field("joined_at") != first.field("joined_at") {
			t.Errorf("%s has another place: %s", who, a.text())
		}
		if a := b.call("GET /.waiting-room/sale/status", as(who), bearing(first)).code(t, 200); a.field("state") != "waiting" {
			t.Errorf("%s with the first device: %s", who, a.text())
		}
	}
	with(fleet[0], k1, k2)
	with(fleet[1], k1, k2)
	same(fleet[1], "ann", ann)
	with(fleet[0], k2, k1) // the other still signs with the former one
	same(fleet[0], "ann", ann)
	bob := fleet[0].call(tickets, as("bob")).code(t, 201)
	same(fleet[1], "bob", bob)
	eve := fleet[1].call(tickets, as("eve")).code(t, 201)
	same(fleet[0], "eve", eve)
	with(fleet[1], k2, k1)
	same(fleet[1], "ann", ann)
	same(fleet[1], "eve", eve)
	with(fleet[0], k2)
	same(fleet[0], "bob", bob)
	// docs/identity.md describes this effect of removing a key too early.
	if a := fleet[0].call(tickets, as("ann")).code(t, 201); a.field("joined_at") == ann.field("joined_at") {
		t.Errorf("by a removed key: %s", a.text())
	}
}

// Derived ids differ by kind, room and fields, wherever the boundary between two fields is.
func TestDerive_IDsDiffer(t *testing.T) {
	t.Parallel()
	v := &request{state: &state{options: Options{IDKey: testSecret}}, room: &room{id: "sale"}}
	seen := map[token.ID]string{}
	note := func(what string, id token.ID) {
		if before, taken := seen[id]; taken {
			t.Errorf("%s and %s have one id", before, what)
		}
		seen[id] = what
	}
	note("account ann", v.derive("account", []byte("ann")))
	note("account ann, nothing", v.derive("account", []byte("ann"), nil))
	note("account an, n", v.derive("account", []byte("an"), []byte("n")))
	note("account a, nn", v.derive("account", []byte("a"), []byte("nn")))
	note("key ann", v.derive("idempotency-key", []byte("ann")))
	v.room = &room{id: "sal"}
	note("room sal, account ann", v.derive("account", []byte("ann")))
	note("room sal, account eann", v.derive("account", []byte("eann")))
	v.state.options.IDKey = []byte(strings.Repeat("another key ", 3))
	note("another key, account ann", v.derive("account", []byte("ann")))
}

// life is a context that counts its children that have not ended.
type life struct {
	context.Context
	over     chan struct{}
	children atomic.Int64
}

func (l *life) Done() <-chan struct{} { return l.over }

func (l *life) AfterFunc(func()) (stop func() bool) { // whom context asks in place of waiting for Done
	l.children.Add(1)
	return func() bool { return l.children.Add(-1) >= 0 }
}

// A refused configuration leaves no key fetcher behind, and neither does a replaced one.
func TestReload_RefusedLeavesNoKeys(t *testing.T) {
	t.Parallel()
	core, err := admission.New(admission.Options{Client: redistest.Client(t), Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- core.Run(running) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	at := func(url string) Options {
		r := Room{ID: "sale", Policy: policy(0), Identity: Identity{OnePlace: true, JWKSURL: url, JWT: token.AccountRules{Claim: "sub"}}}
		return Options{
			Core: core, Ring: testRing(t), IDKey: testSecret, Rooms: []Room{r},
			Log: slog.New(slog.DiscardHandler), Origins: []proxy.Config{originAt("shop", "http://127.0.0.1:1")},
		}
	}
	o := at("")
	g, err := New(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.life.end()
	all := &life{Context: t.Context(), over: make(chan struct{})}
	g.life.ctx = all
	wrong := at("http://127.0.0.1:1/first")
	wrong.DefaultOrigin = "nobody"
	for range 3 {
		if err := g.Reload(wrong); err == nil {
			t.Fatal("a configuration with an unknown origin was accepted")
		}
	}
	if n := all.children.Load(); n != 0 {
		t.Errorf("configurations that were refused left %d contexts", n)
	}
	for _, path := range []string{"first", "second"} {
		if err := g.Reload(at("http://127.0.0.1:1/" + path)); err != nil {
			t.Fatal(err)
		}
		wrong.Rooms = append(at("http://127.0.0.1:1/"+path).Rooms, wrong.Rooms[0])
		if err := g.Reload(wrong); err == nil {
			t.Fatal("a configuration with an unknown origin was accepted")
		}
		if n := all.children.Load(); n != 1 {
			t.Errorf("%s: %d contexts, want that of the keys in force", path, n)
		}
	}
	if k := g.state.Load().keys["http://127.0.0.1:1/second"]; k.life.Err() != nil {
		t.Error("a configuration that was refused has ended the keys in force")
	}
}

// sitesKeys is a site that signs JWTs and serves the public half of its key.
func sitesKeys(t *testing.T) (url string, sign func(name string) string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	jwks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"d","x":%q}]}`, b64(public))
	}))
	t.Cleanup(jwks.Close)
	return jwks.URL, func(name string) string {
		text := b64([]byte(`{"alg":"EdDSA","kid":"d"}`)) + "." + b64(fmt.Appendf(nil, `{"sub":%q,"exp":%d}`, name, time.Now().Add(time.Hour).Unix()))
		return text + "." + b64(ed25519.Sign(private, []byte(text)))
	}
}

func forgerOf(address string, kind byte) token.ID {
	return forgerID(&request{peer: client.Peer{Addr: netip.MustParseAddr(address)}}, kind)
}

// A signature check is expensive. For an address that sends wrong signatures the gateway checks only a few a second; accounts that it
// has verified before are not affected.
func TestAccount_ForgedJWTsAreLimited(t *testing.T) {
	t.Parallel()
	url, sign := sitesKeys(t)
	fleet, _ := fleetOf(t, 1, Room{ID: "sale", Policy: policy(0), Identity: Identity{OnePlace: true, JWKSURL: url, JWTCookie: "site", JWT: token.AccountRules{Claim: "sub"}}})
	b := fleet[0]
	ann := sign("ann")
	b.call(tickets, "Authorization: Bearer "+ann).code(t, 201)
	// After a forged JWT no other is checked; after a JWT of another issuer the next one is.
	b.call(tickets, "Authorization: Bearer "+ann[:len(ann)-8]+"AAAAAAAA", "Cookie: site="+ann).code(t, 401)
	b.call(tickets, "Authorization: Bearer e30.e30.e30", "Cookie: site="+ann).code(t, 200)
	loopback := forgerOf("127.0.0.1", forgedToken)
	if b.meters.forgeries.Exhausted(loopback, 0, meter.Quota{N: 1, Per: time.Hour}, 1) == 0 {
		t.Error("a forged token is not counted")
	}
	b.meters.forgeries.Take(loopback, time.Hour, forgeryQuota, 1) // as if an hour's allowance were used up
	checked := metrics.Value(b.metrics.RejectedAccounts["signature"])
	for range 3 {
		a := b.call(tickets, "Authorization: Bearer "+sign("bob")).code(t, 503)
		if a.field("code") != "accounts_unavailable" {
			t.Error(a.text())
		}
	}
	if n := metrics.Value(b.metrics.RejectedAccounts["signature"]); n != checked || metrics.Value(b.metrics.RejectedAccounts["forger"]) != 3 {
		t.Errorf("%d signatures were checked, want none", n-checked)
	}
	b.call(tickets, "Authorization: Bearer "+ann).code(t, 200)
}

// Of the JWTs in a request at most two are checked: first the one in Authorization, then the cookies in their order.
func TestSiteTokens_ReturnsAtMostTwo(t *testing.T) {
	i := &identified{Identity: Identity{JWTCookie: "s"}}
	for _, row := range []struct {
		fields [][2]string
		want   string
	}{
		{[][2]string{{"Cookie", "s=1; t=2; s=3; s=4; s=5; s=6"}}, "1 3"},
		{[][2]string{{"Cookie", "s=1; s=2; s=3"}, {"Cookie", "s=4"}, {"Authorization", "Bearer a"}}, "a 1"},
		{[][2]string{{"Cookie", "t=1; s="}, {"Cookie", `s="4"`}}, "4"},
		{nil, ""},
	} {
		r := &request{req: clienttest.Request(t, "GET", "192.0.2.1", row.fields...)}
		if got := string(bytes.Join(r.siteTokens(i), []byte(" "))); got != row.want {
			t.Errorf("%q: %q are checked, want %q", row.fields, got, row.want)
		}
	}
}

package gateway

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/gateway/meter"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/gateway/permit"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/dialect"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

// steps returns a room in which the seats and every POST and DELETE need a permit.
func steps(admits int64) Room {
	return Room{ID: "sale", Paths: []string{"/shop", "/seatmap", "~^/x/"}, Policy: policy(admits), Permits: []Step{{Paths: []string{"/seatmap"}}, {Methods: []string{"POST", "DELETE"}}}}
}

const permitsPath = "POST /.waiting-room/sale/permits"

// permitBody returns the body of a request for a permit.
func permitBody(path, method string) string {
	return `{"for":"` + path + `","method":"` + method + `"}`
}

// passOf returns the header line of a pass of a session.
func (b *bench) passOf(session token.ID) string {
	b.t.Helper()
	return "X-Waiting-Room-Pass: " + b.passFor(b.t, session, BindNone, nil)
}

// permitOf returns the header line of a permit of a session.
func (b *bench) permitOf(session token.ID, path, method string) string {
	b.t.Helper()
	return "X-Waiting-Room-Permit: " + b.call(permitsPath, b.passOf(session), "", permitBody(path, method)).code(b.t, 201).field("permit")
}

func TestPermit_OpensStep(t *testing.T) {
	b, s := one(t, steps(0))
	session := randomID()
	pass := b.passOf(session)
	b.call("GET /seatmap/812", pass).is(t, `
403
Cache-Control: no-store
Content-Type: application/problem+json
Vary: Cookie
X-Content-Type-Options: nosniff

{"type":"urn:anteroom:problem:permit_required","title":"This step needs a permit","status":403,"detail":"This step needs a permit of this session for exactly this path and method. POST /.waiting-room/sale/permits {\"for\":\"<path>\",\"method\":\"<method>\"} with the pass, and send the permit as X-Waiting-Room-Permit within 60 seconds.","code":"permit_required"}`)
	page := b.call("GET /seatmap/812", pass, asPage).code(t, 403)
	if !strings.Contains(page.body, `href="/shop"`) || !strings.Contains(page.body, "Go back to the page that leads here") {
		t.Errorf("the page has no way out: %s", page.text())
	}
	issued := b.call(permitsPath, pass, "", permitBody("/seatmap/812", "GET"))
	issued.is(t, `
201
Cache-Control: no-store
Content-Type: application/json
Set-Cookie: wr_sale_permit=JWT; Path=/; Max-Age=60; HttpOnly; SameSite=Strict
Vary: Cookie
X-Content-Type-Options: nosniff

{"permit":"JWT","for":"/seatmap/812","method":"GET","expires_at":"TIME"}`)
	permit := issued.field("permit")
	p, err := testRing(t).VerifyPermit([]byte(permit), "sale", time.Now().Unix())
	if err != nil || p.Session != session || p.Path != "/seatmap/812" || p.Method != "GET" || p.Expires-p.IssuedAt != 60 || p.Epoch == "" {
		t.Fatalf("the permit is %+v, %v", p, err)
	}
	if issued.cookies["wr_sale_permit"] != permit {
		t.Error("the cookie is not the permit")
	}
	b.call("GET /seatmap/812?row=7", pass, "X-Waiting-Room-Permit: "+permit).code(t, 200)
	b.call("GET /seatmap/812", pass, "Cookie: a=1; wr_sale_permit=old; wr_sale_permit="+permit).code(t, 200)
	b.call("GET /shop", pass).code(t, 200)
	want := []string{
		`GET /seatmap/812?row=7 session=true cookie="" body=""`, `GET /seatmap/812 session=true cookie="a=1" body=""`, `GET /shop session=true cookie="" body=""`,
	}
	if got := s.requests(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the origin received %q", got)
	}
	counts := b.state.Load().byID["sale"].metrics.Permits
	for result, n := range map[string]int64{"issued": 1, "accepted": 2, "missing": 2, "invalid": 0} {
		if got := metrics.Value(counts[result]); got != n {
			t.Errorf("permits_total{result=%q} is %d, want %d", result, got, n)
		}
	}
}

func TestPermit_OpensNothingElse(t *testing.T) {
	b, s := one(t, steps(0), Room{ID: "vip", Paths: []string{"/vip"}, Policy: policy(0), Permits: []Step{{Paths: []string{"/vip"}}}})
	session := randomID()
	pass := b.passOf(session)
	get, post := b.permitOf(session, "/seatmap/812", "GET"), b.permitOf(session, "/shop/cart", "POST")
	now := time.Now().Unix()
	signed := func(p token.Permit) string {
		p.ID, p.Session = randomID(), session
		return "X-Waiting-Room-Permit: " + string(testRing(t).AppendPermit(nil, &p))
	}
	foreign, err := token.NewRing("anteroom", []token.Key{{ID: "k1", Alg: token.HS256, Secret: []byte("another-Kx8vTq2Lw9-ZpR4mYb7NcUe1"), Active: true}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name  string
		lines []string
		code  string
		want  string
	}{
		{"another path", []string{"GET /seatmap/813", pass, get}, "permit_invalid", "The permit is for another path."},
		{"a path below", []string{"GET /seatmap/812/", pass, get}, "permit_invalid", "another path"},
		{"another case", []string{"GET /SEATMAP/812", pass, get}, "permit_invalid", "another path"},
		{"another method", []string{"HEAD /seatmap/812", pass, get}, "", ""},
		{"POST", []string{"POST /seatmap/812", pass, get}, "permit_invalid", "The permit is for another method."},
		{"a rule in another case", []string{"post /shop/cart", pass}, "permit_required", ""},
		{"another session", []string{"GET /seatmap/812", b.passOf(randomID()), get}, "permit_invalid", "The permit belongs to another session."},
		{"no permit", []string{"POST /shop/cart", pass}, "permit_required", "POST /.waiting-room/sale/permits"},
		{"an overridden method", []string{"POST /shop/cart", pass, post, "X-HTTP-Method-Override: DELETE"}, "permit_invalid", "overrides the method"},
		{"an overridden method that no rule names", []string{"GET /shop/cart", pass, "X-HTTP-Method-Override: DELETE"}, "permit_required", ""},
		{"an alias of the override", []string{"GET /shop/cart", pass, "X-Method-Override: DELETE"}, "permit_required", ""},
		{"a path with two readings", []string{"GET /seatmap//812", pass, get}, "permit_invalid", "several ways"},
		{"a dot segment", []string{"GET /seatmap/./812", pass, get}, "permit_invalid", "several ways"},
		{"an escaped digit", []string{"GET /seatmap/%38%31%32", pass, get}, "permit_invalid", "several ways"},
		{"parameters", []string{"GET /seatmap/812;v=1", pass, get}, "permit_invalid", "several ways"},
		{"one of whose readings is the step", []string{"GET /shop/..%2fseatmap/812", pass}, "permit_required", ""},
		{"a pass", []string{"GET /seatmap/812", pass, strings.Replace(pass, "Pass", "Permit", 1)}, "permit_invalid", "not a valid permit"},
		{"expired", []string{"GET /seatmap/812", pass, signed(token.Permit{Room: "sale", Path: "/seatmap/812", Method: "GET", IssuedAt: now - 66, Expires: now - 6})}, "permit_invalid", "expired"},
		{"of another room", []string{"GET /seatmap/812", pass, signed(token.Permit{Room: "vip", Path: "/seatmap/812", Method: "GET", IssuedAt: now, Expires: now + 60})}, "permit_invalid", ""},
		{"of a longer life", []string{"GET /seatmap/812", pass, signed(token.Permit{Room: "sale", Path: "/seatmap/812", Method: "GET", IssuedAt: now, Expires: now + 61})}, "permit_invalid", ""},
		{"of another key", []string{"GET /seatmap/812", pass, "X-Waiting-Room-Permit: " + string(foreign.AppendPermit(nil, &token.Permit{Room: "sale", Session: session, Path: "/seatmap/812", Method: "GET", IssuedAt: now, Expires: now + 60}))}, "permit_invalid", ""},
		// Clients send the permits of other steps too, so their signatures, which are expensive to check, are not checked.
		{"of another key and step", []string{"GET /seatmap/812", pass, "X-Waiting-Room-Permit: " + string(foreign.AppendPermit(nil, &token.Permit{Room: "sale", Session: session, Path: "/seatmap/1", Method: "GET", IssuedAt: now, Expires: now + 60}))}, "permit_invalid", "another path"},
	} {
		a := b.call(row.lines...)
		if a.status != 403 || row.code != "" && a.field("code") != row.code || !strings.Contains(a.body, row.want) {
			t.Errorf("%s: %s", row.name, a.text())
		}
	}
	b.call("GET /seatmap/812", strings.Replace(get, "Permit", "Pass", 1), asJSON).code(t, 202) // a permit is no pass
	b.call("GET /.waiting-room/sale/status", strings.Replace(get, "Permit", "Token", 1)).code(t, 401)
	if n := len(s.requests()); n != 0 {
		t.Errorf("the origin received %q", s.requests())
	}
	b.call("POST /shop/cart", pass, post).code(t, 200)
}

// A permit opens exactly its session, path and method, whatever path it was requested for.
func TestPermit_OpensExactlyOneStep(t *testing.T) {
	room := steps(0)
	room.Permits = []Step{{Paths: []string{"/"}}}
	room.Paths = []string{"/"}
	b, _ := one(t, room)
	sessions := []token.ID{randomID(), randomID()}
	passes := []string{b.passOf(sessions[0]), b.passOf(sessions[1])}
	segment := rapid.SampledFrom([]string{"a", "A", "b", "%7E", "~", "%2d", "-", "%c3%a9", "%C3%A9", "%41", ".", "..", "", "a;b", "%2f", "%25", "+"})
	methods := rapid.SampledFrom([]string{"GET", "POST", "PUT", "HEAD"})
	// canonical decodes paths independently of the gateway.
	canonical := strings.NewReplacer("%7E", "~", "%2d", "-", "%c3%a9", "é", "%C3%A9", "é")
	ambiguous := func(path string) bool {
		for _, s := range strings.Split(strings.TrimSuffix(path[1:], "/"), "/") {
			if s == "." || s == ".." || s == "" && path != "/" || strings.ContainsAny(s, ";") || strings.Contains(s, "%41") || strings.Contains(s, "%2f") {
				return true
			}
		}
		return strings.HasSuffix(path, "//")
	}
	rapid.Check(t, func(rt *rapid.T) {
		path := func(name string) string {
			return "/" + strings.Join(rapid.SliceOfN(segment, 1, 2).Draw(rt, name), "/")
		}
		who, path1, method1 := rapid.IntRange(0, 1).Draw(rt, "session"), path("path"), methods.Draw(rt, "method")
		issued := b.call(permitsPath, passes[who], "", permitBody(path1, method1))
		if ambiguous(path1) {
			if issued.status != 422 || issued.field("field") != "for" {
				rt.Fatalf("%q: %s", path1, issued.text())
			}
			return
		}
		if issued.status != 201 {
			rt.Fatalf("%q: %s", path1, issued.text())
		}
		other, path2, method2 := rapid.IntRange(0, 1).Draw(rt, "used by"), path1, method1
		if rapid.Bool().Draw(rt, "another path") {
			path2 = path("used path")
		}
		if rapid.Bool().Draw(rt, "another method") {
			method2 = methods.Draw(rt, "used method")
		}
		used := b.call(method2+" "+path2, passes[other], "X-Waiting-Room-Permit: "+issued.field("permit"))
		opens := who == other && method1 == method2 && !ambiguous(path2) && canonical.Replace(path1) == canonical.Replace(path2)
		if opens != (used.status == 200) || !opens && used.status != 403 {
			rt.Fatalf("a permit of session %d for %s %s, used by %d for %s %s: %d", who, method1, path1, other, method2, path2, used.status)
		}
	})
}

func TestPermits_RefuseMistakes(t *testing.T) {
	b, _ := one(t, steps(1), Room{ID: "vip", Paths: []string{"/vip"}, Policy: policy(0)})
	pass := b.passOf(randomID())
	long := "/seatmap/" + strings.Repeat("x", 1020)
	for _, row := range []struct {
		name  string
		lines []string
		code  int
		want  string
	}{
		{"no body", []string{permitsPath, pass}, 422, "not a JSON object"},
		{"a list", []string{permitsPath, pass, "", "[]"}, 422, "not a JSON object"},
		{"cut off", []string{permitsPath, pass, "", `{"for":"/seatmap/1"`}, 422, "not a JSON object"},
		{"more after the object", []string{permitsPath, pass, "", permitBody("/seatmap/1", "GET") + "{}"}, 422, "not a JSON object"},
		{"no path", []string{permitsPath, pass, "", `{"method":"GET"}`}, 422, `"field":"for"`},
		{"no method", []string{permitsPath, pass, "", `{"for":"/seatmap/1"}`}, 422, `"field":"method"`},
		{"a number", []string{permitsPath, pass, "", `{"for":1,"method":"GET"}`}, 422, `"field":"for"`},
		{"null", []string{permitsPath, pass, "", `{"for":"/seatmap/1","method":null}`}, 422, `"field":"method"`},
		{"small letters", []string{permitsPath, pass, "", permitBody("/seatmap/1", "get")}, 422, `"field":"method"`},
		{"a query", []string{permitsPath, pass, "", permitBody("/seatmap/1?a=1", "GET")}, 422, "without query"},
		{"an address", []string{permitsPath, pass, "", permitBody("https://shop.test/seatmap/1", "GET")}, 422, `"field":"for"`},
		{"too long", []string{permitsPath, pass, "", permitBody(long, "GET")}, 422, `"field":"for"`},
		{"another member", []string{permitsPath, pass, "", `{"for":"/seatmap/1","method":"GET","sid":"x"}`}, 422, `"field":"sid"`},
		{"a member twice", []string{permitsPath, pass, "", `{"for":"/seatmap/1","method":"GET","for":"/seatmap/2"}`}, 422, "given twice"},
		{"a control character", []string{permitsPath, pass, "", permitBody("/seatmap/%0a", "GET")}, 422, "several ways"},
		{"another room's path", []string{permitsPath, pass, "", permitBody("/vip/1", "GET")}, 422, "does not belong to this room"},
		{"a path of no room", []string{permitsPath, pass, "", permitBody("/about", "GET")}, 422, "does not belong to this room"},
		{"the gateway's own path", []string{permitsPath, pass, "", permitBody("/.waiting-room/sale/status", "GET")}, 422, "does not belong to this room"},
		{"no pass", []string{permitsPath, "", permitBody("/seatmap/1", "GET")}, 401, "pass_required"},
		{"another room's pass", []string{"POST /.waiting-room/vip/permits", pass, "", permitBody("/vip/1", "GET")}, 401, "pass_required"},
		{"another site", []string{permitsPath, pass, "Origin: https://evil.example", "", permitBody("/seatmap/1", "GET")}, 403, "cross_site"},
		{"GET", []string{"GET /.waiting-room/sale/permits", pass}, 405, "method_not_allowed"},
		{"a large body", []string{permitsPath, pass, "", strings.Repeat(" ", 5000)}, 413, "body_too_large"},
	} {
		if a := b.call(row.lines...); a.status != row.code || !strings.Contains(a.body, row.want) {
			t.Errorf("%s: %s", row.name, a.text())
		}
	}
	session := token.ID{}
	copy(session[:], "revoked-revoked-")
	b.queue("sale").Revoke([16]byte(session))
	eventually(t, "the revocation is known", func() bool {
		return b.call(permitsPath, b.passOf(session), "", permitBody("/seatmap/1", "GET")).status == 401
	})
}

func TestPermits_HaveQuota(t *testing.T) {
	room := steps(0)
	room.SessionPermits = meter.Quota{N: 3, Per: time.Hour}
	room.SessionRequests = meter.Quota{N: 3, Per: time.Hour} // counted separately
	b, _ := one(t, room)
	session := randomID()
	pass := b.passOf(session)
	for range 3 {
		b.call(permitsPath, pass, "", permitBody("/seatmap/1", "GET")).code(t, 201)
	}
	over := b.call(permitsPath, pass, "", permitBody("/seatmap/1", "GET")).code(t, 429)
	if over.field("code") != "too_many_permits" || over.header.Get("Retry-After") == "" {
		t.Error(over.text())
	}
	for range 3 {
		b.call("GET /shop", pass).code(t, 200)
	}
	b.call(permitsPath, b.passOf(randomID()), "", permitBody("/seatmap/1", "GET")).code(t, 201)
}

// A request that is admitted immediately needs a permit too.
func TestStep_NeedsPermitWithoutPass(t *testing.T) {
	b, s := one(t, steps(20))
	in := b.call("GET /seatmap/1", asPage).code(t, 403)
	if in.cookies["wr_sale_pass"] == "" {
		t.Fatalf("not admitted: %s", in.text())
	}
	b.call("GET /seatmap/1", "Sec-Fetch-Dest: image").code(t, 503)
	b.call("GET /shop/logo", "Sec-Fetch-Dest: image").code(t, 200)
	program := b.call("POST /shop/cart", asJSON).code(t, 403)
	if program.header.Get("X-Waiting-Room-Pass") == "" {
		t.Fatalf("not admitted: %s", program.text())
	}
	pass := "X-Waiting-Room-Pass: " + program.header.Get("X-Waiting-Room-Pass")
	permit := b.call(permitsPath, pass, "", permitBody("/shop/cart", "POST")).code(t, 201).field("permit")
	b.call("POST /shop/cart", pass, "X-Waiting-Room-Permit: "+permit).code(t, 200)
	b.call("GET /.waiting-room/sale/", in.jar(), asPage).code(t, 303)
	if got := len(s.requests()); got != 2 {
		t.Errorf("the origin received %q", s.requests())
	}
}

func TestStep_GivesWayToBypassAndOpenRoom(t *testing.T) {
	room, open := steps(0), Room{ID: "open", Paths: []string{"/open"}, Policy: policy(0), Permits: []Step{{Paths: []string{"/open"}}}}
	room.Bypass = []Bypass{{Paths: []string{"/seatmap/public"}}}
	open.Policy.Enabled = false
	b, _ := one(t, room, open)
	b.call("GET /seatmap/public").code(t, 200)
	b.call("GET /open/1").code(t, 200)
	if a := b.call("POST /.waiting-room/open/permits", "", permitBody("/open/1", "GET")).code(t, 204); a.body != "" {
		t.Error(a.text())
	}
	b.call("OPTIONS /seatmap/1", "Access-Control-Request-Method: POST").code(t, 200)
}

// A rule with forward sends the verified permit, from the header field or the cookie, to the origin. No other permit reaches it.
func TestStep_ForwardsPermit(t *testing.T) {
	received := make(chan []string, 1)
	s := newSite(t, "shop", func(_ http.ResponseWriter, r *http.Request) { received <- r.Header["X-Waiting-Room-Permit"] })
	room := steps(0)
	room.Permits[0].Forward = true
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{room}})
	session := randomID()
	pass := b.passOf(session)
	_, permit, _ := strings.Cut(b.permitOf(session, "/seatmap/1", "GET"), ": ")
	_, post, _ := strings.Cut(b.permitOf(session, "/shop/cart", "POST"), ": ")
	for _, row := range []struct {
		lines []string
		want  string
	}{
		{[]string{"GET /seatmap/1", pass, "X-Waiting-Room-Permit: " + permit}, "[" + permit + "]"},
		{[]string{"GET /seatmap/1", pass, "X-Waiting-Room-Permit: forged", "Cookie: wr_sale_permit=" + permit}, "[" + permit + "]"},
		{[]string{"POST /shop/cart", pass, "X-Waiting-Room-Permit: " + post}, "[]"},
		{[]string{"GET /shop", pass, "X-Waiting-Room-Permit: " + permit}, "[]"},
	} {
		b.call(row.lines...).code(t, 200)
		if got := fmt.Sprint(<-received); got != row.want {
			t.Errorf("%v: the origin received %s", row.lines, got)
		}
	}
}

// Of many requests to redeem one permit, at several gateways, one succeeds.
func TestRedeem_OnceAtAllGateways(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	s := newSite(t, "shop", nil)
	var gateways []*bench
	for range 3 {
		gateways = append(gateways, start(t, client, prefix, Options{Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{steps(0)}}))
	}
	eventually(t, "the gateways agree on the epoch", func() bool {
		first := gateways[0].queue("sale").Snapshot().Epoch
		return first != "" && gateways[1].queue("sale").Snapshot().Epoch == first && gateways[2].queue("sale").Snapshot().Epoch == first
	})
	session := randomID()
	for round := range 5 {
		_, raw, _ := strings.Cut(gateways[0].permitOf(session, "/seatmap/1", "GET"), ": ")
		var all sync.WaitGroup
		var mu sync.Mutex
		redeemed, spent := 0, 0
		for i := range 30 {
			all.Go(func() {
				r, err := RedeemPermit(t.Context(), gateways[i%3].Gateway, raw, "", func(string) bool { return true })
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && r == permit.Redemption{Room: "sale", Session: session.String(), Path: "/seatmap/1", Method: "GET"}:
					redeemed++
				case errors.Is(err, permit.ErrSpent):
					spent++
				default:
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
		all.Wait()
		if redeemed != 1 || spent != 29 {
			t.Errorf("round %d: redeemed %d times, refused %d times", round, redeemed, spent)
		}
	}
	keys := client.Keys(t.Context(), prefix+":{room:sale}:permit:*").Val()
	if len(keys) != 5 {
		t.Fatalf("keys %q", keys)
	}
	if ttl := client.TTL(t.Context(), keys[0]).Val(); ttl < 65*time.Second || ttl > 130*time.Second {
		t.Errorf("the record of a redeemed permit is kept for %v", ttl)
	}
}

// A check starts no session for a step: the visitor has no permit yet, and HAProxy drops the cookie of a denial.
func TestStep_CheckWithoutPassStartsNoSession(t *testing.T) {
	for _, d := range []dialect.Dialect{dialect.Nginx, dialect.Traefik} {
		c := startChecked(t, Options{Rooms: []Room{steps(20)}, Check: Check{Dialect: d}})
		calls := storeCalls(t, c.bench)
		if a := c.ask("GET /seatmap/812", asPage); a.status != 401 || a.header.Get("X-Waiting-Room") != "waiting" || len(a.cookies) > 0 {
			t.Errorf("%s: %s", d, a.text())
		}
		if after := storeCalls(t, c.bench); !maps.Equal(calls, after) {
			t.Errorf("%s: calls of the store: %v before the check, %v after", d, calls, after)
		}
		c.ask("GET /shop", asPage).code(t, 200)
	}
}

// Checks of another proxy need the same permits.
func TestStep_AppliesToChecks(t *testing.T) {
	c := startChecked(t, Options{Rooms: []Room{steps(0)}})
	session := randomID()
	pass, permit := c.passOf(session), c.permitOf(session, "/seatmap/812", "GET")
	for _, row := range []struct {
		request string
		fields  []string
		status  int
		code    string
	}{
		{"GET /shop", []string{pass}, 200, ""},
		{"GET /seatmap/812", []string{pass}, 403, "permit_required"},
		{"GET /seatmap/812?row=7", []string{pass, permit}, 200, ""},
		{"GET /seatmap/812", []string{pass, strings.Replace(permit, "X-Waiting-Room-Permit: ", "Cookie: wr_sale_permit=", 1)}, 200, ""},
		{"GET /seatmap/813", []string{pass, permit}, 403, "permit_invalid"},
		{"POST /seatmap/812", []string{pass, permit}, 403, "permit_invalid"},
		{"GET /seatmap/812", []string{c.passOf(randomID()), permit}, 403, "permit_invalid"},
		{"GET /seatmap/./812", []string{pass, permit}, 403, "permit_invalid"},
		{"GET /shop", []string{pass, "X-HTTP-Method-Override: POST"}, 403, "permit_required"},
	} {
		if a := c.ask(row.request, row.fields...); a.status != row.status || a.field("code") != row.code {
			t.Errorf("%s %v: %s", row.request, row.fields, a.text())
		}
	}
}

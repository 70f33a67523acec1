package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

// aPass returns a pass with its issue and its end in seconds from now.
func aPass(t testing.TB, room string, issued, ends int64, bind string) (token.Pass, string) {
	t.Helper()
	now := time.Now().Unix()
	p := token.Pass{ID: randomID(), Session: randomID(), Room: room, IssuedAt: now + issued, Expires: now + ends, Bind: bind}
	return p, string(testRing(t).AppendPass(nil, &p))
}

func readPass(t testing.TB, raw, room string) token.Pass {
	t.Helper()
	p, err := testRing(t).VerifyPass([]byte(raw), room, time.Now().Unix())
	if err != nil {
		t.Fatalf("the pass %q: %v", raw, err)
	}
	return p
}

func TestPass_IsRenewedAfterHalfItsLife(t *testing.T) {
	s := newSite(t, "shop", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/public") {
			w.Header().Set("Cache-Control", "public, max-age=60")
		}
		fmt.Fprint(w, "ok")
	})
	room := Room{ID: "sale", Policy: policy(0), Renew: true, MaxSession: time.Hour}
	fixed := Room{ID: "fixed", Paths: []string{"/fixed"}, Policy: policy(0), MaxSession: time.Hour}
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{room, fixed}})
	ttl := int64(300)

	for _, row := range []struct {
		name         string
		issued, ends int64
		path         string
		renewed      int64 // the new end, in seconds from now; 0: not renewed
	}{
		{"young", 0, ttl, "/", 0},
		{"past half", -200, 100, "/", ttl},
		{"near its most", 70 - 3600, 60, "/", 70},
		{"at its most", -3600, 60, "/", 0},
		{"a public answer", -200, 100, "/public", 0},
		{"not in this room", -200, 100, "/fixed", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			id := "sale"
			if row.path == "/fixed" {
				id = "fixed"
			}
			p, raw := aPass(t, id, row.issued, row.ends, "")
			asked := time.Now().Unix()
			a := b.call("GET "+row.path, "Cookie: wr_"+id+"_pass="+raw).code(t, 200)
			got := a.cookies["wr_"+id+"_pass"]
			if row.renewed == 0 {
				if got != "" || a.header.Get("Cache-Control") == "private, no-store" {
					t.Fatalf("renewed: %s", a.text())
				}
				return
			}
			next := readPass(t, got, id)
			if next.Session != p.Session || next.IssuedAt != p.IssuedAt || next.Off {
				t.Errorf("renewed %+v, was %+v", next, p)
			}
			if now := time.Now().Unix(); next.Expires < asked+row.renewed-1 || next.Expires > now+row.renewed+1 {
				t.Errorf("it has %d s left, want %d", next.Expires-now, row.renewed)
			}
			if a.header.Get("Cache-Control") != "private, no-store" || a.header.Get("X-Waiting-Room-Pass") != "" {
				t.Errorf("%s", a.text())
			}
		})
	}
	t.Run("by header", func(t *testing.T) {
		_, raw := aPass(t, "sale", -200, 100, "")
		a := b.call("GET /", "X-Waiting-Room-Pass: "+raw).code(t, 200)
		readPass(t, a.header.Get("X-Waiting-Room-Pass"), "sale")
	})
	t.Run("two cookies of one name", func(t *testing.T) {
		_, raw := aPass(t, "sale", 0, 300, "")
		b.call("GET /", "Cookie: wr_sale_pass=tossed; wr_sale_pass="+raw).code(t, 200)
	})
	t.Run("expired", func(t *testing.T) {
		_, raw := aPass(t, "sale", -400, -10, "")
		b.call("GET /", asJSON, "Cookie: wr_sale_pass="+raw).code(t, 202)
	})
	t.Run("of another room", func(t *testing.T) {
		_, raw := aPass(t, "fixed", 0, 300, "")
		b.call("GET /", asJSON, "Cookie: wr_sale_pass="+raw).code(t, 202)
	})
}

// The store counts a session by the session.ttl of its last heartbeat. After the ttl was raised, the renewal of a pass sends a heartbeat.
func TestSessionTTL_RaisedIsStoredAtRenewal(t *testing.T) {
	site := newSite(t, "shop", nil)
	p := policy(0)
	p.SessionTTL = 20 * time.Second
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	b := start(t, client, prefix, Options{
		Origins: []proxy.Config{originAt("shop", site.URL)}, Rooms: []Room{{ID: "sale", Policy: p, Renew: true, MaxSession: time.Hour}},
	})
	pass, raw := aPass(t, "sale", 0, 20, "")
	counts := func() time.Duration { // the end of the session, in order time
		till, _ := client.ZScore(t.Context(), prefix+":{room:sale}:sessions", string(pass.Session[:])).Result()
		return time.Duration(int64(till)) * time.Microsecond
	}
	b.call("GET /", "X-Waiting-Room-Pass: "+raw).code(t, 200)
	eventually(t, "the store counts the session", func() bool { return counts() > 0 })
	first := counts()
	if err := b.queue("sale").Patch(t.Context(), "ann", admission.Live{SessionTTL: new(5 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pass is renewed", func() bool {
		return b.call("GET /", "X-Waiting-Room-Pass: "+raw).code(t, 200).header.Get("X-Waiting-Room-Pass") != ""
	})
	eventually(t, "the store counts it for longer", func() bool { return counts() > first+5*time.Minute })
}

func TestOrigin_RevokesSession(t *testing.T) {
	for _, header := range []string{"X-Waiting-Room-Command", "Cf-Waiting-Room-Command"} {
		t.Run(header, func(t *testing.T) {
			s := newSite(t, "shop", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/done" {
					w.Header().Set(header, "revoke")
				}
				fmt.Fprint(w, "ok")
			})
			o := Options{Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(0)}}}
			client, prefix := redistest.Client(t), redistest.Prefix(t)
			one, two := start(t, client, prefix, o), start(t, client, prefix, o)
			_, raw := aPass(t, "sale", 0, 300, "")
			with := "X-Waiting-Room-Pass: " + raw
			one.call("GET /", with).code(t, 200)
			one.call("GET /done", with).is(t, `
200
Cache-Control: private, no-store
Content-Type: text/plain; charset=utf-8
Set-Cookie: wr_sale_pass=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax

ok`)
			for i, b := range []*bench{one, two} {
				eventually(t, fmt.Sprintf("gateway %d refuses the pass", i+1), func() bool {
					return b.call("GET /", asJSON, with).status == 202
				})
			}
		})
	}
}

func TestTokens_AreBound(t *testing.T) {
	s := newSite(t, "shop", nil)
	for _, row := range []struct {
		bind               string
		first, same, else_ []string
	}{
		{BindUA, []string{"User-Agent: a"}, []string{"User-Agent: a"}, []string{"User-Agent: b"}},
		{BindIP, []string{"X-Forwarded-For: 192.0.2.1"}, []string{"X-Forwarded-For: 192.0.2.200"}, []string{"X-Forwarded-For: 192.0.3.1"}},
	} {
		t.Run(row.bind, func(t *testing.T) {
			b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
				Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(1)}},
				Bind: row.bind, TrustedProxies: loopback(),
			})
			with := func(lines []string, more ...string) []string {
				return append(append([]string{"GET /", asJSON}, lines...), more...)
			}
			pass := "X-Waiting-Room-Pass: " + b.call(with(row.first)...).code(t, 200).header.Get("X-Waiting-Room-Pass")
			b.call(with(row.same, pass)...).code(t, 200)
			b.call(with(row.else_, pass)...).code(t, 202)
			ticket := "X-Waiting-Room-Token: " + b.call(with(row.first)...).code(t, 202).field("token")
			status := func(lines []string) []string {
				return append([]string{"GET /.waiting-room/sale/status", ticket}, lines...)
			}
			b.call(status(row.same)...).code(t, 200)
			b.call(status(row.else_)...).code(t, 401)
		})
	}
}

func TestReset_ResponseHasNewTicket(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	first := b.call("GET /", asPage).code(t, 200)
	if err := b.queue("sale").Reset(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the place is replaced", func() bool {
		a := b.call("GET /", asJSON, first.jar()).code(t, 202)
		return a.field("reason") == "reset" && a.field("state") == "waiting" && a.field("token") != "" && a.cookies["wr_sale_ticket"] == a.field("token")
	})
	page := b.call("GET /", asPage, first.jar()).code(t, 200)
	if !strings.Contains(page.body, `data-state="expired"`) {
		t.Errorf("the page does not say that the place was lost")
	}
}

func TestEnter_ClosedDrainingFull(t *testing.T) {
	full := policy(0)
	full.Capacity = 1
	b, s := one(t,
		Room{ID: "shut", Paths: []string{"/shut"}, Policy: shut(policy(5))},
		Room{ID: "full", Paths: []string{"/full"}, Policy: full},
		Room{ID: "drain", Paths: []string{"/drain"}, Policy: policy(0)},
		Room{ID: "off", Paths: []string{"/off"}, Policy: off(policy(0))},
		Room{ID: "free", Paths: []string{"/free"}, Policy: free(policy(0))},
	)
	waits := b.call("GET /drain", asJSON).code(t, 202)
	if err := b.queue("drain").Drain(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	b.call("GET /full", asJSON).code(t, 202)
	for room, code := range map[string]string{"shut": "room_closed", "drain": "room_draining", "full": "room_full"} {
		eventually(t, room+" refuses", func() bool { return b.call("GET /"+room, asJSON).status == 503 })
		a := b.call("GET /"+room, asJSON).code(t, 503)
		if a.field("code") != code || a.header.Get("X-Waiting-Room") != "rejected" || a.header.Get("Retry-After") == "" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s", a.text())
		}
		page := b.call("GET /"+room, asPage).code(t, 503)
		if page.header.Get("X-Waiting-Room") != "rejected" || !strings.Contains(page.body, `data-state="rejected"`) || page.header.Get("Retry-After") == "" {
			t.Errorf("%s", page.text())
		}
		if image := b.call("GET /"+room, "Sec-Fetch-Dest: image").code(t, 503); len(image.body) > 100 {
			t.Errorf("an image gets %s", image.text())
		}
	}
	b.call("GET /drain", asJSON, waits.jar()).code(t, 202) // visitors in the queue are still served
	b.call("GET /off", asJSON).code(t, 200)
	b.call("GET /free", asJSON).code(t, 200)
	if got := len(s.requests()); got != 2 {
		t.Errorf("the origin saw %d requests", got)
	}
}

func off(p admission.Policy) admission.Policy  { p.Enabled = false; return p }
func free(p admission.Policy) admission.Policy { p.Method = admission.Passthrough; return p }

func TestSubresource_PassesWithoutQueue(t *testing.T) {
	b, s := one(t, Room{ID: "sale", Policy: policy(2)})
	image := []string{"GET /i.png", "Sec-Fetch-Dest: image"}
	b.call(image...).code(t, 200) // charged
	a := b.call("GET /", asPage).code(t, 200)
	if a.cookies["wr_sale_pass"] == "" {
		t.Fatalf("no pass: %s", a.text())
	}
	b.call(image...).code(t, 503) // the burst is used up
	b.call(append(image, a.jar())...).code(t, 200)
	b.call("GET /", asJSON).code(t, 202)
	b.call(image...).code(t, 503) // a visitor waits
	if got := s.requests(); len(got) != 3 || strings.Contains(got[0], "session=true") {
		t.Errorf("the origin saw %q", got)
	}
}

func TestRouting_WithoutMatchingRoom(t *testing.T) {
	shop, blog := newSite(t, "shop", nil), newSite(t, "blog", nil)
	rooms := []Room{{ID: "sale", Hosts: []string{"shop.test"}, Paths: []string{"/sale"}, Policy: policy(0)}}
	origins := []proxy.Config{originAt("shop", shop.URL), originAt("blog", blog.URL)}
	named := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: origins, Rooms: rooms})
	open := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: origins, Rooms: rooms, DefaultOrigin: "blog"})
	named.call("GET /about").is(t, `
200
Content-Type: text/plain; charset=utf-8

shop GET /about`)
	named.call("GET /about", "Host: other.test").is(t, `
421
Cache-Control: no-store
Content-Type: application/problem+json
Vary: Cookie
X-Content-Type-Options: nosniff

{"type":"urn:anteroom:problem:unknown_host","title":"Unknown host","status":421,"detail":"This gateway has no room for this host. Check the URL.","code":"unknown_host"}`)
	if a := open.call("GET /about", "Host: other.test").code(t, 200); a.body != "blog GET /about" {
		t.Errorf("%s", a.text())
	}
	named.call("GET /.waiting-room/sale/status", "Host: other.test").code(t, 421)
	named.call("GET //SALE/%2e/x", asJSON).code(t, 202)
	if got := shop.requests(); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestPass_FirstIsNotCached(t *testing.T) {
	own := []string{"Cache-Control", "CDN-Cache-Control", "Surrogate-Control", "X-Accel-Expires", "Expires"}
	s := newSite(t, "shop", func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range own {
			w.Header().Set(name, "max-age=600")
			w.Header().Add(name, "public")
		}
		fmt.Fprint(w, "ok")
	})
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(1)}},
	})
	a := b.call("GET /", asJSON).code(t, 200)
	if a.cookies["wr_sale_pass"] == "" || len(a.header["Cache-Control"]) != 1 || a.header.Get("Cache-Control") != "private, no-store" {
		t.Errorf("%s", a.text())
	}
	for _, name := range own[1:] {
		if got := a.header.Get(name); got != "" {
			t.Errorf("%s: %s beside a pass", name, got)
		}
	}
}

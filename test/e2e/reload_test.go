package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// SIGHUP applies the settings that are not live, and waiting visitors keep tickets, orders and positions. Of an invalid file no setting is
// applied.
func TestReload_KeepsPlaces(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	secret := filepath.Join(tempDir(t), "draw.secret")
	write(t, secret, drawSecret+"\n")
	begin := time.Now().UTC().Truncate(time.Second)
	at := func(d time.Duration) string { return begin.Add(d).Format(time.RFC3339) }

	// file returns a configuration with a budget, an opening, and the settings that a row adds to the room "sale".
	file := func(budget string, opens time.Duration, more string, sale ...string) setup {
		if !slices.ContainsFunc(sale, func(s string) bool { return strings.HasPrefix(s, "admission:") }) {
			sale = append(sale, "admission: {rate: 0}")
		}
		if !slices.ContainsFunc(sale, func(s string) bool { return strings.HasPrefix(s, "paths:") }) {
			sale = append(sale, "paths: [/sale]")
		}
		return setup{rooms: []string{
			room(append(sale, "origin: free")...),
			"{id: shared, origin: shop, paths: [/shared], admission: {rate: 1000}, weight: 1}",
			"{id: beside, origin: shop, paths: [/beside], admission: {rate: 1000}}",
			"{id: in, origin: free, paths: [/in], admission: {rate: 1000}, session: {ttl: 1h}}",
			fmt.Sprintf("{id: lots, origin: free, paths: [/lots], admission: {rate: 0}, queue: {method: lottery, absence: 3m, opens_at: %q, draw_secret_file: %q}}", at(opens), secret),
		}, more: more + fmt.Sprintf("\norigins: [{id: shop, servers: [%q], budget: {%s}}, {id: free, servers: [%q]}]\ndefault_origin: free\n", site.URL, budget, site.URL)}
	}
	const little, hour = "rate: 0.003, burst: 1", time.Hour
	with := func(sale ...string) setup { return file(little, hour, "", sale...) }
	// but returns the same configuration with another setting of another room.
	but := func(old, new string) setup {
		s := with()
		for i := range s.rooms {
			s.rooms[i] = strings.Replace(s.rooms[i], old, new, 1)
		}
		return s
	}
	g := start(t, with())
	c, o := newClient(t, g), adminOf(t, g)
	reload := func(s setup) {
		s.store = ownStore(g.dir)
		g.rewrite(s.yaml())
		g.signal(sighup)
	}

	type waiter struct {
		room, token, jti string
		ord              int64
	}
	var waiters []*waiter
	ask := func(method, room, what, token string, h ...headers) answer {
		t.Helper()
		if token != "" {
			h = append(h, headers{"X-Waiting-Room-Token": token})
		}
		return c.ask(g, method, "/.waiting-room/"+room+"/"+what, "", h...)
	}
	join := func(room, ip string, h ...headers) answer {
		t.Helper()
		return ask(http.MethodPost, room, "tickets", "", append(h, headers{"X-Forwarded-For": ip})...)
	}
	for i, room := range []string{"sale", "sale", "sale", "sale", "shared", "shared", "shared", "lots", "lots", "lots", "beside"} {
		s := join(room, fmt.Sprintf("198.51.100.%d", i)).want(http.StatusCreated).status()
		_, w := decode(t, s.Token)
		waiters = append(waiters, &waiter{room, s.Token, w.Jti, w.Ord})
	}
	status := func(w *waiter) status {
		t.Helper()
		s := ask(http.MethodGet, w.room, "status", w.token).want(http.StatusOK).status()
		if s.Token != "" {
			_, now := decode(t, s.Token)
			if now.Jti != w.jti || w.ord != 0 && now.Ord != w.ord {
				t.Fatalf("a ticket of %s changed from %s of %d to %s of %d", w.room, w.jti, w.ord, now.Jti, now.Ord)
			}
			w.token, w.ord = s.Token, now.Ord
		}
		return s
	}
	first, last, lot := waiters[0], waiters[3], waiters[9]
	pass := join("in", "198.51.100.99").want(http.StatusCreated).status().Pass
	shop := func() answer { return c.get(g, "/in", headers{"X-Waiting-Room-Pass": pass}) }
	renewed := func() string { return shop().header.Get("X-Waiting-Room-Pass") }
	same := func(after string) {
		t.Helper()
		position := map[string]int64{}
		for _, w := range waiters {
			s := status(w)
			if position[w.room]++; w.room == "lots" {
				if s.State != "prequeue" {
					t.Fatalf("after %s: who gathered is %v", after, s)
				}
			} else if s.State != "waiting" || s.Position == nil || *s.Position != position[w.room] {
				t.Fatalf("after %s: number %d of %s is %v", after, position[w.room], w.room, s)
			}
		}
	}
	until(t, "all have their places", func() bool { s := status(last); return s.Position != nil && *s.Position == 4 })
	same("the joins")

	event := func(name string, from, to time.Duration) string {
		return fmt.Sprintf("{name: %s, starts_at: %q, ends_at: %q, method: reject}", name, at(from), at(to))
	}
	for _, row := range []struct {
		name string
		to   setup
		is   func() bool // reports the effect; false before
	}{
		{"an event", with("events: [" + event("shut", -hour, hour) + "]"), func() bool { return status(first).State == "rejected" }},
		{"no event", with(), func() bool { return status(first).State == "waiting" }},
		{"queue.capacity", with("queue: {capacity: 4}"), func() bool { return join("sale", "203.0.113.1").code == http.StatusServiceUnavailable }},
		{"guard.joins_per_ip", with(`guard: {joins_per_ip: "1/1h"}`), func() bool {
			join("sale", "203.0.113.2")
			return join("sale", "203.0.113.2").code == http.StatusTooManyRequests
		}},
		{"guard.proof_of_work", with("guard: {proof_of_work: always}"), func() bool { return join("sale", "203.0.113.3").code == http.StatusPreconditionRequired }},
		{"identity", with("identity: {one_place: true, header: X-Account}"), func() bool { return join("sale", "203.0.113.4").code == http.StatusUnauthorized }},
		{"eta.estimator", with("admission: {rate: 0.001, burst: 1, min_wait: 1h}", "eta: {estimator: fixed, seconds_per_place: 5000}"), func() bool {
			var eta struct{ Seconds float64 }
			return json.Unmarshal(status(last).ETA, &eta) == nil && eta.Seconds >= 3*5000
		}},
		{"admission", with("admission: {strategy: leaky_bucket, rate: 0, min_wait: 1s, head_window: 3}"), func() bool {
			return strings.Contains(o.get("rooms/sale").body, `"leaky_bucket"`)
		}},
		{"page and compat", with("compat: cloudflare", "page: {status: 503, title: Rush}"), func() bool {
			a := c.get(g, "/sale", asBrowser)
			return a.code == http.StatusServiceUnavailable && strings.Contains(a.body, "Rush") && strings.Contains(ask(http.MethodGet, "sale", "status", first.token).body, `"cfWaitingRoom"`)
		}},
		{"bypass", with("bypass: [{paths: [/sale/free]}]"), func() bool { return c.get(g, "/sale/free").header.Get("X-Origin") != "" }},
		{"cors_origins", with(`cors_origins: ["https://shop.example"]`), func() bool {
			return ask(http.MethodGet, "sale", "status", first.token, headers{"Origin": "https://shop.example"}).header.Get("Access-Control-Allow-Origin") != ""
		}},
		{"paths", with("paths: [/sale, /more]"), func() bool { return c.get(g, "/more").code == http.StatusAccepted }},
		{"hosts", with("hosts: [127.0.0.1]"), func() bool { return c.get(g, "/sale", headers{"Host": "else.example"}).header.Get("X-Origin") != "" }},
		{"guard.captcha", with(fmt.Sprintf("guard: {captcha: {provider: turnstile, site_key: key, secret_file: %q, hosts: [shop.example]}}", secret)), func() bool {
			return strings.Contains(join("sale", "203.0.113.6").body, "captcha_required")
		}},
		{"weight", but("weight: 1", "weight: 2"), func() bool { return strings.Contains(o.get("rooms/shared").body, `"expected":0.002`) }},
		{"session.ttl", but("ttl: 1h", "ttl: 11h"), func() bool { return renewed() != "" }},
		{"session.renew", but("ttl: 1h", "ttl: 11h, renew: false"), func() bool {
			a := shop()
			return a.header.Get("X-Origin") != "" && a.header.Get("X-Waiting-Room-Pass") == ""
		}},
		{"session.max", but("ttl: 1h", "ttl: 11h, max: 11h"), func() bool {
			next := renewed()
			if next == "" {
				return false
			}
			_, claims := parts(t, next) // not 11 hours from now, but from its beginning
			number := func(name string) int64 { n, _ := claims[name].(json.Number).Int64(); return n }
			return number("exp")-number("iat") == int64((11 * hour).Seconds())
		}},
		{"guard.requests_per_session", but("session:", `guard: {requests_per_session: "1/1h"}, session:`), func() bool {
			shop()
			return shop().code == http.StatusTooManyRequests
		}},
		{"cookies", file(little, hour, "cookies: {same_site: strict}"), func() bool {
			_, line := newBrowser(t, g).get(g, "/sale", asBrowser).setCookie("wr_sale_ticket")
			return strings.Contains(line, "SameSite=Strict")
		}},
		{"tokens.bind", file(little, hour, "tokens: {bind: ua}"), func() bool {
			_, claims := parts(t, join("sale", "203.0.113.5").status().Token)
			return claims["bnd"] != nil
		}},
		{"trusted_proxies", file(little, hour, "trusted_proxies: [192.0.2.0/24]"), func() bool {
			c.get(g, "/", headers{"X-Forwarded-For": "203.0.113.5"})
			return !strings.Contains(site.last().Header.Get("X-Forwarded-For"), "203.0.113.5")
		}},
		{"queue.opens_at", file(little, 2*hour, ""), func() bool { return strings.HasPrefix(status(lot).OpensAt, strings.TrimSuffix(at(2*hour), "Z")) }},
	} {
		if row.is() {
			t.Fatalf("%s: it is so before", row.name)
		}
		reload(row.to)
		until(t, row.name, row.is)
		if row.name != "an event" {
			same(row.name)
		}
	}

	// Overlapping events are refused with both names, and the former configuration stays in force.
	reload(with("events: [" + event("early", -hour, hour) + ", " + event("late", 0, 2*hour) + "]"))
	until(t, "overlapping events are refused", func() bool {
		log := g.text()
		return strings.Contains(log, "cannot reload the configuration") && strings.Contains(log, "rooms[0].events[1]: begins") && strings.Contains(log, "before events[0] has ended")
	})
	same("a file that is refused")
	until(t, "the metrics show the failed reload", func() bool { return adminOf(t, g).metric("anteroom_config_last_reload_successful 0") })
	if s := status(lot); !strings.HasPrefix(s.OpensAt, strings.TrimSuffix(at(2*hour), "Z")) {
		t.Errorf("of a file that is refused it took the opening at %s", s.OpensAt)
	}

	// A larger budget admits waiting visitors in their order. A lottery with an earlier opening draws the pre-queue.
	reload(file("rate: 50, burst: 50", time.Since(begin)+5*time.Second, ""))
	var in []string
	for _, w := range waiters[4:7] {
		until(t, "the budget lets them in", func() bool {
			s := status(w)
			if s.Pass == "" {
				return false
			}
			if _, p := decode(t, s.Pass); p.Sid != w.jti {
				t.Fatalf("the session %s of the ticket %s", p.Sid, w.jti)
			}
			in = append(in, s.AdmittedAt)
			return true
		})
	}
	if !slices.IsSorted(in) {
		t.Errorf("they were let in at %v", in)
	}
	seen := map[int64]bool{}
	for _, w := range waiters[7:10] {
		until(t, "they are drawn", func() bool { return status(w).State == "waiting" })
		if w.ord == 0 || seen[w.ord] {
			t.Errorf("the order %d", w.ord)
		}
		seen[w.ord] = true
	}
	for _, w := range waiters[:4] {
		if s := status(w); s.State != "waiting" {
			t.Errorf("in the end: %v", s)
		}
	}
}

// Replacing a signing key ends places, which the log reports; restoring the key restores them.
func TestReload_WarnsOfAReplacedSigningKey(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	s := setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}}.withRedis(redistest.Server(t).URL())
	g := start(t, s)
	const warning = "every place and pass signed with it has ended"
	reload := func(more string) {
		next := s
		next.more = more
		seen := strings.Count(g.text(), "configuration reloaded")
		g.rewrite(next.yaml())
		g.signal(sighup)
		until(t, "the configuration is reloaded", func() bool { return strings.Count(g.text(), "configuration reloaded") > seen })
	}
	other := strings.ToUpper(signingSecret)
	reload(fmt.Sprintf("\ntokens: {keys: [{id: k1, secret: %q}, {id: k2, secret: %q, active: true}]}\n", signingSecret, other))
	if strings.Contains(g.text(), warning) {
		t.Error("a rotation warns")
	}
	reload(fmt.Sprintf("\ntokens: {keys: [{id: k1, secret: %q, active: true}]}\n", signingSecret))
	if strings.Count(g.text(), warning) != 1 {
		t.Errorf("a key that signed is gone: %s", tail(g.text()))
	}
}

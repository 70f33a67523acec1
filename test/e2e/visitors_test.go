package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The kind of client determines the response to a visitor who has to wait.
func TestAnswer_DependsOnKindOfRequest(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}", "page: {title: Harbour Hall}")}})
	// A queue, so that every visitor has to wait.
	newClient(t, g).join(g)
	const (
		page       = "the page"
		object     = "the status object"
		plain      = "a short text"
		goesOn     = "the origin"
		html       = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
		websocket  = "websocket"
		preflights = "Access-Control-Request-Method"
	)
	for _, row := range []struct {
		name   string
		method string
		h      headers
		want   string
		code   int
	}{
		{"a navigation", "GET", asBrowser, page, 200},
		{"a navigation in a frame", "GET", headers{"Sec-Fetch-Dest": "iframe", "Accept": "*/*"}, page, 200},
		{"a navigation without Sec-Fetch", "GET", headers{"Accept": html}, page, 200},
		{"a form sent by a browser", "POST", headers{"Accept": html, "Sec-Fetch-Dest": "document"}, page, 200},
		{"HEAD of a navigation", "HEAD", headers{"Accept": html}, page, 200},
		{"HTML before JSON", "GET", headers{"Accept": "application/json;q=0.4, text/html;q=0.5"}, page, 200},
		{"JSON before HTML", "GET", headers{"Accept": "text/html;q=0.5, application/json"}, object, 202},
		{"fetch from a script", "GET", headers{"Accept": "*/*", "Sec-Fetch-Dest": "empty", "Sec-Fetch-Mode": "cors"}, object, 202},
		{"fetch for HTML from a script", "GET", headers{"Accept": html, "Sec-Fetch-Dest": "empty"}, object, 202},
		{"curl", "GET", headers{"Accept": "*/*", "User-Agent": "curl/8"}, object, 202},
		{"no Accept", "GET", nil, object, 202},
		{"JSON", "GET", headers{"Accept": "application/json"}, object, 202},
		{"HEAD for JSON", "HEAD", headers{"Accept": "application/json"}, object, 202},
		{"POST for JSON", "POST", headers{"Accept": "application/json"}, object, 503},
		{"PUT", "PUT", nil, object, 503},
		{"DELETE", "DELETE", headers{"Accept": "*/*"}, object, 503},
		{"OPTIONS that is no preflight", "OPTIONS", nil, object, 503},
		{"an image", "GET", headers{"Sec-Fetch-Dest": "image", "Accept": "image/avif,image/webp,*/*;q=0.8"}, plain, 503},
		{"a script", "GET", headers{"Sec-Fetch-Dest": "script", "Accept": "*/*"}, plain, 503},
		{"a style sheet without Sec-Fetch", "GET", headers{"Accept": "text/css,*/*;q=0.1"}, plain, 503},
		{"an image without Sec-Fetch", "GET", headers{"Accept": "image/png,image/*;q=0.8,*/*;q=0.5"}, plain, 503},
		{"a prefetch", "GET", headers{"Accept": html, "Sec-Purpose": "prefetch"}, plain, 503},
		{"a prerender", "GET", headers{"Accept": html, "Sec-Fetch-Dest": "document", "Sec-Purpose": "prefetch;prerender"}, plain, 503},
		{"a WebSocket", "GET", headers{"Upgrade": websocket, "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw=="}, plain, 503},
		{"a preflight", "OPTIONS", headers{preflights: "POST", "Origin": "https://shop.example"}, goesOn, 200},
		{"a preflight that prefetches", "OPTIONS", headers{preflights: "POST", "Sec-Purpose": "prefetch"}, goesOn, 200},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := newClient(t, g)
			body := ""
			if row.method == "POST" || row.method == "PUT" {
				body = "a=1"
			}
			a := c.ask(g, row.method, "/sale", body, row.h).want(row.code)
			if (row.want == goesOn) != (a.header.Get("X-Origin") != "") {
				t.Fatalf("reached the origin: %v", a.header.Get("X-Origin") != "")
			}
			if row.want == goesOn {
				return
			}
			a.waits("waiting")
			switch row.want {
			case page:
				a.has(headers{"Content-Type": "text/html*", "Content-Security-Policy": "*"})
				if row.method != "HEAD" && !strings.Contains(a.body, "Harbour Hall") {
					t.Error("it is not the page")
				}
				if csp := a.header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe-inline") || !strings.Contains(csp, "frame-ancestors") {
					t.Errorf("CSP %q", csp)
				}
				a.setCookie("wr_sale_ticket")
				a.setCookie("wr_sale_nonce")
			case object:
				if row.method == "HEAD" {
					a.has(headers{"Content-Type": "application/json"})
					break
				}
				s := a.status()
				if s.State != "waiting" || s.Room != "sale" || s.Position == nil || s.Token == "" || s.Pass != "" || s.AdmittedAt != "" {
					t.Errorf("%s", a.body)
				}
				if ck, _ := a.setCookie("wr_sale_ticket"); ck.Value != s.Token {
					t.Error("the ticket cookie is not exactly the token")
				}
			case plain:
				a.has(headers{"Content-Type": "text/plain*"})
				if len(a.body) > 100 || strings.Contains(a.body, "<") {
					t.Errorf("%q", a.body)
				}
				if len(a.header.Values("Set-Cookie")) > 0 {
					t.Errorf("it was given a ticket: %q", a.header.Values("Set-Cookie"))
				}
			}
		})
	}
	if n := len(site.Requests()); n != 2 {
		t.Errorf("the origin was asked %d times, want only the preflights", n)
	}
}

// Without a queue, subresources and WebSockets' neighbours pass; prefetches pass only while the room does not limit.
func TestSubresources_PassWithoutQueue(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(100, 100))}})
	c := newClient(t, g)
	a := c.get(g, "/logo.png", headers{"Sec-Fetch-Dest": "image"}).want(http.StatusOK)
	if a.header.Get("X-Origin") == "" || len(a.header.Values("Set-Cookie")) > 0 {
		t.Errorf("an image while there is no line: %v", a.header)
	}
	if r := adminOf(t, g).room("sale"); r.Active != 0 {
		t.Errorf("an image counts as active: %+v", r)
	}
	c.get(g, "/ws", headers{"Upgrade": "websocket", "Connection": "Upgrade"}).want(http.StatusServiceUnavailable)
}

func TestTickets(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}", "cors_origins: [\"https://other.example\"]")}})
	const tickets = "/.waiting-room/sale/tickets"
	c := newClient(t, g)
	post := func(body string, h ...headers) answer {
		t.Helper()
		return c.ask(g, http.MethodPost, tickets, body, h...)
	}

	a := post("").want(http.StatusCreated).waits("waiting")
	s := a.status()
	header, claims := decode(t, s.Token)
	if header["typ"] != "wait+jwt" || header["kid"] == nil || header["alg"] != "HS256" || len(header) != 3 {
		t.Errorf("header of the token %v", header)
	}
	if claims.Iss != "anteroom" || claims.Aud != "sale" || claims.Jti == "" || claims.Ord == 0 || claims.Seen == 0 || claims.Ep == nil || claims.Fn == nil ||
		claims.Exp-claims.Iat != 24*3600 {
		t.Errorf("claims %+v", claims)
	}
	if ck, line := a.setCookie("wr_sale_ticket"); ck.Value != s.Token || !ck.HttpOnly || ck.Path != "/" || ck.SameSite != http.SameSiteLaxMode {
		t.Errorf("%s", line)
	}
	// Exactly these fields, in the order of the documents, while waiting for the first time.
	var keys []string
	d := json.NewDecoder(strings.NewReader(a.body))
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			break
		}
		if delim, ok := token.(json.Delim); ok {
			if delim == '{' {
				depth++
			} else {
				depth--
			}
			continue
		}
		if key, ok := token.(string); ok && depth == 1 {
			keys = append(keys, key)
			if key == "eta" {
				continue
			}
			if _, err := d.Token(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := strings.Join(keys, " "); got != "room state position ahead waiting refresh_after joined_at message paused token" {
		t.Errorf("fields %s\n%s", got, a.body)
	}
	if joined, err := time.Parse(time.RFC3339, s.JoinedAt); err != nil || time.Since(joined) > time.Minute || time.Until(joined) > time.Minute {
		t.Errorf("joined_at %s", s.JoinedAt)
	}

	// A join with a valid ticket receives the same ticket.
	again := post("", headers{"X-Waiting-Room-Token": s.Token}).want(http.StatusOK).status()
	if _, got := decode(t, again.Token); got.Jti != claims.Jti || got.Ord != claims.Ord || got.Iat != claims.Iat {
		t.Errorf("with a live ticket: %+v, before %+v", got, claims)
	}
	post("", headers{"Cookie": "wr_sale_ticket=" + s.Token}).want(http.StatusOK)

	post(`{"nonce":"abc"}`, headers{"Content-Type": "application/json"}).want(http.StatusCreated)
	post(`{}`).want(http.StatusCreated)
	for _, body := range []string{"{", `[]`, `"x"`, `{"nonce":7}`, `{"nonce":null}`, `{"nonse":"x"}`, `{"nonce":"` + strings.Repeat("x", 200) + `"}`, "\xff"} {
		post(body).problem(http.StatusUnprocessableEntity, "")
	}
	if a := post(strings.Repeat(" ", 100_000)); a.code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 100 kB: %d", a.code)
	}

	// An idempotency key makes one ticket, however often it is sent.
	key := headers{"Idempotency-Key": "0123456789012345678901"}
	one := post("", key).want(http.StatusCreated).status()
	two := post("", key).want(http.StatusOK).status()
	_, first := decode(t, one.Token)
	_, second := decode(t, two.Token)
	if first.Jti != second.Jti || first.Ord != second.Ord {
		t.Errorf("the same key: %+v, then %+v", first, second)
	}
	elsewhere := newClient(t, g)
	elsewhere.ip = "198.51.100.77"
	other := elsewhere.ask(g, http.MethodPost, tickets, "", key).want(http.StatusCreated).status()
	if _, third := decode(t, other.Token); third.Jti == first.Jti {
		t.Error("the same key from another network is the same place")
	}
	for _, key := range []string{"short", strings.Repeat("k", 21), strings.Repeat("k", 129)} {
		post("", headers{"Idempotency-Key": key}).problem(http.StatusUnprocessableEntity, "idempotency_key")
	}
	post("", headers{"Idempotency-Key": strings.Repeat("k", 22)}).want(http.StatusCreated)
	post("", headers{"Idempotency-Key": strings.Repeat("k", 128)}).want(http.StatusCreated)

	// A page of another site takes no ticket, unless cors_origins allows the site.
	for _, h := range []headers{
		{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"},
		{"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
	} {
		if a := post("", h); a.code != http.StatusForbidden {
			t.Errorf("%v: %d, want 403", h, a.code)
		}
	}
	post("", headers{"Origin": "http://" + g.addr, "Sec-Fetch-Site": "same-origin"}).want(http.StatusCreated)
	allowed := post("", headers{"Origin": "https://other.example", "Sec-Fetch-Site": "cross-site"}).want(http.StatusCreated)
	allowed.has(headers{"Access-Control-Allow-Origin": "https://other.example"})
	if !strings.Contains(allowed.header.Get("Vary"), "Origin") {
		t.Errorf("Vary %q with CORS", allowed.header.Get("Vary"))
	}
	preflight := c.ask(g, http.MethodOptions, tickets, "", headers{"Origin": "https://other.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "idempotency-key"})
	if preflight.code/100 != 2 {
		t.Errorf("preflight: %d", preflight.code)
	}
	preflight.has(headers{"Access-Control-Allow-Origin": "https://other.example"})
	if !strings.Contains(preflight.header.Get("Access-Control-Allow-Methods"), "POST") || !strings.Contains(strings.ToLower(preflight.header.Get("Access-Control-Allow-Headers")), "idempotency-key") {
		t.Errorf("preflight: %v", preflight.header)
	}
	stranger := c.ask(g, http.MethodOptions, tickets, "", headers{"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"})
	if got := stranger.header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("a stranger's preflight gets %q", got)
	}
	c.get(g, tickets).want(http.StatusMethodNotAllowed).has(headers{"Allow": "*"})
	if len(site.Requests()) > 0 {
		t.Error("the origin was asked")
	}
}

func TestTickets_AdmittedImmediately(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(50, 50))}})
	c := newClient(t, g)
	a := c.ask(g, http.MethodPost, "/.waiting-room/sale/tickets", "").want(http.StatusCreated).has(headers{"X-Waiting-Room": "admitted"})
	s := a.status()
	if s.State != "admitted" || s.Pass == "" || s.AdmittedAt == "" || s.ExpiresAt == "" || s.Position != nil {
		t.Errorf("%s", a.body)
	}
	if ck, _ := a.setCookie("wr_sale_pass"); ck.Value != s.Pass {
		t.Error("the pass cookie is not the pass")
	}
	_, pass := decode(t, s.Pass)
	if expires, err := time.Parse(time.RFC3339, s.ExpiresAt); err != nil || expires.Unix() != pass.Exp {
		t.Errorf("expires_at %s, exp %d", s.ExpiresAt, pass.Exp)
	}
	// A repeat with the same key is the same session.
	key := headers{"Idempotency-Key": "0123456789012345678901"}
	one := c.ask(g, http.MethodPost, "/.waiting-room/sale/tickets", "", key).want(http.StatusCreated).status()
	two := c.ask(g, http.MethodPost, "/.waiting-room/sale/tickets", "", key).want(http.StatusOK).status()
	_, first := decode(t, one.Pass)
	_, second := decode(t, two.Pass)
	if first.Sid != second.Sid || one.AdmittedAt != two.AdmittedAt || two.State != "active" {
		t.Errorf("the same key: %+v, then %+v", one, two)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}})
	c := newClient(t, g)
	s := c.join(g)
	const path = "/.waiting-room/sale/status"
	for _, h := range []headers{
		{"X-Waiting-Room-Token": s.Token}, {"Authorization": "Bearer " + s.Token}, {"Authorization": "bearer " + s.Token}, {"Cookie": "a=b; wr_sale_ticket=" + s.Token},
	} {
		got := c.get(g, path, h).want(http.StatusOK).waits("waiting").status()
		if got.State != "waiting" || got.JoinedAt != s.JoinedAt {
			t.Errorf("with %.20v: %+v", h, got)
		}
	}
	c.get(g, path).problem(http.StatusUnauthorized, "").has(headers{"WWW-Authenticate": "*"})
	c.ask(g, http.MethodPost, path, "").problem(http.StatusMethodNotAllowed, "")
	if a := c.ask(g, http.MethodHead, path, "", headers{"X-Waiting-Room-Token": s.Token}); a.code != 200 || a.body != "" {
		t.Errorf("HEAD: %d %q", a.code, a.body)
	}
	c.ask(g, http.MethodPost, "/.waiting-room/sale/claim", "", headers{"X-Waiting-Room-Token": s.Token}).problem(http.StatusConflict, "")
	c.ask(g, http.MethodPost, "/.waiting-room/sale/claim", "").problem(http.StatusUnauthorized, "")

	// The client leaves, and its ticket ends.
	c.ask(g, http.MethodDelete, "/.waiting-room/sale/tickets", "").problem(http.StatusUnauthorized, "")
	c.ask(g, http.MethodDelete, "/.waiting-room/sale/tickets", "", headers{"X-Waiting-Room-Token": s.Token}).want(http.StatusNoContent)
	c.ask(g, http.MethodDelete, "/.waiting-room/sale/tickets", "", headers{"X-Waiting-Room-Token": s.Token}).want(http.StatusNoContent)
	if now := c.poll(g, s.Token); now.State != "ended" && now.State != "expired" {
		t.Errorf("after leaving: %+v", now)
	}
	c.ask(g, http.MethodPost, "/.waiting-room/sale/claim", "", headers{"X-Waiting-Room-Token": s.Token}).problem(http.StatusGone, "")
	replaced := c.get(g, "/", headers{"Cookie": "wr_sale_ticket=" + s.Token}).want(http.StatusAccepted).status()
	_, before := decode(t, s.Token)
	if _, after := decode(t, replaced.Token); after.Jti == before.Jti {
		t.Error("on a gated path the ended ticket was not replaced")
	}
	adminOf(t, g).rooms("sale", func(r roomInfo) bool { return r.Waiting == 1 })
}

// A ticket makes one session: another client with the ticket gets 410; the client that claimed may repeat.
func TestClaim_BelongsToOneClient(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}})
	b := newBrowser(t, g)
	b.get(g, "/", asBrowser).waits("waiting")
	ticket := b.cookie(g, "wr_sale_ticket")
	adminOf(t, g).patch("rooms/sale", `{"rate":100,"burst":100}`).want(http.StatusOK)
	const claim = "/.waiting-room/sale/claim"
	var first status
	until(t, "it can claim", func() bool {
		a := b.ask(g, http.MethodPost, claim, "")
		if a.code == http.StatusConflict {
			return false
		}
		first = a.want(http.StatusOK).status()
		return true
	})
	if first.State != "admitted" || b.cookie(g, "wr_sale_pass") != first.Pass {
		t.Errorf("%+v", first)
	}
	again := b.ask(g, http.MethodPost, claim, "").want(http.StatusOK).status()
	_, one := decode(t, first.Pass)
	_, two := decode(t, again.Pass)
	if one.Sid != two.Sid || again.AdmittedAt != first.AdmittedAt || again.State != "active" {
		t.Errorf("again: %+v", again)
	}
	thief := newClient(t, g)
	thief.ip = "198.51.100.9"
	thief.ask(g, http.MethodPost, claim, "", headers{"X-Waiting-Room-Token": ticket, "User-Agent": "thief"}).problem(http.StatusGone, "")
	if s := thief.poll(g, ticket); s.Pass != "" || s.State == "active" || s.State == "admitted" {
		t.Errorf("a thief's status: %+v", s)
	}
	// On a gated path the other client receives its own place or session.
	a := thief.get(g, "/", headers{"Cookie": "wr_sale_ticket=" + ticket})
	if a.code == http.StatusOK {
		if _, own := decode(t, a.header.Get("X-Waiting-Room-Pass")); own.Sid == one.Sid {
			t.Error("a thief got the session")
		}
	}
}

// An admitted ticket lapses unless it is claimed, and frees its slot.
func TestClaim_LapsesAfterWindow(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0, max_active: 1}", "queue: {claim_window: 2s}")}})
	o, c := adminOf(t, g), newClient(t, g)
	s := c.join(g)
	o.rooms("sale", func(r roomInfo) bool { return r.Waiting == 1 })
	o.patch("rooms/sale", `{"rate":100}`).want(http.StatusOK)
	// The ticket is admitted for two seconds, which a busy machine may miss; the state lapsed remains.
	until(t, "its admission has lapsed", func() bool { return o.metric(`anteroom_lapsed_total{room="sale"} 1`) })
	if r := o.room("sale"); r.Admitted != 0 || r.Waiting != 0 {
		t.Errorf("the room: %+v", r)
	}
	if now := c.poll(g, s.Token); now.State != "lapsed" || now.Pass != "" {
		t.Errorf("%+v", now)
	}
	c.ask(g, http.MethodPost, "/.waiting-room/sale/claim", "", headers{"X-Waiting-Room-Token": s.Token}).problem(http.StatusGone, "")
	// The slot is free.
	until(t, "somebody else is let in", func() bool { return c.get(g, "/").code == http.StatusOK })
}

func TestReservedPath_UnknownIsNotFound(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}})
	c := newClient(t, g)
	for _, path := range []string{
		"/.waiting-room/", "/.waiting-room/nosuch/status", "/.waiting-room/nosuch/", "/.waiting-room/sale/nosuch", "/.waiting-room/sale/status/more",
		"/.waiting-room/nosuch", "/.waiting-room", "/.waiting-room/sale/draw", "/%2ewaiting-room/nosuch/status", "/a/../.waiting-room/nosuch/status", "//.waiting-room/nosuch/status",
		"/.Waiting-Room/nosuch/status",
	} {
		c.get(g, path).problem(http.StatusNotFound, "")
	}
	if a := newBrowser(t, g).get(g, "/.waiting-room/nosuch/", asBrowser).want(http.StatusNotFound); !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		t.Errorf("a navigation gets %s", a.header.Get("Content-Type"))
	}
	newBrowser(t, g).get(g, "/.waiting-room/sale/", asBrowser).want(http.StatusOK).has(headers{"Content-Type": "text/html*"})
	if len(site.Requests()) > 0 {
		t.Errorf("the origin was asked: %+v", site.Requests())
	}
}

func TestUnknownHosts(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{
		`{id: sale, hosts: [tickets.example, "*.shop.example"], admission: {rate: 50, burst: 50}}`,
	}})
	c := newClient(t, g)
	for host, code := range map[string]int{
		"tickets.example": 200, "TICKETS.example:8080": 200, "a.shop.example": 200, "a.b.shop.example": 200,
		"shop.example": 421, "evil.example": 421, "xshop.example": 421, "127.0.0.1": 421,
	} {
		a := c.get(g, "/", headers{"Host": host})
		if a.code != code {
			t.Errorf("%s: %d, want %d", host, a.code, code)
		}
		if a.code == 421 {
			a.problem(421, "unknown_host")
		}
	}
	c.get(g, "/.waiting-room/sale/status", headers{"Host": "evil.example"}).problem(421, "unknown_host")
	fallback := start(t, setup{origin: site.URL, more: "default_origin: shop\n", rooms: []string{`{id: sale, hosts: [tickets.example], admission: {rate: 0}}`}})
	if a := c.get(fallback, "/", headers{"Host": "else.example"}); a.header.Get("X-Origin") == "" || len(a.header.Values("Set-Cookie")) > 0 {
		t.Errorf("default_origin: %d", a.code)
	}
}

func TestCloudflareFields(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}", "compat: cloudflare")}})
	c := newClient(t, g)
	a := c.get(g, "/", headers{"Accept": "application/json"}).want(http.StatusAccepted)
	a.status()
	var object struct {
		CF map[string]any `json:"cfWaitingRoom"`
	}
	if err := json.Unmarshal([]byte(a.body), &object); err != nil {
		t.Fatal(err)
	}
	if len(object.CF) != 25 {
		t.Errorf("cfWaitingRoom has %d fields: %v", len(object.CF), object.CF)
	}
	if object.CF["inWaitingRoom"] != true {
		t.Errorf("inWaitingRoom %v", object.CF["inWaitingRoom"])
	}
}

// The stream sends the state, then the admission, and never the pass.
func TestEvents(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}})
	c := newClient(t, g)
	s := c.join(g)
	c.get(g, "/.waiting-room/sale/events").problem(http.StatusUnauthorized, "")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.addr+"/.waiting-room/sale/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	r.Header.Set("Accept", "text/event-stream")
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") || resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	type event struct{ name, data string }
	events := make(chan event)
	go func() {
		defer close(events)
		lines := bufio.NewScanner(resp.Body)
		var e event
		for lines.Scan() {
			switch name, value, _ := strings.Cut(lines.Text(), ":"); {
			case name == "event":
				e.name = strings.TrimSpace(value)
			case name == "data":
				e.data += strings.TrimSpace(value)
			case lines.Text() == "" && e.name != "":
				select {
				case events <- e:
				case <-ctx.Done():
					return
				}
				e = event{}
			}
		}
	}()
	first, ok := <-events
	if !ok || first.name != "status" {
		t.Fatalf("first event %+v", first)
	}
	var told status
	if err := json.Unmarshal([]byte(first.data), &told); err != nil || told.State != "waiting" || told.Position == nil || *told.Position != 1 {
		t.Errorf("%v: %s", err, first.data)
	}
	adminOf(t, g).patch("rooms/sale", `{"rate":100}`).want(http.StatusOK)
	for e := range events {
		if e.name == "status" {
			continue
		}
		if e.name != "admitted" || strings.Contains(e.data, `"pass"`) {
			t.Errorf("event %+v", e)
		}
		break
	}
	claimed := c.ask(g, http.MethodPost, "/.waiting-room/sale/claim", "", headers{"X-Waiting-Room-Token": s.Token}).want(http.StatusOK).status()
	if claimed.Pass == "" || claimed.State != "admitted" {
		t.Errorf("%+v", claimed)
	}
}

func TestPublicKeys(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	_, pem, _ := command(t, nil, "keys", "generate", "--alg", "EdDSA")
	dir := tempDir(t)
	write(t, dir+"/key.pem", pem)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(50, 50))},
		more: "tokens: {keys: [{id: ed1, alg: EdDSA, private_key_file: " + dir + "/key.pem, active: true}, {id: hs1, alg: HS256, secret: " + signingSecret + "}]}\n"})
	c := newClient(t, g)
	a := c.get(g, "/.waiting-room/jwks.json").want(http.StatusOK)
	if caching := a.header.Get("Cache-Control"); caching != "public, max-age=300" {
		t.Errorf("the key set has Cache-Control %q", caching)
	}
	var set struct{ Keys []map[string]any }
	if err := json.Unmarshal([]byte(a.body), &set); err != nil || len(set.Keys) != 1 {
		t.Fatalf("%v: %s", err, a.body)
	}
	if k := set.Keys[0]; k["kty"] != "OKP" || k["crv"] != "Ed25519" || k["kid"] != "ed1" || k["x"] == nil || k["d"] != nil {
		t.Errorf("%v", k)
	}
	s := c.ask(g, http.MethodPost, "/.waiting-room/sale/tickets", "").want(http.StatusCreated).status()
	if header, _ := decode(t, s.Pass); header["alg"] != "EdDSA" || header["kid"] != "ed1" {
		t.Errorf("header of the pass %v", header)
	}
	c.get(g, "/", headers{"X-Waiting-Room-Pass": s.Pass}).want(http.StatusOK)
}

// The page's status is the operator's choice; its content is escaped.
func TestPage_IsServed(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}", `page: {status: 503, title: "A<script>B", message: "<img src=x onerror=y>", languages: [ko, en], frame_ancestors: "https://frame.example"}`)}})
	a := newBrowser(t, g).get(g, "/x?%3Cscript%3Ealert(1)%3C/script%3E", asBrowser, headers{"Accept-Language": "ko"}).want(http.StatusServiceUnavailable).waits("waiting")
	if strings.Contains(a.body, "<img src=x") || strings.Contains(a.body, "A<script>B") || strings.Contains(a.body, "alert(1)") {
		t.Error("the page is not escaped")
	}
	if !strings.Contains(a.body, `lang="ko"`) {
		t.Error("the page is not in Korean")
	}
	if csp := a.header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors https://frame.example") {
		t.Errorf("CSP %q", csp)
	}
	if len(a.body) > 14<<10 {
		t.Errorf("the page has %d bytes", len(a.body))
	}
	if !strings.Contains(a.body, "<noscript>") {
		t.Error("nothing for those without JavaScript")
	}
}

// The origin responds early to a request whose body contains another request. The request in the body is never run.
func TestBody_NeverRunsAsRequest(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{
		"{id: sale, paths: [/sale], admission: {rate: 0}}", "{id: rest, paths: [/], admission: {rate: 100, burst: 100}}",
	}})
	hidden := "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, body := range []string{hidden, strings.Repeat(hidden, 20_000)} {
		text := raw(t, g.addr, "POST /sale HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\nContent-Length: "+itoa(len(body))+"\r\n\r\n"+body+
			"GET /after HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(text, "HTTP/1.1 503 ") {
			t.Errorf("%.200s", text)
		}
	}
	for _, r := range site.Requests() {
		if r.URI == "/hidden" {
			t.Fatal("the request in the body ran")
		}
	}
}

// A delayed repetition of a join, from before its client had a nonce, finds the ticket admitted. The join does not claim the ticket,
// because its response may reach no client, and the client's own claim would then be refused.
func TestJoin_LateRepeatClaimsNothing(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}})
	key := headers{"Idempotency-Key": "a-key-of-a-join-that-is-repeated"}
	browser, late := newBrowser(t, g), newClient(t, g)
	first := browser.ask(g, http.MethodPost, "/.waiting-room/sale/tickets", "", key).want(http.StatusCreated).status()
	if first.State != "waiting" {
		t.Fatalf("joined: %v", first)
	}
	adminOf(t, g).patch("rooms/sale", `{"rate":100}`).want(http.StatusOK)
	adminOf(t, g).rooms("sale", func(r roomInfo) bool { return r.Admitted == 1 })
	repeat := late.ask(g, http.MethodPost, "/.waiting-room/sale/tickets", "", key).want(http.StatusOK).status()
	if repeat.State != "waiting" || repeat.Pass != "" || repeat.Token == "" {
		t.Errorf("the repeat: %v", repeat)
	}
	until(t, "the browser is let in", func() bool {
		s := browser.get(g, "/.waiting-room/sale/status").want(http.StatusOK).status()
		if s.State == "ended" {
			t.Fatalf("its ticket is spent: %v", s)
		}
		return s.Pass != ""
	})
}

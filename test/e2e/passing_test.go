package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Flags alone start a waiting room, with an embedded store and a generated key.
func TestFlags_ServeOneRoom(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := startPlain(t, nil, "--origin", site.URL, "--rate", "10", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	b := newBrowser(t, g)
	a := b.get(g, "/tickets?for=two", asBrowser).want(http.StatusOK)
	if !strings.Contains(a.body, "Welcome") {
		t.Errorf("got %s", a.body)
	}
	if b.cookie(g, "wr_default_pass") == "" {
		t.Errorf("no pass of room default in %q", a.header.Values("Set-Cookie"))
	}
	b.get(g, "/.waiting-room/default/", asBrowser).want(http.StatusSeeOther)
	newClient(t, g).ask(g, http.MethodPost, "/.waiting-room/default/tickets", "").want(http.StatusCreated)
}

func TestPassing_OneVisitorImmediately(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "shop=1; Path=/")
		w.Header().Set("Cache-Control", "public, max-age=600")
		_, _ = io.WriteString(w, "ok")
	})
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(50, 50))}})

	b := newBrowser(t, g)
	a := b.get(g, "/tickets?for=two", asBrowser).want(http.StatusOK)
	if a.body != "ok" {
		t.Errorf("body %q", a.body)
	}
	ck, line := a.setCookie("wr_sale_pass")
	if !ck.HttpOnly || ck.SameSite != http.SameSiteLaxMode || ck.Path != "/" || ck.Secure || ck.Domain != "" {
		t.Errorf("first pass: %s; want HttpOnly, SameSite=Lax, Path=/, no Secure on plain HTTP, no Domain", line)
	}
	a.setCookie("shop") // the origin's own is kept
	// The response with a first pass is private.
	if cc := a.header.Get("Cache-Control"); !strings.Contains(cc, "private") || !strings.Contains(cc, "no-store") || strings.Contains(cc, "public") {
		t.Errorf("Cache-Control %q with a first pass, want private, no-store", cc)
	}
	header, pass := decode(t, ck.Value)
	if header["typ"] != "pass+jwt" || header["alg"] != "HS256" || header["kid"] == nil || len(header) != 3 {
		t.Errorf("header of the pass %v, want alg, kid, typ", header)
	}
	if pass.Iss != "anteroom" || pass.Aud != "sale" || pass.Sid == "" || pass.Jti == "" || pass.Exp-pass.Iat < 290 || pass.Exp-pass.Iat > 310 {
		t.Errorf("claims of the pass %+v", pass)
	}
	if r := site.last(); r.Header.Get("X-Waiting-Room-Session") == "" || r.URI != "/tickets?for=two" {
		t.Errorf("the origin got %+v", r)
	}
	session := site.last().Header.Get("X-Waiting-Room-Session")

	// With the pass: the same session. A public response sets no cookie of the gateway and stays public.
	a = b.get(g, "/tickets", asBrowser).want(http.StatusOK)
	if a.header.Get("Cache-Control") != "public, max-age=600" || strings.Contains(strings.Join(a.header.Values("Set-Cookie"), " "), "wr_") {
		t.Errorf("with a pass: %v", a.header)
	}
	if got := site.last().Header.Get("X-Waiting-Room-Session"); got != session {
		t.Errorf("session %s, before %s", got, session)
	}
	if session == pass.Jti || strings.Contains(ck.Value, session) {
		t.Error("the session's id for the origin is not opaque")
	}
}

func TestPassing_POSTReachesOriginIntact(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(50, 50))}})
	c := newClient(t, g)
	c.ip = "203.0.113.7"
	body := strings.Repeat("seat=17&", 20_000)
	a := c.ask(g, http.MethodPost, "/checkout?step=%2F2", body, headers{
		"Content-Type": "application/x-www-form-urlencoded", "X-Custom": "kept", "X-Waiting-Room-Session": "forged",
		"X-Waiting-Room-Evil": "forged", "X-Real-Ip": "203.0.113.7", "Cookie": "mine=1; wr_sale_ticket=abc; wr_sale_nonce=xyz; other=2",
		"Host": "shop.example",
	}).want(http.StatusOK)
	r := site.last()
	if r.Method != http.MethodPost || r.URI != "/checkout?step=%2F2" || r.Body != body {
		t.Errorf("the origin got %s %s with %d bytes, want POST /checkout?step=%%2F2 with %d", r.Method, r.URI, len(r.Body), len(body))
	}
	for name, want := range (headers{
		"X-Custom": "kept", "Content-Type": "application/x-www-form-urlencoded", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "shop.example",
		"Cookie": "mine=1; other=2",
	}) {
		if got := r.Header.Get(name); got != want {
			t.Errorf("the origin got %s %q, want %q", name, got, want)
		}
	}
	if got := r.Header.Get("X-Forwarded-For"); !strings.HasPrefix(got, "203.0.113.7") {
		t.Errorf("the origin got X-Forwarded-For %q, want the address that the trusted proxy told first", got)
	}
	if r.Host != "shop.example" {
		t.Errorf("the origin got Host %q (preserve_host)", r.Host)
	}
	if s := r.Header.Get("X-Waiting-Room-Session"); s == "" || s == "forged" {
		t.Errorf("the origin got X-Waiting-Room-Session %q", s)
	}
	// An API client receives its pass also in a header field, and may send it there.
	pass := a.header.Get("X-Waiting-Room-Pass")
	if pass == "" {
		t.Fatalf("no X-Waiting-Room-Pass in %v", a.header)
	}
	again := newClient(t, g).get(g, "/next", headers{"X-Waiting-Room-Pass": pass}).want(http.StatusOK)
	if site.last().Header.Get("X-Waiting-Room-Session") != r.Header.Get("X-Waiting-Room-Session") || again.header.Get("X-Origin") == "" {
		t.Error("the pass in X-Waiting-Room-Pass is another session")
	}
}

// From a peer that is not trusted, the forwarding headers are replaced.
func TestForwardedHeaders_OfUntrustedPeersAreReplaced(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(50, 50))}, more: "trusted_proxies: [\"192.0.2.1/32\"]\n"})
	newClient(t, g).get(g, "/", headers{
		"X-Forwarded-For": "198.51.100.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example", "X-Real-Ip": "198.51.100.1",
		"Forwarded": "for=198.51.100.1;proto=https",
	}).want(http.StatusOK)
	r := site.last()
	if got := r.Header.Get("X-Forwarded-For"); got != "127.0.0.1" {
		t.Errorf("X-Forwarded-For %q, want 127.0.0.1", got)
	}
	if got := r.Header.Get("X-Forwarded-Proto"); got != "http" {
		t.Errorf("X-Forwarded-Proto %q, want http", got)
	}
	if got := r.Header.Get("X-Forwarded-Host"); got == "evil.example" {
		t.Errorf("X-Forwarded-Host %q", got)
	}
	for _, name := range []string{"Forwarded", "X-Real-Ip"} {
		if got := r.Header.Get(name); strings.Contains(got, "198.51.100.1") {
			t.Errorf("%s %q", name, got)
		}
	}
}

// Behind a trusted proxy with TLS the cookies are Secure.
func TestCookiesBehindTLS(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(50, 1))}})
	https := headers{"X-Forwarded-Proto": "https"}
	a := newClient(t, g).get(g, "/", https, asBrowser).want(http.StatusOK)
	if ck, line := a.setCookie("__Host-wr_sale_pass"); !ck.Secure || !ck.HttpOnly || ck.Path != "/" || ck.Domain != "" {
		t.Errorf("%s", line)
	}
	pause := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}, more: "cookies: {same_site: none}\n"})
	a = newClient(t, pause).get(pause, "/", https, asBrowser).want(http.StatusOK)
	for _, name := range []string{"__Host-wr_sale_ticket", "__Host-wr_sale_nonce"} {
		if ck, line := a.setCookie(name); !ck.Secure || !ck.HttpOnly || ck.SameSite != http.SameSiteNoneMode || !ck.Partitioned {
			t.Errorf("%s; want HttpOnly, Secure, SameSite=None, Partitioned", line)
		}
	}
}

// The origin ends a session with a response header, which the visitor does not receive.
func TestSession_RevokedByOrigin(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"X-Waiting-Room-Command", "Cf-Waiting-Room-Command"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/done" {
					w.Header().Set(name, "revoke")
				}
				_, _ = io.WriteString(w, "ok")
			})
			g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0.001, burst: 1, max_active: 1}")}})
			b := newBrowser(t, g)
			b.get(g, "/", asBrowser).want(http.StatusOK)
			pass := b.cookie(g, "wr_sale_pass")
			a := b.get(g, "/done", asBrowser).want(http.StatusOK)
			if a.body != "ok" || a.header.Get(name) != "" {
				t.Errorf("the answer that revokes: %q %v", a.body, a.header)
			}
			// Immediately: the next request with the old pass has to wait.
			c := newClient(t, g)
			c.get(g, "/", headers{"X-Waiting-Room-Pass": pass}).want(http.StatusAccepted).waits("waiting")
		})
	}
}

// A pass is renewed while it is used, past half its life, and keeps its session; the renewed one outlives the old.
func TestPass_RenewedWhileUsed(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0.001, burst: 1}", "session: {ttl: 4s}")}})
	c := newClient(t, g)
	first := c.get(g, "/").want(http.StatusOK).header.Get("X-Waiting-Room-Pass")
	_, before := decode(t, first)
	pass := first
	deadline := time.Unix(before.Exp+8, 0) // after the leeway of the first pass
	until(t, "the session outlives its first pass", func() bool {
		a := c.get(g, "/", headers{"X-Waiting-Room-Pass": pass}).want(http.StatusOK)
		if p := a.header.Get("X-Waiting-Room-Pass"); p != "" {
			_, now := decode(t, p)
			if now.Sid != before.Sid {
				t.Fatalf("renewed as session %s, before %s", now.Sid, before.Sid)
			}
			pass = p
		}
		return time.Now().After(deadline)
	})
	if pass == first {
		t.Error("the pass was never renewed")
	}
	c.get(g, "/", headers{"X-Waiting-Room-Pass": first}).want(http.StatusAccepted)
}

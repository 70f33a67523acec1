package gateway

import (
	"testing"
)

func TestEnter_AdmitsThenQueues(t *testing.T) {
	b, s := one(t, Room{ID: "sale", Policy: policy(1)})
	first := b.call("POST /buy?seat=7", asPage, "", "name=A")
	first.is(t, `
200
Cache-Control: private, no-store
Content-Type: text/plain; charset=utf-8
Set-Cookie: wr_sale_nonce=NONCE; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax
Set-Cookie: wr_sale_pass=JWT; Path=/; Max-Age=TTL; HttpOnly; SameSite=Lax

shop POST /buy?seat=7`)
	second := b.call("GET /", asJSON)
	second.is(t, `
202
Cache-Control: no-store
Content-Type: application/json
Retry-After: N
Set-Cookie: wr_sale_nonce=NONCE; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax
Set-Cookie: wr_sale_ticket=JWT; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax
Vary: Cookie
X-Content-Type-Options: nosniff
X-Waiting-Room: waiting

{"room":"sale","state":"waiting","position":1,"ahead":0,"waiting":1,"eta":ETA,"refresh_after":N,"joined_at":"TIME","message":"","paused":false,"token":"JWT"}`)
	again := b.call("GET /x", asJSON, first.jar()+"; own=1").code(t, 200)
	again.is(t, `
200
Content-Type: text/plain; charset=utf-8

shop GET /x`)
	if got := s.requests(); len(got) != 2 || got[0] != `POST /buy?seat=7 session=true cookie="" body="name=A"` ||
		got[1] != `GET /x session=true cookie="own=1" body=""` {
		t.Errorf("the origin saw %q", got)
	}
}

func TestEnter_ServesPageToNavigation(t *testing.T) {
	b, s := one(t, Room{ID: "sale", Policy: policy(0), PageStatus: 200})
	for _, row := range []struct {
		name   string
		lines  []string
		status int
		typ    string
		state  string
	}{
		{"by accept", []string{"GET /", asPage}, 200, "text/html; charset=utf-8", "waiting"},
		{"by destination", []string{"GET /", "Sec-Fetch-Dest: document"}, 200, "text/html; charset=utf-8", "waiting"},
		{"a form's post", []string{"POST /", asPage, "", "a=b"}, 200, "text/html; charset=utf-8", "waiting"},
		{"json", []string{"GET /", asJSON}, 202, "application/json", "waiting"},
		{"no accept", []string{"GET /"}, 202, "application/json", "waiting"},
		{"api post", []string{"POST /", asJSON, "", "{}"}, 503, "application/json", "waiting"},
		{"head", []string{"HEAD /", asJSON}, 202, "application/json", "waiting"},
		{"image", []string{"GET /i.png", "Accept: image/avif,image/webp,*/*;q=0.8"}, 503, "text/plain; charset=utf-8", "waiting"},
		{"script", []string{"GET /i.js", "Sec-Fetch-Dest: script"}, 503, "text/plain; charset=utf-8", "waiting"},
		{"prefetch", []string{"GET /", asPage, "Sec-Purpose: prefetch;prerender"}, 503, "text/plain; charset=utf-8", "waiting"},
		{"upgrade", []string{"GET /ws", "Connection: Upgrade", "Upgrade: websocket"}, 503, "text/plain; charset=utf-8", "waiting"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := b.call(row.lines...)
			if a.status != row.status || a.header.Get("Content-Type") != row.typ || a.header.Get("X-Waiting-Room") != row.state ||
				a.header.Get("Cache-Control") != "no-store" || a.header.Get("Vary") != "Cookie" || a.header.Get("Retry-After") == "" {
				t.Errorf("%s", a.text())
			}
		})
	}
	if got := s.requests(); len(got) != 0 {
		t.Errorf("the origin saw %q", got)
	}
	b.call("OPTIONS /", "Origin: https://a.example", "Access-Control-Request-Method: POST").code(t, 200)
}

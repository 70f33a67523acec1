package gateway

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/route"
)

// spoofed are requests by which a visitor without a pass tries to reach a room's paths, or to pass as somebody else. CVE-2026-40575 and
// its like are fields that a proxy takes from visitors: the check would describe another request than the one that is forwarded.
var spoofed = []struct {
	name    string
	request []string
}{
	{"the path of a bypass rule in X-Forwarded-Uri", []string{"GET /seats", "X-Forwarded-Uri: /static/a"}},
	{"two X-Forwarded-Uri", []string{"GET /seats", "X-Forwarded-Uri: /static/a", "X-Forwarded-Uri: /static/b"}},
	{"the method of a preflight in X-Forwarded-Method", []string{"GET /seats", "X-Forwarded-Method: OPTIONS", "Access-Control-Request-Method: GET"}},
	{"another host in X-Forwarded-Host", []string{"GET /seats", "X-Forwarded-Host: off.test"}},
	{"X-Forwarded-Prefix", []string{"GET /seats", "X-Forwarded-Prefix: /static"}},
	{"X-Forwarded-Port", []string{"GET /seats", "X-Forwarded-Port: 1"}},
	{"Forwarded", []string{"GET /seats", "Forwarded: host=off.test;proto=http;for=127.0.0.1"}},
	{"X-Original-URI", []string{"GET /seats", "X-Original-URI: /static/a"}},
	{"X-Original-URL", []string{"GET /seats", "X-Original-URL: /static/a"}},
	{"X-Original-Method", []string{"GET /seats", "X-Original-Method: OPTIONS", "Access-Control-Request-Method: GET"}},
	{"X-Original-Host", []string{"GET /seats", "X-Original-Host: off.test"}},
	{"X-Rewrite-URL", []string{"GET /seats", "X-Rewrite-URL: /static/a"}},
	{"X-Replaced-Path", []string{"GET /seats", "X-Replaced-Path: /static/a"}},
	{"X-Auth-Request-Redirect", []string{"GET /seats", "X-Auth-Request-Redirect: /static/a"}},
	{"all families at once", []string{"GET /seats", "X-Forwarded-Uri: /static/a", "X-Original-URI: /static/a", "X-Original-URL: /static/a", "X-Forwarded-Host: off.test"}},
	{"an alias of X-Forwarded-Uri with underscores", []string{"GET /seats", "X_Forwarded_Uri: /static/a"}},
	{"an alias of X-Forwarded-Uri with dots", []string{"GET /seats", "X.Forwarded.Uri: /static/a"}},
	{"an alias of X-Forwarded-Host", []string{"GET /seats", "X_Forwarded-Host: off.test"}},
	{"a hop-by-hop session", []string{"GET /seats", "Connection: X-Waiting-Room-Session", "X-Waiting-Room-Session: forged"}},
	{"hop-by-hop fields of the check", []string{"GET /seats", "Connection: X-Forwarded-Uri, X-Forwarded-Host, X-Forwarded-Method, close", "X-Forwarded-Uri: /static/a"}},
	{"a session of the visitor's", []string{"GET /seats", "X-Waiting-Room-Session: forged"}},
	{"a state of the visitor's", []string{"GET /seats", "X-Waiting-Room: pass"}},
	{"x-envoy-auth-headers-to-remove", []string{"GET /seats", "X-Envoy-Auth-Headers-To-Remove: cookie", "X-Envoy-Original-Path: /static/a"}},
	{"an empty segment", []string{"GET //seats"}},
	{"dot segments out of a bypass rule", []string{"GET /static/../seats"}},
	{"encoded dot segments", []string{"GET /static/%2e%2e/seats"}},
	{"an encoded slash after dots", []string{"GET /static/..%2fseats"}},
	{"an encoded slash before dots", []string{"GET /static%2f..%2fseats"}},
	{"dots with a parameter", []string{"GET /static/..;a=b/seats"}},
	{"a parameter", []string{"GET /static;/../seats"}},
	{"a backslash", []string{`GET /static/..\seats`}},
	{"an encoded backslash", []string{"GET /static/..%5cseats"}},
	{"a path in the query", []string{"GET /seats?/static/a"}},
	{"a path in a parameter of the query", []string{"GET /seats?next=/static/a"}},
	{"an encoded question mark", []string{"GET /seats%3f/static/a"}},
	{"an encoded letter", []string{"GET /%73eats"}},
	{"an encoded null byte", []string{"GET /static%00/../seats"}},
	{"the check's path before the path", []string{"GET /.waiting-room/check/seats"}},
	{"the check's path with dot segments", []string{"GET /.waiting-room/../seats"}},
	{"an absolute target of another host", []string{"GET http://off.test/seats", "Host: queue.test"}},
	{"two hosts", []string{"GET /seats", "Host: queue.test", "Host: off.test"}},
	{"HEAD", []string{"HEAD /seats"}},
	{"OPTIONS", []string{"OPTIONS /seats"}},
	{"TRACE", []string{"TRACE /seats"}},
	{"a method in lower case", []string{"options /seats", "Access-Control-Request-Method: GET"}},
	{"a method override against a rule with methods", []string{"GET /search", "X-HTTP-Method-Override: POST"}},
	{"an upgrade", []string{"GET /seats", "Connection: Upgrade", "Upgrade: websocket"}},
	{"a prefetch", []string{"GET /seats", "Sec-Purpose: prefetch"}},
	{"a field of 1 MB", []string{"GET /seats", "X-Long: " + strings.Repeat("a", 1<<20)}},
	{"200 fields", append([]string{"GET /seats"}, strings.Split(strings.Repeat("X-Many: 1\n", 200), "\n")[:200]...)},
	{"a pass of another room", []string{"GET /seats", "Cookie: wr_queue_pass=OTHER"}},
	{"a pass of another room under its own name", []string{"GET /seats", "Cookie: wr_other_pass=OTHER"}},
	{"a forged pass", []string{"GET /seats", "Cookie: wr_queue_pass=FORGED"}},
	{"a pass as X-Waiting-Room-Token", []string{"GET /seats", "X-Waiting-Room-Token: PASS"}},
	{"a pass of another browser", []string{"GET /seats", "User-Agent: other", "Cookie: wr_queue_pass=PASS"}},
	{"a pass without an algorithm", []string{"GET /seats", "Cookie: wr_queue_pass=NONE"}},
}

func TestSpoofing_EntersNowhere(t *testing.T) {
	for at, in := range integrations {
		t.Run(in.name, func(t *testing.T) {
			room := func(id string, p admission.Policy) Room {
				return Room{ID: id, Hosts: []string{id + ".test"}, Policy: p, Bypass: []route.BypassRule{{Paths: []string{"/static/"}}, {Paths: []string{"/search"}, Methods: []string{"GET"}}}}
			}
			b := startBeside(t, at, Options{Bind: BindUA, Rooms: []Room{room("queue", policy(0)), room("other", policy(0)), room("off", off(policy(0)))}})
			b.proxied.call("POST /.waiting-room/queue/tickets", asJSON, "Host: queue.test", "User-Agent: mine")
			eventually(t, "there is a queue", func() bool { return b.line("queue").Snapshot().Waiting == 1 })
			_, other := aPass(t, "other", 0, 300, "")
			pass := passOfBrowser(t, b)
			words := strings.NewReplacer("OTHER", other, "FORGED", pass[:len(pass)-4]+"AAAA", "PASS", pass,
				"NONE", "eyJhbGciOiJub25lIiwidHlwIjoicGFzcytqd3QifQ."+strings.Split(pass, ".")[1]+".")
			for _, row := range spoofed {
				before := len(b.origin.requests())
				lines := make([]string, 0, len(row.request)+2)
				for _, l := range row.request {
					lines = append(lines, words.Replace(l))
				}
				if !strings.Contains(strings.Join(lines, "\n"), "\nHost: ") {
					lines = append(lines, "Host: queue.test")
				}
				status := b.attempt(t, lines)
				if seen := b.origin.requests()[before:]; len(seen) > 0 && !strings.Contains(seen[0], " off.test ") {
					t.Errorf("%s: entered with status %d: %q", row.name, status, seen)
				}
				if status == 200 && len(b.origin.requests()) == before {
					t.Errorf("%s: status 200 without the origin", row.name)
				}
			}
			if got := outcomeOf(b.proxied.call("GET /seats", asPage, "Host: queue.test", "User-Agent: mine", "Cookie: wr_queue_pass="+pass)); got != "origin session" {
				t.Errorf("a pass with its browser, after all that: %s", got)
			}
			for _, alias := range []string{"X-Waiting-Room-Session", "X_Waiting_Room_Session", "X.Waiting.Room.Session", "x_waiting-room_session", "x-waiting-room.session"} {
				before := len(b.origin.requests())
				b.attempt(t, []string{"GET /static/a.css", "Host: queue.test", alias + ": forged"})
				if seen := strings.Join(b.origin.requests()[before:], " "); strings.Contains(seen, "forged") {
					t.Errorf("the origin reads %s of a visitor on a bypassed path: %s", alias, seen)
				}
			}
		})
	}
}

// passOfBrowser returns a pass of the room queue that is bound to the browser "mine".
func passOfBrowser(t *testing.T, b *beside) string {
	t.Helper()
	raw := b.passFor(t, randomID(), BindUA, []string{"User-Agent: mine"})
	p := readPass(t, raw, "sale")
	p.Room = "queue"
	return string(testRing(t).AppendPass(nil, &p))
}

// attempt sends a request that the proxy may refuse, and returns the status; 0 where the proxy closes the connection.
func (b *beside) attempt(t *testing.T, lines []string) int {
	t.Helper()
	c, err := net.Dial("tcp", b.proxied.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	a, err := exchange(c, bufio.NewReader(c), lines...)
	if err != nil {
		return 0
	}
	return a.status
}

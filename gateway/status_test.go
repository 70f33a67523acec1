package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestStatusIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := status{
			room: "sale", state: "waiting", position: rapid.Int64Range(0, 1e9).Draw(t, "position"), waiting: 3,
			eta: wait{rapid.Bool().Draw(t, "known"), 1, 2, 3}, refresh: 2, joinedAt: 1780000000123456,
			message: rapid.String().Draw(t, "message"), reason: rapid.String().Draw(t, "reason"),
			pass: []byte("a.b.c"), expiresAt: 1780000000, token: []byte("d.e.f"), compat: rapid.Bool().Draw(t, "compat"), now: 1780000000123456,
		}
		var out map[string]any
		if err := json.Unmarshal(s.append(nil), &out); err != nil {
			t.Fatal(err)
		}
		if out["message"] != s.message || out["joined_at"] != "2026-05-28T20:26:40.123456Z" || (out["position"] == nil) != (s.position == 0) {
			t.Fatalf("%v", out)
		}
	})
}

func TestStatusText(t *testing.T) {
	s := status{
		room: "sale", state: "waiting", position: 1234, waiting: 50210, eta: wait{true, 123, 110, 150}, refresh: 12,
		joinedAt: 1767323045000000, message: "",
	}
	const want = `{"room":"sale","state":"waiting","position":1234,"ahead":1233,"waiting":50210,"eta":{"seconds":123,"low":110,"high":150},"refresh_after":12,"joined_at":"2026-01-02T03:04:05.000000Z","message":"","paused":false}`
	if got := string(s.append(nil)); got != want {
		t.Errorf("%s", got)
	}
	s.compat, s.now = true, s.joinedAt
	const compat = `,"cfWaitingRoom":{"inWaitingRoom":true,"waitTimeKnown":true,"waitTime":3,"waitTime25Percentile":2,"waitTime50Percentile":3,"waitTime75Percentile":3,"waitTimeFormatted":"3 minutes","queueIsFull":false,"queueAll":false,"isFIFOQueue":true,"isPassthroughQueue":false,"isRandomQueue":false,"isRejectQueue":false,"lastUpdated":"2026-01-02T03:04:05.000Z","refreshIntervalSeconds":12}}`
	if got := string(s.append(nil)); got != want[:len(want)-1]+compat {
		t.Errorf("%s", got)
	}
}

func TestProblemTable(t *testing.T) {
	codes := map[string]bool{}
	for _, p := range problems {
		if codes[p.code] || p.code == "" || p.title == "" || p.status < 400 || p.status > 599 {
			t.Errorf("%+v", p)
		}
		codes[p.code] = true
		var out map[string]any
		if err := json.Unmarshal(p.append(nil, "", ""), &out); err != nil || out["code"] != p.code || out["status"] != float64(p.status) {
			t.Errorf("%s: %v %v", p.code, out, err)
		}
		if p.status == 503 && p.retry == 0 {
			t.Errorf("%s: 503 without Retry-After", p.code)
		}
	}
}

// A status is nobody else's: never stored, told apart by cookie (and by site where its page may read it), and a HEAD is a
// GET without its body.
func TestStatusHeaders(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0), Compat: CompatCloudflare, CORSOrigins: []string{"https://app.test"}})
	token := "X-Waiting-Room-Token: " + b.call("POST /.waiting-room/sale/tickets").code(t, 201).field("token")
	for _, row := range []struct {
		name, request, origin string
		vary                  string
		body                  bool
	}{
		{"get", "GET", "", "Cookie", true},
		{"head", "HEAD", "", "Cookie", false},
		{"another site's page", "GET", "https://app.test", "Cookie, Origin", true},
		{"its head", "HEAD", "https://app.test", "Cookie, Origin", false},
	} {
		lines := []string{row.request + " /.waiting-room/sale/status", token}
		if row.origin != "" {
			lines = append(lines, "Origin: "+row.origin)
		}
		a := b.call(lines...).code(t, 200)
		h := a.header
		if h.Get("Cache-Control") != "no-store" || h.Get("Vary") != row.vary || h.Get("Content-Type") != typeJSON || h.Get("X-Waiting-Room") != "waiting" ||
			h.Get("Retry-After") == "" || h.Get("Access-Control-Allow-Origin") != row.origin {
			t.Errorf("%s: %v", row.name, h)
		}
		if (len(a.body) > 0) != row.body || row.body && (!strings.Contains(a.body, `"cfWaitingRoom":{"inWaitingRoom":true,`) || a.field("refresh_after") != h.Get("Retry-After")) {
			t.Errorf("%s: %s", row.name, a.text())
		}
		if n := h.Get("Content-Length"); n == "" || n == "0" {
			t.Errorf("%s: Content-Length %q", row.name, n)
		}
	}
}

package gateway

import (
	"strings"
	"testing"

	"github.com/anteroom/anteroom/gateway/answer"
)

// A status is private to a visitor: it is not stored, varies by cookie (and by Origin where pages of other sites may read it), and HEAD
// returns the same fields without the body.
func TestStatus_Headers(t *testing.T) {
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
		if h.Get("Cache-Control") != "no-store" || h.Get("Vary") != row.vary || h.Get("Content-Type") != answer.TypeJSON || h.Get("X-Waiting-Room") != "waiting" ||
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

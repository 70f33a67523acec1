package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/meter"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/internal/redistest"
)

// echoPass is an origin that responds with the passes, cookies and session that it receives.
func echoPass(t testing.TB) *site {
	return newSite(t, "shop", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/public" {
			w.Header().Set("Cache-Control", "public, max-age=60")
		}
		w.Header().Set("Saw-Passes", fmt.Sprint(len(r.Header.Values("X-Waiting-Room-Pass"))))
		w.Header().Set("Saw-Pass", r.Header.Get("X-Waiting-Room-Pass"))
		w.Header().Set("Saw-Session", r.Header.Get("X-Waiting-Room-Session"))
		w.Header().Set("Saw-Cookie", r.Header.Get("Cookie"))
	})
}

func TestForwardPass_SendsOnlyValidPasses(t *testing.T) {
	s := echoPass(t)
	on, off := originAt("on", s.URL), originAt("off", s.URL)
	on.ForwardPass = true
	open := policy(0)
	open.Method = admission.Passthrough
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{on, off}, DefaultOrigin: "on", Rooms: []Room{
		{ID: "sale", Paths: []string{"/sale", "/public"}, Origin: "on", Policy: policy(1), Renew: true, MaxSession: time.Hour, Bypass: []route.BypassRule{{Paths: []string{"/sale/static"}}}},
		{ID: "silent", Paths: []string{"/silent"}, Origin: "off", Policy: policy(1), Renew: true, MaxSession: time.Hour},
		{ID: "open", Paths: []string{"/open"}, Origin: "on", Policy: open},
	}})
	young, youngRaw := aPass(t, "sale", 0, 300, "")
	old, oldRaw := aPass(t, "sale", -200, 100, "")
	_, endedRaw := aPass(t, "sale", -400, -100, "")
	_, openRaw := aPass(t, "open", 0, 300, "")
	_, silentRaw := aPass(t, "silent", 0, 300, "")
	for _, row := range []struct {
		name  string
		lines []string
		want  string // "": none; "same": the visitor's; "renewed", "first": one that the gateway has signed
		of    string // the session
	}{
		{"a young pass in a cookie", []string{"GET /sale", "Cookie: a=1; wr_sale_pass=" + youngRaw}, "same", young.Session.String()},
		{"a young pass in the header", []string{"GET /sale", "X-Waiting-Room-Pass: " + youngRaw}, "same", young.Session.String()},
		{"a forged header beside a valid cookie", []string{"GET /sale", "X-Waiting-Room-Pass: x.y.z", "Cookie: wr_sale_pass=" + youngRaw}, "same", young.Session.String()},
		{"the second of two cookies", []string{"GET /sale", "Cookie: wr_sale_pass=tossed; wr_sale_pass=" + youngRaw}, "same", young.Session.String()},
		{"two headers", []string{"GET /sale", "X-Waiting-Room-Pass: " + youngRaw, "X-Waiting-Room-Pass: forged"}, "same", young.Session.String()},
		{"a pass past half its life", []string{"GET /sale", "Cookie: wr_sale_pass=" + oldRaw}, "renewed", old.Session.String()},
		{"renewed, though the response is public and the visitor keeps the old one", []string{"GET /public", "Cookie: wr_sale_pass=" + oldRaw}, "renewed", old.Session.String()},
		{"a POST with a body", []string{"POST /sale", "Cookie: wr_sale_pass=" + youngRaw, "", "body"}, "same", young.Session.String()},
		{"a request that starts a session", []string{"GET /sale", asJSON}, "first", ""},
		{"a bypass rule", []string{"GET /sale/static/x", "X-Waiting-Room-Pass: " + youngRaw, "Cookie: wr_sale_pass=" + youngRaw}, "", ""},
		{"an open room", []string{"GET /open", "X-Waiting-Room-Pass: " + openRaw, "Cookie: wr_open_pass=" + openRaw}, "", ""},
		{"outside rooms", []string{"GET /", "X-Waiting-Room-Pass: " + youngRaw}, "", ""},
		{"outside rooms, in another case", []string{"GET /", "x-waiting-room-PASS: " + youngRaw}, "", ""},
		{"an origin without the setting", []string{"GET /silent", "X-Waiting-Room-Pass: " + silentRaw, "Cookie: wr_silent_pass=" + silentRaw}, "", ""},
		{"a first session of an origin without the setting", []string{"GET /silent", asJSON}, "", ""},
	} {
		a := b.call(row.lines...).code(t, 200)
		got, session := a.header.Get("Saw-Pass"), a.header.Get("Saw-Session")
		if n := a.header.Get("Saw-Passes"); n != map[bool]string{true: "0", false: "1"}[row.want == ""] {
			t.Errorf("%s: the origin received %s passes: %q", row.name, n, got)
		}
		if strings.Contains(a.header.Get("Saw-Cookie"), "wr_") {
			t.Errorf("%s: the origin received the cookies %q", row.name, a.header.Get("Saw-Cookie"))
		}
		switch row.want {
		case "":
			if got != "" {
				t.Errorf("%s: the origin received %q", row.name, got)
			}
			continue
		case "same":
			if got != youngRaw {
				t.Errorf("%s: the origin received %q, want the visitor's pass", row.name, got)
			}
		case "renewed", "first":
			if left := readPass(t, got, "sale").Expires - time.Now().Unix(); got == oldRaw || left < 295 {
				t.Errorf("%s: the origin received a pass with %d s left", row.name, left)
			}
			if set := a.cookies["wr_sale_pass"]; set != "" && set != got || row.want == "first" && set == "" {
				t.Errorf("%s: the visitor received %q, the origin %q", row.name, set, got)
			}
		}
		p := readPass(t, got, "sale")
		if p.Session.String() != session || row.of != "" && session != row.of {
			t.Errorf("%s: a pass of session %s, X-Waiting-Room-Session %s, want %s", row.name, p.Session, session, row.of)
		}
	}
	// Visitors without a valid pass do not reach the origin, and spellings that some servers confuse with the header are refused.
	before := len(s.requests())
	for _, pass := range []string{"x.y.z", endedRaw, openRaw} {
		b.call("GET /sale", asJSON, "X-Waiting-Room-Pass: "+pass).code(t, 202)
	}
	for _, name := range []string{"X_Waiting_Room_Pass", "X.Waiting.Room.Pass", "X-Waiting_Room-Pass"} {
		b.call("GET /", name+": "+youngRaw).code(t, 400)
	}
	if after := len(s.requests()); after != before {
		t.Errorf("%d requests without a valid pass reached the origin", after-before)
	}
}

// After a revocation the pass neither opens the room nor reaches the origin.
func TestForwardPass_EndsWithSession(t *testing.T) {
	s := echoPass(t)
	on := originAt("on", s.URL)
	on.ForwardPass = true
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{on}, Rooms: []Room{{ID: "sale", Policy: policy(0), Renew: true, MaxSession: time.Hour}}})
	p, raw := aPass(t, "sale", 0, 300, "")
	b.call("GET /", "X-Waiting-Room-Pass: "+raw).code(t, 200)
	b.queue("sale").Revoke(admission.ID(p.Session))
	b.call("GET /", asJSON, "X-Waiting-Room-Pass: "+raw).code(t, 202)
}

// forwardPassPath returns a function that sends a request with a pass to an origin that receives passes.
func forwardPassPath(t testing.TB, on bool) func() {
	t.Helper()
	o := originAt("shop", plainOrigin(t))
	o.ForwardPass = on
	b := startTicking(t, redistest.Client(t), redistest.Prefix(t), calm, Options{
		Origins: []proxy.Config{o}, Rooms: []Room{{ID: "sale", Policy: policy(0), Renew: true, SessionRequests: meter.Quota{N: 1_000_000, Per: time.Second}}},
	})
	_, raw := aPass(t, "sale", 0, 300, "")
	return keepAsking(t, b.addr, "GET /sale/seats?row=7 HTTP/1.1\r\nHost: shop.test\r\nAccept: text/html\r\nCookie: cart=1; wr_sale_pass="+raw+"\r\n\r\n", []byte("\r\n\r\nok"))
}

func TestForwardPass_AllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ask := forwardPassPath(t, true)
	ask()
	if n := allocations(ask); n > 0 {
		t.Errorf("a request whose pass is forwarded makes %v allocations", n)
	}
}

func BenchmarkForwardPass(b *testing.B) {
	for name, on := range map[string]bool{"off": false, "on": true} {
		b.Run(name, func(b *testing.B) {
			ask := forwardPassPath(b, on)
			ask()
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}

package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/explain"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

// toExplain returns a request in the form of bench.call as one to explain.
func toExplain(lines ...string) *explain.Request {
	d := &explain.Request{Host: "shop.test", Address: netip.MustParseAddr("127.0.0.1")}
	d.Method, d.Target, _ = strings.Cut(lines[0], " ")
	for _, l := range lines[1:] {
		name, value, _ := strings.Cut(l, ": ")
		if name == "Host" {
			d.Host = value
			continue
		}
		d.Header = append(d.Header, [2]string{name, value})
	}
	return d
}

// requestCounts returns the requests that the metrics count, by room and outcome.
func (b *bench) requestCounts() string {
	b.t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if c := m.GetCounter(); c != nil && c.GetValue() > 0 && !strings.Contains(f.GetName(), "store") && !slices.Contains([]string{"anteroom_joins_total", "anteroom_admissions_total", "anteroom_claims_total"}, f.GetName()) { // those of the store
				lines = append(lines, fmt.Sprint(f.GetName(), m.GetLabel(), c.GetValue()))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// An explanation names what the gateway then does, and changes nothing.
func TestExplain_ForetellsDecision(t *testing.T) {
	s := newSite(t, "shop", nil)
	closed := policy(1)
	closed.Method = "reject"
	off := policy(1)
	off.Enabled = false
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL), originAt("other", s.URL)}, DefaultOrigin: "other",
		Rooms: []Room{
			{ID: "sale", Origin: "shop", Paths: []string{"/sale"}, Policy: policy(0), Bypass: []Bypass{{Paths: []string{"/sale/health"}}, {Methods: []string{"PUT"}}}},
			{ID: "open", Origin: "shop", Hosts: []string{"*.open.test"}, Paths: []string{"~^/b.y$"}, Policy: policy(1)},
			{ID: "shut", Origin: "shop", Hosts: []string{"shut.test"}, Policy: closed},
			{ID: "off", Origin: "shop", Hosts: []string{"off.test"}, Policy: off},
			{ID: "proof", Origin: "shop", Paths: []string{"/proof"}, Policy: policy(1), Guard: Guard{Proof: ProofAlways, Effort: guard.Effort{Number: 10, Most: 10, JoinRate: 100}}},
		},
	})
	for _, row := range []struct {
		name    string
		request []string
		want    string // room rule host path index decision why status code origin kind pass ticket
	}{
		{"no room", []string{"GET /free", asPage}, "- default_origin   0 proxy no_room 0  other navigation none none"},
		{"has to wait", []string{"GET /sale/x?a=1", asPage}, "sale room * /sale 0 wait queue 200  - navigation none none"},
		{"an API client", []string{"GET /sale", asJSON}, "sale room * /sale 0 wait queue 202  - api none none"},
		{"a client that sends", []string{"POST /sale", asJSON}, "sale room * /sale 0 wait queue 503  - api none none"},
		{"a subresource", []string{"GET /sale/a.png", "Sec-Fetch-Dest: image"}, "sale room * /sale 0 refuse refused 503 pass_needed - subresource none none"},
		{"the first bypass rule", []string{"GET /sale/health", asPage}, "sale bypass * /sale 0 proxy bypass 0  shop navigation none none"},
		{"the second bypass rule", []string{"PUT /sale/y", asJSON}, "sale bypass * /sale 1 proxy bypass 0  shop api none none"},
		{"an invalid pass", []string{"GET /sale", asJSON, "X-Waiting-Room-Pass: x.y.z"}, "sale room * /sale 0 wait queue 202  - api invalid none"},
		{"a preflight", []string{"OPTIONS /sale", "Access-Control-Request-Method: PUT"}, "sale room * /sale 0 proxy preflight 0  shop preflight none none"},
		{"closed", []string{"GET /", "Host: shut.test", asJSON}, "shut room shut.test / 0 refuse refused 503 room_closed - api none none"},
		{"switched off", []string{"GET /", "Host: off.test", asJSON}, "off room off.test / 0 proxy room_open 0  shop api none none"},
		{"a challenge", []string{"GET /proof", asPage}, "proof room * /proof 0 challenge challenge 200  - navigation none none"},
		{"a challenge of a client", []string{"GET /proof", asJSON}, "proof room * /proof 0 refuse refused 428 proof_required - api none none"},
		{"several readings", []string{"GET /sale/../proof", asPage}, "- ambiguous   0 redirect several_readings 308  - navigation none none"},
		{"admitted at once", []string{"GET /buy", "Host: a.open.test", asPage}, "open room *.open.test ~^/b.y$ 0 admit admitted 0  shop navigation none none"},
	} {
		before := "" // the request of the row before is counted after its response
		eventually(t, "the counters stand still", func() bool {
			last := before
			time.Sleep(20 * time.Millisecond)
			before = b.requestCounts()
			return before == last
		})
		e, err := Explain(t.Context(), b.Gateway, toExplain(row.request...))
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		orDash := func(s string) string {
			if s == "" {
				return "-"
			}
			return s
		}
		index := 0
		if e.Rule.Index != nil {
			index = *e.Rule.Index
		}
		got := fmt.Sprint(orDash(e.Room), " ", e.Rule.Kind, " ", e.Rule.Host, " ", e.Rule.Path, " ", index, " ", e.Decision, " ", e.Why, " ", e.Status, " ", e.Code, " ", orDash(e.Origin), " ", e.Kind, " ", e.Tokens.Pass, " ", e.Tokens.Ticket)
		if got != row.want || e.Text == "" {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
		if after := b.requestCounts(); after != before {
			t.Errorf("%s: the explanation was counted:\n%s\nbefore\n%s", row.name, after, before)
		}
		seen := len(s.requests())
		real := b.call(row.request...)
		if status := real.status; e.Status != 0 && status != e.Status || (e.Status == 0) != (len(s.requests()) > seen) {
			t.Errorf("%s: the gateway responds %d, explained as %d (%s)", row.name, status, e.Status, e.Decision)
		}
	}
	// With the cookies of a session and of a place.
	admitted := b.call("GET /buy", "Host: b.open.test", asPage)
	for range 50 {
		if admitted.cookies["wr_open_pass"] != "" {
			break
		}
		pause(20e6)
		admitted = b.call("GET /buy", "Host: b.open.test", asPage, admitted.jar())
	}
	if e, err := Explain(t.Context(), b.Gateway, toExplain("GET /bUy", "Host: b.open.test", admitted.jar())); err == nil && admitted.cookies["wr_open_pass"] != "" && (e.Why != "pass" || e.Tokens.Pass != tokenValid) {
		t.Errorf("with a pass: %+v", e)
	}
	waits := b.call("GET /sale", asPage)
	if e, err := Explain(t.Context(), b.Gateway, toExplain("GET /sale", asPage, waits.jar())); err != nil || e.Why != "queue" || e.Tokens.Ticket != tokenValid {
		t.Errorf("with a ticket: %+v, %v", e, err)
	}
	if e, err := Explain(t.Context(), b.Gateway, toExplain("GET /.waiting-room/sale/status")); err != nil || e.Rule.Kind != "own" || e.Text == "" {
		t.Errorf("%+v, %v", e, err)
	}
	for _, bad := range []*explain.Request{{Method: "G T", Target: "/", Host: "a"}, {Method: "GET", Target: "/\r\nX: y", Host: "a"}, {Method: "GET", Target: "/"}, {Method: "GET", Target: "/", Host: "a", Header: [][2]string{{"a b", "c"}}}} {
		if e, err := Explain(t.Context(), b.Gateway, bad); err == nil {
			t.Errorf("%+v is explained as %+v", bad, e)
		}
	}
	for room, want := range map[string]int64{"sale": 5, "proof": 0, "shut": 0} { // by the calls alone
		q := b.Gateway.state.Load().byID[room].queue
		eventually(t, "the joins of "+room+" are in the snapshot", func() bool { return q.Snapshot().Joins >= want })
		if n := q.Snapshot().Joins; n != want {
			t.Errorf("%d tickets of %s were taken, %d requests asked for one", n, room, want)
		}
	}
}

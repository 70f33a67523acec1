package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// operator uses the operators' socket.
type operator struct {
	t     testing.TB
	g     *gateway
	token string
}

func adminOf(t testing.TB, g *gateway) *operator { return &operator{t: t, g: g} }

func (o *operator) ask(method, target, body string, h ...headers) answer {
	o.t.Helper()
	c := newClient(o.t)
	send := headers{}
	if o.token != "" {
		send["Authorization"] = "Bearer " + o.token
	}
	if body != "" {
		send["Content-Type"] = "application/json"
	}
	r, err := c.tryAdmin(o.g.admin, method, target, body, append([]headers{send}, h...)...)
	if err != nil {
		o.t.Fatalf("%s %s: %v", method, target, err)
	}
	return r
}

// tryAdmin is like tryAt, for the operators' socket, whose responses have their own rules.
func (c *client) tryAdmin(addr, method, target, body string, h ...headers) (answer, error) {
	return c.lax().tryAt(addr, method, target, body, h...)
}

func (o *operator) get(path string) answer {
	o.t.Helper()
	return o.ask(http.MethodGet, "/admin/v1/"+path, "")
}

func (o *operator) post(path, body string) answer {
	o.t.Helper()
	return o.ask(http.MethodPost, "/admin/v1/"+path, body)
}

func (o *operator) patch(path, body string) answer {
	o.t.Helper()
	return o.ask(http.MethodPatch, "/admin/v1/"+path, body)
}

// roomInfo is a room in the operators' API.
type roomInfo struct {
	ID         string          `json:"id"`
	Policy     map[string]any  `json:"policy"`
	Live       map[string]any  `json:"live"`
	Waiting    int             `json:"waiting"`
	Parked     int             `json:"parked"`
	Admitted   int             `json:"admitted"`
	Active     int             `json:"active"`
	Rate       float64         `json:"rate"`
	Paused     bool            `json:"paused"`
	Draining   bool            `json:"draining"`
	OldestWait *float64        `json:"oldest_wait_seconds"`
	Origin     json.RawMessage `json:"origin"`
}

func (o *operator) room(id string) roomInfo {
	o.t.Helper()
	var r roomInfo
	a := o.get("rooms/" + id).want(http.StatusOK)
	if err := json.Unmarshal([]byte(a.body), &r); err != nil {
		o.t.Fatalf("%v\n%s", err, a.body)
	}
	return r
}

// rooms waits until a room has the wanted state.
func (o *operator) rooms(id string, done func(roomInfo) bool) {
	o.t.Helper()
	if !eventually(patience, func() bool { return done(o.room(id)) }) {
		o.t.Fatalf("the room never was as wanted; it is %s", o.get("rooms/"+id).body)
	}
}

func TestOperators_Rooms(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{
		"{id: sale, paths: [/sale], admission: {rate: 2.5, burst: 4, max_active: 100}, page: {message: Hello}}",
		"{id: vip, paths: [/vip], admission: {rate: 0}}",
	}})
	o := adminOf(t, g)
	var list struct{ Rooms []map[string]json.RawMessage }
	if err := json.Unmarshal([]byte(o.get("rooms").want(http.StatusOK).body), &list); err != nil || len(list.Rooms) != 2 {
		t.Fatalf("%v, %d rooms", err, len(list.Rooms))
	}
	for _, field := range []string{"id", "policy", "live", "waiting", "parked", "admitted", "active", "rate", "origin", "paused", "draining"} {
		if _, ok := list.Rooms[0][field]; !ok {
			t.Errorf("GET rooms: no field %s in %s", field, list.Rooms[0])
		}
	}
	c := newClient(t, g)
	c.ask(g, http.MethodPost, "/.waiting-room/vip/tickets", "").want(http.StatusCreated)
	o.rooms("vip", func(r roomInfo) bool { return r.Waiting == 1 && r.OldestWait != nil })
	one := o.get("rooms/vip").want(http.StatusOK).body
	for _, field := range []string{`"oldest_wait_seconds"`, `"p95_seconds"`, `"error_rate"`} {
		if field == `"oldest_wait_seconds"` && !strings.Contains(one, field) {
			t.Errorf("no %s in %s", field, one)
		}
	}
	o.get("rooms/nosuch").problem(http.StatusNotFound, "")
	o.get("nosuch").problem(http.StatusNotFound, "")
	o.ask(http.MethodPut, "/admin/v1/rooms/vip", "{}").problem(http.StatusMethodNotAllowed, "")
}

func TestOperators_LiveChanges(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}", "page: {message: From the file}")}})
	o, c := adminOf(t, g), newClient(t, g)
	waiting := c.join(g)
	if *waiting.Message != "From the file" {
		t.Errorf("message %q", *waiting.Message)
	}

	a := o.patch("rooms/sale", `{"message":"We are slow <today> & \"sorry\"","rate":7.125,"session":{"ttl":"2m"}}`).want(http.StatusOK)
	if !strings.Contains(a.body, `"id":"sale"`) && !strings.Contains(a.body, `"id": "sale"`) {
		t.Errorf("PATCH answers %s, want the room", a.body)
	}
	until(t, "the message is told and somebody is let in", func() bool {
		s := c.poll(g, waiting.Token)
		return *s.Message == `We are slow <today> & "sorry"` && s.State != "waiting"
	})
	late := c.join(g)
	if token := late.Token; late.State != "admitted" {
		until(t, "the next is let in", func() bool { late = c.poll(g, token); return late.Pass != "" })
	}
	if _, pass := decode(t, late.Pass); pass.Exp-pass.Iat != 120 {
		t.Errorf("a pass lives %d s after session.ttl 2m", pass.Exp-pass.Iat)
	}

	// A change survives a restart; null returns the field to the file.
	g.signal(syscall.SIGTERM)
	if code := g.wait(); code != 0 {
		t.Fatalf("ended with %d", code)
	}
	g.restart()
	o.rooms("sale", func(r roomInfo) bool { return strings.Contains(toJSON(r.Live), "7.125") })
	o.patch("rooms/sale", `{"message":null,"rate":null,"session":{"ttl":null}}`).want(http.StatusOK)
	until(t, "the file's message is back and nobody is let in", func() bool {
		s := c.join(g)
		return *s.Message == "From the file" && s.State == "waiting"
	})

	// 422 with every problem; no part of the change is applied.
	a = o.patch("rooms/sale", `{"rate":-1,"burst":"x","max_active":1.5,"session":{"ttl":"soon"},"message":"taken?","nosuch":1}`)
	a.problem(http.StatusUnprocessableEntity, "")
	for _, field := range []string{"rate", "burst", "max_active", "session.ttl", "nosuch"} {
		if !strings.Contains(a.body, field) {
			t.Errorf("422 does not name %s: %s", field, a.body)
		}
	}
	if s := c.join(g); *s.Message != "From the file" {
		t.Errorf("a part of a refused change was taken: %q", *s.Message)
	}
	for _, body := range []string{"", "{", "[]", `"x"`, `{"rate":1}{"rate":2}`} {
		if a := o.patch("rooms/sale", body); a.code < 400 || a.code >= 500 {
			t.Errorf("PATCH with %q: %d", body, a.code)
		}
	}
}

func TestOperators_PauseResumeDrain(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(50, 50))}})
	o, c := adminOf(t, g), newClient(t, g)
	if a := o.post("rooms/sale/pause", "").want(http.StatusOK); !strings.Contains(a.body, `"paused":true`) {
		t.Errorf("pause answers %s", a.body)
	}
	until(t, "nobody is let in while paused", func() bool { return c.join(g).State == "waiting" })
	waiting := c.join(g) // joins are still accepted
	if s := c.poll(g, waiting.Token); s.State != "waiting" || !*s.Paused {
		t.Errorf("while paused: %+v", s)
	}
	admitted := 0
	o.rooms("sale", func(r roomInfo) bool {
		admitted = r.Admitted + r.Active
		return r.Waiting >= 2 && r.Paused
	})

	if a := o.post("rooms/sale/drain", "").want(http.StatusOK); !strings.Contains(a.body, `"draining":true`) {
		t.Errorf("drain answers %s", a.body)
	}
	until(t, "nobody may join", func() bool {
		return c.ask(g, http.MethodPost, "/.waiting-room/sale/tickets", "").code == http.StatusServiceUnavailable
	})
	c.ask(g, http.MethodPost, "/.waiting-room/sale/tickets", "").problem(http.StatusServiceUnavailable, "room_draining").waits("rejected")
	newBrowser(t, g).get(g, "/", asBrowser).waits("rejected").has(headers{"Content-Type": "text/html*"})
	if s := c.poll(g, waiting.Token); s.State != "waiting" {
		t.Errorf("while paused and draining: %+v", s)
	}
	if now := o.room("sale"); now.Admitted+now.Active != admitted {
		t.Errorf("somebody was admitted while paused: %+v", now)
	}

	o.post("rooms/sale/resume", "").want(http.StatusOK)
	until(t, "those who wait are served", func() bool { return c.poll(g, waiting.Token).Pass != "" })
	o.rooms("sale", func(r roomInfo) bool { return !r.Paused })
}

func TestOperators_ResetEmptiesRoom(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}})
	o, c := adminOf(t, g), newClient(t, g)
	first, second := c.join(g), c.join(g)
	for _, body := range []string{"", "{}", `{"confirm":"other"}`} {
		if a := o.post("rooms/sale/reset", body); a.code < 400 || a.code >= 500 {
			t.Errorf("reset with %q: %d", body, a.code)
		}
	}
	if s := c.poll(g, first.Token); s.State != "waiting" {
		t.Fatalf("before the reset: %+v", s)
	}
	o.post("rooms/sale/reset", `{"confirm":"sale"}`).want(http.StatusOK)
	var s status
	until(t, "a token from before is expired", func() bool {
		s = c.poll(g, first.Token)
		return s.State == "expired"
	})
	if s.Reason != "reset" || s.Token == "" || s.Token == first.Token {
		t.Errorf("after the reset: %+v, want reason reset and a fresh token", s)
	}
	if now := c.poll(g, s.Token); now.State != "waiting" || *now.Position != 1 {
		t.Errorf("the fresh token: %+v, want the first place", now)
	}
	// On a gated path the old ticket is replaced in the same response.
	a := c.get(g, "/", headers{"Cookie": "wr_sale_ticket=" + second.Token}).want(http.StatusAccepted).waits("waiting")
	if s := a.status(); s.Token == "" || s.Token == second.Token {
		t.Errorf("a gated path with an old ticket: %+v", s)
	}
}

func TestOperators_TicketsHistoryAudit(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}})
	o, c := adminOf(t, g), newClient(t, g)
	s := c.join(g)
	_, ticket := decode(t, s.Token)

	a := o.get("rooms/sale/tickets/" + ticket.Jti).want(http.StatusOK)
	if !strings.Contains(a.body, "waiting") {
		t.Errorf("a ticket: %s", a.body)
	}
	o.ask(http.MethodDelete, "/admin/v1/rooms/sale/tickets/"+ticket.Jti, "").want(http.StatusNoContent)
	var gone status
	until(t, "the ticket is removed", func() bool { gone = c.poll(g, s.Token); return gone.State == "expired" })
	if gone.Reason != "removed" || gone.Token == "" {
		t.Errorf("removed: %+v", gone)
	}
	for _, id := range []string{"nosuch", strings.Repeat("A", 22)} {
		if a := o.get("rooms/sale/tickets/" + id); a.code != http.StatusNotFound && a.code != http.StatusUnprocessableEntity && a.code != http.StatusBadRequest {
			t.Errorf("ticket %s: %d", id, a.code)
		}
	}

	o.patch("rooms/sale", `{"rate":3}`).want(http.StatusOK)
	var audit struct {
		Entries []struct {
			At, Who, Room, Action string
			Before, After         json.RawMessage
		}
	}
	a = o.get("audit").want(http.StatusOK)
	if err := json.Unmarshal([]byte(a.body), &audit); err != nil || len(audit.Entries) < 2 {
		t.Fatalf("%v: %s", err, a.body)
	}
	for _, e := range audit.Entries {
		if e.At == "" || e.Who == "" || e.Room != "sale" || e.Action == "" {
			t.Errorf("audit entry %+v", e)
		}
	}

	until(t, "history tells of the join and an admission", func() bool {
		var history struct {
			Buckets []struct {
				At                string
				Joins, Admissions int
			}
		}
		a := o.get("rooms/sale/history?minutes=10").want(http.StatusOK)
		if err := json.Unmarshal([]byte(a.body), &history); err != nil {
			t.Fatalf("%v: %s", err, a.body)
		}
		joins, admissions := 0, 0
		for _, b := range history.Buckets {
			if b.At == "" {
				t.Fatalf("a bucket without at: %s", a.body)
			}
			joins, admissions = joins+b.Joins, admissions+b.Admissions
		}
		return joins >= 1 && admissions >= 1
	})
	if a := o.get("rooms/sale/history?minutes=x"); a.code < 400 || a.code >= 500 {
		t.Errorf("history?minutes=x: %d", a.code)
	}
}

// A session that an operator revokes ends within a second.
func TestOperators_RevokeSession(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0.001, burst: 1}")}})
	o, c := adminOf(t, g), newClient(t, g)
	pass := c.get(g, "/").want(http.StatusOK).header.Get("X-Waiting-Room-Pass")
	_, p := decode(t, pass)
	o.post("rooms/sale/sessions/"+p.Sid+"/revoke", "").want(http.StatusNoContent)
	until(t, "the pass is worth nothing", func() bool {
		return c.get(g, "/", headers{"X-Waiting-Room-Pass": pass}).code == http.StatusAccepted
	})
}

func TestOperators_Token(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	dir := tempDir(t)
	write(t, dir+"/reader", "reader-token-0123456789\n")
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(5, 5))},
		admin: `{listen: "127.0.0.1:0", token: "` + adminToken + `", tokens: [{name: reader, token_file: ` + dir + `/reader, role: read}]}`})
	g.secret("reader-token-0123456789")
	stranger, o := adminOf(t, g), &operator{t: t, g: g, token: adminToken}
	reader := &operator{t: t, g: g, token: "reader-token-0123456789"}
	for _, path := range []string{"rooms", "rooms/sale", "audit"} {
		stranger.get(path).problem(http.StatusUnauthorized, "")
		o.get(path).want(http.StatusOK)
		reader.get(path).want(http.StatusOK)
	}
	(&operator{t: t, g: g, token: adminToken + "x"}).get("rooms").want(http.StatusUnauthorized)
	stranger.patch("rooms/sale", `{"rate":1}`).want(http.StatusUnauthorized)
	reader.patch("rooms/sale", `{"rate":1}`).want(http.StatusForbidden)
	o.patch("rooms/sale", `{"rate":1}`).want(http.StatusOK)
	stranger.ask(http.MethodGet, "/debug/pprof/", "").want(http.StatusUnauthorized)
	o.ask(http.MethodGet, "/debug/pprof/", "").want(http.StatusOK)
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/"} {
		stranger.ask(http.MethodGet, path, "").want(http.StatusOK)
	}
	// The visitors' socket serves no operators' paths.
	for _, path := range []string{"/admin/v1/rooms", "/metrics"} {
		if a := newClient(t, g).get(g, path); a.header.Get("X-Origin") == "" {
			t.Errorf("%s on the visitors' socket: %d %s", path, a.code, a.body)
		}
	}
}

// On loopback without a token, a page of another site cannot change anything.
func TestOperators_RefuseForgedRequests(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}})
	o := adminOf(t, g)
	for _, h := range []headers{
		{"Origin": "https://evil.example", "Content-Type": "text/plain"},
		{"Sec-Fetch-Site": "cross-site"},
		{"Host": "rebound.evil.example"},
	} {
		if a := o.ask(http.MethodPost, "/admin/v1/rooms/sale/pause", "", h); a.code != http.StatusForbidden && a.code != 421 && a.code != 400 {
			t.Errorf("pause with %v: %d", h, a.code)
		}
	}
	if o.room("sale").Paused {
		t.Error("a forged request paused the room")
	}
}

// metricNames are metrics that every gateway exposes, whatever its configuration.
var metricNames = []string{
	"requests_total", "request_seconds", "upstream_seconds", "upstream_errors_total", "waiting", "parked", "active",
	"admitted_unclaimed", "joins_total", "admissions_total", "claims_total", "lapsed_total", "abandoned_total", "rate",
	"rate_limit", "wait_seconds", "eta_error_ratio", "snapshot_age_seconds", "store_command_seconds", "store_errors_total",
	"store_up", "tokens_rejected_total", "build_info",
}

// featureMetrics matches the metrics that are exposed only if a room is adaptive, its origin has a budget, its model is not used,
// waits were long enough to be compared with their estimates, or there are webhooks.
var featureMetrics = regexp.MustCompile("^anteroom_(rate_target|adaptive_|origin_budget_|eta_fallback|eta_coverage|webhook_)")

func TestMetrics(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(1, 1))}})
	o, c := adminOf(t, g), newClient(t, g)
	c.get(g, "/").want(http.StatusOK)
	o.post("rooms/sale/pause", "").want(http.StatusOK) // the next visitor waits, however slow the test is
	waiting := c.join(g)
	c.get(g, "/.waiting-room/sale/status", headers{"X-Waiting-Room-Token": "nonsense"}).want(http.StatusUnauthorized)
	o.post("rooms/sale/resume", "").want(http.StatusOK)
	until(t, "the second is in", func() bool { return c.poll(g, waiting.Token).Pass != "" })
	// The counters follow the events.
	text, missing := "", []string(nil)
	if !eventually(patience, func() bool {
		text, missing = o.ask(http.MethodGet, "/metrics", "").want(http.StatusOK).body, nil
		for _, line := range []string{
			`anteroom_admissions_total{room="sale"} 2`, // includes immediate admissions
			`anteroom_requests_total{outcome="let_in",room="sale"} 1`, `anteroom_joins_total{room="sale"} 2`, `anteroom_store_up 1`,
			`anteroom_rate_limit{room="sale"} 1`, `anteroom_wait_seconds_count{room="sale"} 1`,
		} {
			if !strings.Contains(text, line+"\n") {
				missing = append(missing, line)
			}
		}
		if !strings.Contains(matching(text, "anteroom_tokens_rejected_total"), " 1\n") {
			missing = append(missing, "the refused token")
		}
		return len(missing) == 0
	}) {
		t.Errorf("missing: %q among\n%s", missing, matching(text, "anteroom_"))
	}
	for _, name := range metricNames {
		if !strings.Contains(text, "# TYPE anteroom_"+name+" ") {
			t.Errorf("no metric anteroom_%s", name)
		}
	}
	docs, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(anteroom_[a-z_]+)` \\| ([a-z]+) ").FindAllStringSubmatch(string(docs), -1) {
		if !strings.Contains(text, "# TYPE "+row[1]+" "+row[2]+"\n") && !featureMetrics.MatchString(row[1]) {
			t.Errorf("in docs/metrics.md only: %s %s", row[1], row[2])
		}
	}
	if !slices.ContainsFunc([]string{"let_in", "proxied", "waiting", "bypass", "refused", "error"}, func(o string) bool { return strings.Contains(text, `outcome="`+o+`"`) }) {
		t.Error("no outcomes")
	}
}

func matching(text, prefix string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, prefix) {
			b.WriteString(l)
		}
	}
	return b.String()
}

func toJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
	"github.com/anteroom/anteroom/token"
)

var drawSecret = bytes.Repeat([]byte("draw"), 8)

// lottery returns the policy of a lottery that opens after opens, with a pre-queue before it. The seed is published one absence after
// the opening.
func lottery(id string, opens, absence time.Duration) admission.Policy {
	p := policy(1000)
	p.Method, p.Absence, p.PollBudget = admission.Lottery, absence, 20_000
	p.OpensAt = time.Now().Add(opens).UnixMicro()
	p.PrequeueAt = p.OpensAt - (time.Hour).Microseconds()
	p.Plan = admission.NewPlan(drawSecret, id, &p, nil)
	return p
}

func TestLottery_FromPrequeueToSeed(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.RegisteredBodyDecoder("application/json"))
	_, router := visitorAPI(t)
	p := lottery("sale", 15*time.Second, 16*time.Second) // a busy machine takes a while for what comes before the opening
	later := lottery("later", time.Hour, time.Minute)
	later.PrequeueAt = time.Now().Add(40 * time.Minute).UnixMicro()
	b, _ := oneTicking(t, calm, Room{ID: "sale", Policy: p, Compat: CompatCloudflare}, Room{ID: "later", Paths: []string{"/later"}, Policy: later},
		Room{ID: "plain", Paths: []string{"/plain"}, Policy: policy(1)})
	tell := func(status int, lines ...string) *response {
		t.Helper()
		a := b.call(lines...).code(t, status)
		conforms(t, router, a, lines...)
		return a
	}
	opens := answer.FormatTime(p.OpensAt)

	// Before the pre-queue no client may join.
	a := tell(503, "POST /.waiting-room/later/tickets")
	if a.field("code") != "room_closed" || a.field("opens_at") != answer.FormatTime(later.OpensAt) || a.field("prequeue_at") != answer.FormatTime(later.PrequeueAt) {
		t.Errorf("before the prequeue: %s", a.body)
	}
	var retry int
	if fmt.Sscan(a.header.Get("Retry-After"), &retry); retry < 39*60 || retry > 40*60 {
		t.Errorf("Retry-After %d, want the time until the pre-queue", retry)
	}
	if page := b.call("GET /later", asPage).code(t, 503); !strings.Contains(page.body, `data-state="rejected"`) || !strings.Contains(page.body, `data-begins="`+time.UnixMicro(later.OpensAt).UTC().Format(time.RFC3339)) {
		t.Error("the page does not count down")
	}
	tell(404, "GET /.waiting-room/plain/draw")

	// In the pre-queue.
	d := tell(200, "GET /.waiting-room/sale/draw")
	if d.field("seed") != "" || d.field("drawn") != "" || d.field("opens_at") != opens || d.field("commitment") == "" {
		t.Errorf("before the opening: %s", d.body)
	}
	const nonce = "a nonce of mine"
	joined := tell(201, "POST /.waiting-room/sale/tickets", "", `{"nonce":"`+nonce+`"}`)
	if joined.field("state") != "prequeue" || joined.field("position") != "" || joined.field("opens_at") != opens ||
		!strings.Contains(joined.body, `"isRandomQueue":true`) || !strings.Contains(joined.body, `"queueAll":true,`) ||
		!strings.Contains(joined.body, `"isEventPrequeueing":true`) {
		t.Errorf("joined: %s", joined.body)
	}
	token := joined.field("token")
	w, err := b.o.Ring.VerifyWaiting([]byte(token), "sale", time.Now().Unix())
	if err != nil || w.Order != 0 || w.Epoch == "" || mix(w.ID, []byte(nonce)) != w.ID {
		t.Errorf("the token is %+v %v", w, err)
	}
	with := "X-Waiting-Room-Token: " + token
	tell(200, "GET /.waiting-room/sale/status", with)
	if a := tell(409, "POST /.waiting-room/sale/claim", with); a.field("code") != "not_admitted" {
		t.Errorf("a claim before the opening: %s", a.body)
	}
	if a := b.call("GET /", asJSON).code(t, 202); a.field("state") != "prequeue" || a.header.Get("X-Waiting-Room") != "prequeue" {
		t.Errorf("on a gated path: %s", a.text())
	}
	if a := b.call("GET /", asPage).code(t, 200); a.header.Get("X-Waiting-Room") != "prequeue" || !strings.Contains(a.body, "Not open yet") {
		t.Errorf("the page: %s", a.text())
	}

	// An event stream reports the opening without a poll.
	_, events := listenTo(t, b.addr, token)
	var told struct {
		State    string
		Position int
	}
	for told.State == "" || told.State == "prequeue" {
		if err := json.Unmarshal([]byte(readUntil(t, events, "data: ")), &told); err != nil {
			t.Fatal(err)
		}
	}
	if told.State != "admitted" && (told.State != "waiting" || told.Position < 1) {
		t.Errorf("at the opening: %+v", told)
	}
	drawn := func() *response { return tell(200, "GET /.waiting-room/sale/draw") }
	eventually(t, "the draw is told", func() bool { return drawn().field("drawn") != "" })
	eventually(t, "the seed is told an absence later", func() bool { return drawn().field("seed") != "" })
	if drawn().field("commitment") != d.field("commitment") {
		t.Error("another commitment than before the opening")
	}
}

// Gateways with different secrets publish one commitment: that of the first gateway.
func TestLottery_GatewaysPublishOneCommitment(t *testing.T) {
	t.Parallel()
	s, client, prefix := newSite(t, "shop", nil), redistest.Client(t), redistest.Prefix(t)
	p := lottery("sale", time.Hour, time.Minute)
	gateway := func(secret string) *bench {
		p.Plan = admission.NewPlan(bytes.Repeat([]byte(secret), 32), "sale", &p, nil)
		return start(t, client, prefix, Options{Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: p}}})
	}
	published := func(b *bench) string {
		return b.call("GET /.waiting-room/sale/draw").code(t, 200).field("commitment")
	}
	first := gateway("a")
	eventually(t, "the store has the time of the draw", func() bool { return first.queue("sale").Snapshot().Opens == p.OpensAt })
	want := published(first)
	second := gateway("b")
	eventually(t, "the second publishes the commitment of the first", func() bool { return published(second) == want })
	if got := published(first); got != want {
		t.Errorf("the first now publishes %s, before %s", got, want)
	}
}

// A full queue refuses new tickets and keeps existing ones.
func TestFullRoom_RefusesOnlyNewTickets(t *testing.T) {
	t.Parallel()
	p := policy(0)
	p.Capacity = 2
	b, _ := one(t, Room{ID: "sale", Policy: p, Compat: CompatCloudflare})
	const key = "Idempotency-Key: 0123456789-0123456789-01"
	first := b.call("POST /.waiting-room/sale/tickets", key).code(t, 201)
	b.call("POST /.waiting-room/sale/tickets").code(t, 201)
	eventually(t, "the snapshot shows a full queue", func() bool { return b.call("POST /.waiting-room/sale/tickets").status == 503 })
	a := b.call("POST /.waiting-room/sale/tickets").code(t, 503)
	if a.field("code") != "room_full" || a.header.Get("Retry-After") == "" || a.header.Get("X-Waiting-Room") != "rejected" {
		t.Errorf("full: %s", a.text())
	}
	if a := b.call("POST /.waiting-room/sale/tickets", "Idempotency-Key: another-key-0123456789").code(t, 503); a.field("code") != "room_full" {
		t.Errorf("a new key: %s", a.text())
	}
	page := b.call("GET /", asPage).code(t, 503)
	if !strings.Contains(page.body, "The queue is full") || page.header.Get("Retry-After") == "" {
		t.Error("the page does not show that the queue is full")
	}
	b.call("POST /.waiting-room/sale/tickets", key).code(t, 200)
	if a := b.call("GET /.waiting-room/sale/status", "X-Waiting-Room-Token: "+first.field("token")).code(t, 200); !strings.Contains(a.body, `"queueIsFull":true`) {
		t.Errorf("a ticket in a full queue: %s", a.body)
	}
}

// In an open room the status is admitted, and the gateway signs no ticket and no pass. When the room closes again, no visitor has a
// place without having waited, or a pass that skips the queue. Existing tickets stay valid.
func TestOpenRoom_SignsNoTickets(t *testing.T) {
	t.Parallel()
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.RegisteredBodyDecoder("application/json"))
	_, router := visitorAPI(t)
	b, _ := one(t, Room{ID: "sale", Policy: policy(0), Guard: Guard{Proof: ProofAlways, Effort: light}})
	queue, ctx := b.queue("sale"), t.Context()
	const tickets, status, claim = "POST /.waiting-room/sale/tickets", "GET /.waiting-room/sale/status", "POST /.waiting-room/sale/claim"
	holder := b.call(tickets, "", b.proof("sale")).code(t, 201)
	lapsed := b.call(tickets, "", b.proof("sale")).code(t, 201)
	token := func(a *response) string { return "X-Waiting-Room-Token: " + a.field("token") }
	b.call("DELETE /.waiting-room/sale/tickets", token(lapsed)).code(t, 204)
	through, yes, no := admission.Passthrough, true, false
	for name, change := range map[string]admission.Live{"passthrough": {Method: &through}, "disabled": {Enabled: &no}} {
		if err := queue.Patch(ctx, "ann", change); err != nil {
			t.Fatal(err)
		}
		eventually(t, name, func() bool { p := queue.Snapshot().Policy; return p.Open() })
		goesOn := func(want int, lines ...string) {
			t.Helper()
			a := b.call(lines...).code(t, want)
			conforms(t, router, a, lines...)
			if a.field("state") != "admitted" || a.header.Get("X-Waiting-Room") != "admitted" || a.field("pass") != "" || a.field("position") != "" {
				t.Errorf("%s: %v: %s", name, lines, a.text())
			}
			if want == 201 && (a.field("token") != "" || len(a.cookies) > 0) {
				t.Errorf("%s: %v returns a ticket: %s", name, lines, a.text())
			}
		}
		goesOn(201, tickets)
		goesOn(201, tickets, "Idempotency-Key: 0123456789-0123456789-01")
		goesOn(201, tickets, "", `{"nonce":"mine"}`)
		goesOn(201, tickets, token(lapsed))
		b.call(tickets, "Idempotency-Key: short").code(t, 422)
		goesOn(200, tickets, token(holder))
		goesOn(200, status, token(holder))
		goesOn(200, status, token(lapsed))
		goesOn(200, claim, token(holder)) // as after the event admitted
		if a := b.call(status).code(t, 401); a.field("code") != "token_missing" {
			t.Errorf("%s: without a token: %s", name, a.body)
		}
	}
	if err := queue.Patch(ctx, "ann", admission.Live{Enabled: &yes, Clear: []string{"method"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it holds people up", func() bool { p := queue.Snapshot().Policy; return !p.Open() })
	if a := b.call(status, token(holder)).code(t, 200); a.field("state") != "waiting" || a.field("position") != "1" {
		t.Errorf("a visitor who waited: %s", a.body)
	}
	if s := queue.Snapshot(); s.Waiting != 1 || s.Active+s.Admitted != 0 {
		t.Errorf("%d wait and %d are admitted or active, want the one from before", s.Waiting, s.Active+s.Admitted)
	}
}

// Passthrough counts visitors and queues none. Waiting visitors are sent to the site.
func TestPassthrough_OnlyCounts(t *testing.T) {
	t.Parallel()
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	waits := b.call("GET /", asPage).code(t, 200)
	if waits.header.Get("X-Waiting-Room") != "waiting" {
		t.Fatal(waits.text())
	}
	through, closed := admission.Passthrough, admission.Reject
	queue := b.Views()[0].Queue
	ctx := t.Context()
	if err := queue.Patch(ctx, "ann", admission.Live{Method: &through}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the room is open", func() bool { return queue.Snapshot().Policy.Method == admission.Passthrough })
	served := func(a *response) {
		t.Helper()
		if a.status != 200 || !strings.HasPrefix(a.body, "shop ") {
			t.Errorf("not the origin's: %s", a.text())
		}
	}
	proxiedSoFar := func() float64 { return testutil.ToFloat64(b.metrics.Room("sale").Requests[proxied]) }
	before := proxiedSoFar()
	served(b.call("GET /", asPage))
	served(b.call("POST /buy", asJSON, waits.jar(), "", "x=1"))
	eventually(t, "2 requests are counted", func() bool { return proxiedSoFar() == before+2 }) // after their answers
	if a := b.call("GET /.waiting-room/sale/status", waits.jar()).code(t, 200); a.field("state") != "admitted" {
		t.Errorf("status of a waiting visitor: %s", a.body)
	}
	if a := b.call("POST /.waiting-room/sale/tickets").code(t, 201); a.field("state") != "admitted" || a.field("token") != "" || strings.Contains(a.body, "position") {
		t.Errorf("status of a join: %s", a.body)
	}
	if err := queue.Patch(ctx, "ann", admission.Live{Method: &closed}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the room is closed", func() bool { return b.call("GET /", asPage).status == 503 })
	if a := b.call("GET /.waiting-room/sale/status", waits.jar()).code(t, 200); a.field("state") != "rejected" {
		t.Errorf("status of a waiting visitor: %s", a.body)
	}
	if err := queue.Patch(ctx, "ann", admission.Live{Clear: []string{"method"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has a line again", func() bool {
		a := b.call("GET /.waiting-room/sale/status", waits.jar()).code(t, 200)
		return a.field("state") == "waiting" && a.field("position") == "1"
	})
}

// A lottery with accounts and proofs requests no proof before the pre-queue. Then each account has one ticket on all its devices, and
// the proof of one account is not valid for another.
func TestLottery_WithAccountsAndProofs(t *testing.T) {
	t.Parallel()
	p := lottery("sale", time.Hour, time.Minute)
	later := lottery("later", 2*time.Hour, time.Minute)
	later.PrequeueAt = time.Now().Add(time.Hour).UnixMicro()
	later.Plan = admission.NewPlan(drawSecret, "later", &later, nil)
	sale := members(p)
	sale.Guard = Guard{Proof: ProofAlways, Effort: light}
	fleet, _ := fleetOf(t, 2, sale, Room{ID: "later", Paths: []string{"/later"}, Policy: later, Guard: sale.Guard})
	b := fleet[0]
	if a := b.call("POST /.waiting-room/later/tickets").code(t, 503); a.field("code") != "room_closed" || a.field("opens_at") == "" {
		t.Errorf("before the prequeue: %s", a.body)
	}
	if page := b.call("GET /later", asPage).code(t, 503); strings.Contains(page.body, `data-state="proof"`) {
		t.Error("the page requests a proof before the pre-queue")
	}
	b.call(tickets, as("ann")).code(t, 428)
	proof := proofOf(t, b.call("GET /.waiting-room/sale/challenge", as("ann")).code(t, 200).body)
	first := b.call(tickets, as("ann"), "", proof).code(t, 201)
	if first.field("state") != "prequeue" {
		t.Errorf("%s", first.text())
	}
	b.call(tickets, as("bob"), "", proof).code(t, 422)
	for i, other := range fleet {
		again := other.call(tickets, as("ann"), "", proof)
		if again.status > 201 || jti(t, again) != jti(t, first) {
			t.Errorf("ann has another ticket at gateway %d: %s", i, again.text())
		}
	}
}

// A waiting visitor keeps the place while the room is closed, also with a client that requests only the page or the site.
func TestClosedRoom_RecordsPresence(t *testing.T) {
	t.Parallel()
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	queue := b.queue("sale")
	waits := b.call("GET /", asPage).code(t, 200)
	var ticket token.Waiting
	for raw := range strings.SplitSeq(waits.jar(), "; ") {
		if _, value, ok := strings.Cut(raw, "ticket="); ok {
			var err error
			if ticket, err = b.cache.VerifyWaiting([]byte(value), "sale", queue.RedisNow()/1e6); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen := func() int64 {
		t.Helper()
		f, err := queue.Lookup(t.Context(), admission.ID(ticket.ID))
		if err != nil {
			t.Fatal(err)
		}
		return f.Seen
	}
	closed := admission.Reject
	if err := queue.Patch(t.Context(), "ann", admission.Live{Method: &closed}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the room is closed", func() bool { return b.call("GET /", asPage).status == 503 })
	for _, lines := range [][]string{{"GET /", asPage}, {"HEAD /", asJSON}, {"GET /", asJSON}, {"POST /", asJSON}, {"GET /.waiting-room/sale", asPage}} {
		before := seen()
		eventually(t, "the store hears of who waits by "+lines[0], func() bool {
			a := b.call(append(lines, waits.jar())...)
			if a.status != 503 || a.header.Get("X-Waiting-Room") != "rejected" || a.header.Get("Retry-After") != "30" {
				t.Fatal(a.text())
			}
			return seen() > before
		})
	}
	if err := queue.Patch(t.Context(), "ann", admission.Live{Clear: []string{"method"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the room is open again", func() bool { return b.call("GET /", asPage, waits.jar()).header.Get("X-Waiting-Room") == "waiting" })
}

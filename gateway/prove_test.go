package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	altcha "github.com/altcha-org/altcha-lib-go"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/meter"
)

var light = guard.Effort{Number: 1000, Most: 8000, JoinRate: 50}

// proof solves a challenge of a room, and returns the body of a join with the solution.
func (b *bench) proof(room string) string {
	b.t.Helper()
	return proofOf(b.t, b.call("GET /.waiting-room/"+room+"/challenge").code(b.t, 200).body)
}

func proofOf(t testing.TB, body string) string {
	t.Helper()
	var c guard.Challenge
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		t.Fatal(err)
	}
	found, err := altcha.SolveChallenge(c.Challenge, c.Salt, altcha.SHA256, int(c.MaxNumber), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	solution, err := json.Marshal(altcha.Payload{Algorithm: c.Algorithm, Challenge: c.Challenge, Number: int64(found.Number), Salt: c.Salt, Signature: c.Signature})
	if err != nil {
		t.Fatal(err)
	}
	return `{"altcha":"` + base64.StdEncoding.EncodeToString(solution) + `"}`
}

func TestProof_IsRequiredForTicket(t *testing.T) {
	t.Parallel()
	b := guarded(t, Room{ID: "sale", Paths: []string{"/"}, Policy: policy(0), Guard: Guard{Proof: ProofAlways, Effort: light}},
		Room{ID: "other", Paths: []string{"/other"}, Policy: policy(0), Guard: Guard{Proof: ProofAlways, Effort: light}},
		Room{ID: "free", Paths: []string{"/free"}, Policy: policy(0)})
	tickets := "POST /.waiting-room/sale/tickets"
	_, api := visitorAPI(t)
	conforms(t, api, b.call("GET /.waiting-room/sale/challenge"), "GET /.waiting-room/sale/challenge")
	conforms(t, api, b.call(tickets).code(t, 428), tickets)
	b.call(tickets).is(t, `
428
Cache-Control: no-store
Content-Type: application/problem+json
Vary: Cookie
X-Content-Type-Options: nosniff
X-Waiting-Room: proof

{"type":"urn:anteroom:problem:proof_required","title":"A proof of work is required","status":428,"detail":"GET the challenge, solve it, and POST tickets with the solution as altcha.","code":"proof_required","challenge":"/.waiting-room/sale/challenge"}`)
	b.call("GET /buy", asJSON).code(t, 428)
	b.call("POST /buy", asJSON, "", "body").code(t, 428)
	page := b.call("GET /buy", asPage).code(t, 200)
	if !strings.Contains(page.body, `data-state="proof"`) || page.header.Get("X-Waiting-Room") != "proof" || len(page.cookies) != 0 {
		t.Errorf("the page: %s", page.text())
	}
	if csp := page.header.Get("Content-Security-Policy"); !strings.Contains(csp, "worker-src 'self'") || strings.Contains(csp, "https:") || strings.Contains(csp, "unsafe") {
		t.Errorf("its policy: %s", csp)
	}
	_, address, _ := strings.Cut(page.body, `<script src="`)
	address, _, _ = strings.Cut(address, `"`)
	script := b.call("GET "+address).code(t, 200)
	if !strings.Contains(script.header.Get("Cache-Control"), "immutable") || !strings.Contains(script.body, "function search") ||
		script.header.Get("Content-Security-Policy") != guard.WorkerPolicy {
		t.Errorf("%s: %s", address, script.text())
	}

	proof := b.proof("sale")
	first := b.call(tickets, "", proof).code(t, 201)
	again := b.call(tickets, from("203.0.113.9"), "", proof).code(t, 200)
	if a, c := jti(t, first), jti(t, again); a != c {
		t.Errorf("one proof made two tickets, %s and %s", a, c)
	}
	key := "Idempotency-Key: 0123456789abcdefghijklm"
	if keyed := b.call(tickets, key, "", proof).code(t, 200); jti(t, keyed) != jti(t, first) {
		t.Error("the proof made another ticket for a join with a key")
	}
	b.call(tickets, first.jar()).code(t, 200) // who has a place is not asked again
	b.call("GET /buy", asJSON, first.jar()).code(t, 202)
	if n := testutil.ToFloat64(b.metrics.Room("sale").Proofs["repeated"]); n != 2 {
		t.Errorf("%v repeated, want 2", n)
	}
	b.call("DELETE /.waiting-room/sale/tickets", "X-Waiting-Room-Token: "+first.field("token")).code(t, 204)
	if a := b.call(tickets, "", proof).code(t, 409); a.field("code") != "proof_spent" {
		t.Error(a.text())
	}

	if a := b.call("POST /.waiting-room/other/tickets", "", b.proof("sale")).code(t, 422); a.field("code") != "proof_invalid" || a.field("field") != "altcha" {
		t.Errorf("another room's: %s", a.text())
	}
	b.call(tickets, "", strings.Replace(b.proof("sale"), "A", "B", 1)).code(t, 422)
	r := b.state.Load().byID["sale"]
	late, err := json.Marshal(r.proofs.Challenge(100, r.queue.RedisNow()/1e6-10))
	if err != nil {
		t.Fatal(err)
	}
	if a := b.call(tickets, "", proofOf(t, string(late))).code(t, 422); a.field("code") != "proof_expired" {
		t.Errorf("late: %s", a.text())
	}
	b.call("GET /.waiting-room/free/challenge").code(t, 404)
	b.call("POST /.waiting-room/free/tickets", "", proof).code(t, 201) // this room requires no proof
}

// After the ticket of a proof is claimed, only the same client can repeat the join.
func TestProof_WorksForItsClientOnly(t *testing.T) {
	t.Parallel()
	b := guarded(t, Room{ID: "sale", Policy: policy(1), Guard: Guard{Proof: ProofAlways, Effort: light}})
	tickets, proof := "POST /.waiting-room/sale/tickets", b.proof("sale")
	sid := func(a *response) (c struct{ SID string }) {
		if err := json.Unmarshal([]byte(claims(t, a.field("pass"))), &c); err != nil || c.SID == "" {
			t.Fatal(err, a.text())
		}
		return c
	}
	first := b.call(tickets, from("203.0.113.7"), "", proof).code(t, 201)
	if again := b.call(tickets, from("203.0.113.7"), "", proof).code(t, 200); sid(again) != sid(first) {
		t.Errorf("a repeat by its client: %s", again.text())
	}
	for _, other := range []string{from("198.51.100.9"), from("203.0.113.7") + "\r\nUser-Agent: another"} {
		if a := b.call(tickets, other, "", proof).code(t, 409); a.field("code") != "proof_spent" || a.field("pass") != "" || len(a.cookies) != 0 {
			t.Errorf("%q: %s", other, a.text())
		}
	}
}

// The proof of an account is valid for one ticket. After that ticket has ended, the next ticket requires another proof.
func TestProof_OfAccountIsSpentOnce(t *testing.T) {
	t.Parallel()
	sale := members(policy(0))
	sale.Guard = Guard{Proof: ProofAlways, Effort: light}
	fleet, _ := fleetOf(t, 2, sale)
	proof := func() string {
		return proofOf(t, fleet[0].call("GET /.waiting-room/sale/challenge", as("ann")).code(t, 200).body)
	}
	once := proof()
	first := fleet[0].call(tickets, as("ann"), "", once).code(t, 201)
	if again := fleet[1].call(tickets, as("ann"), "", once).code(t, 200); jti(t, again) != jti(t, first) {
		t.Errorf("a repeated join made another ticket: %s", again.text())
	}
	fleet[1].call("DELETE /.waiting-room/sale/tickets", as("ann"), "X-Waiting-Room-Token: "+first.field("token")).code(t, 204)
	for i, b := range fleet {
		if a := b.call(tickets, as("ann"), "", once).code(t, 409); a.field("code") != "proof_spent" || len(a.cookies) != 0 {
			t.Errorf("gateway %d: %s", i, a.text())
		}
	}
	second := fleet[1].call(tickets, as("ann"), "", proof()).code(t, 201)
	if jti(t, second) == jti(t, first) {
		t.Error("a ticket that was given up was returned again")
	}
	for outcome, want := range map[string]float64{"accepted": 2, "spent": 2} {
		got := 0.0
		for _, b := range fleet {
			got += testutil.ToFloat64(b.metrics.Room("sale").Proofs[outcome])
		}
		if got != want {
			t.Errorf("%v proofs were %s, want %v", got, outcome, want)
		}
	}
}

// A room that refuses all joins requests no proof.
func TestProof_IsNotRequestedByRoomThatRefusesJoins(t *testing.T) {
	t.Parallel()
	full := policy(0)
	full.Capacity = 1
	b := guarded(t, Room{ID: "sale", Paths: []string{"/"}, Policy: full, Guard: Guard{Proof: ProofAlways, Effort: light}})
	tickets := "POST /.waiting-room/sale/tickets"
	for _, path := range []string{"POST /.waiting-room/sale/tickets", "GET /buy"} {
		b.call(path, asJSON).code(t, 428)
	}
	b.call(tickets, "", b.proof("sale")).code(t, 201)
	shut := func(code string) {
		t.Helper()
		eventually(t, code, func() bool { return b.call(tickets, asJSON).field("code") == code })
		for _, path := range []string{tickets, "GET /buy"} {
			if a := b.call(path, asJSON).code(t, 503); a.field("code") != code {
				t.Errorf("%s: %s", path, a.text())
			}
		}
		if page := b.call("GET /buy", asPage).code(t, 503); strings.Contains(page.body, `data-state="proof"`) {
			t.Errorf("%s: the page requests a proof", code)
		}
	}
	shut("room_full")
	if err := b.queue("sale").Drain(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	shut("room_draining")
}

func jti(t testing.TB, a *response) string {
	t.Helper()
	var c struct{ JTI string }
	if err := json.Unmarshal([]byte(claims(t, a.field("token"))), &c); err != nil || c.JTI == "" {
		t.Fatal(err, a.text())
	}
	return c.JTI
}

// A client whose ticket has expired has to solve a new proof for the next ticket.
func TestProof_IsRequiredAfterExpiry(t *testing.T) {
	t.Parallel()
	b := guarded(t, Room{ID: "sale", Policy: policy(0), Guard: Guard{Proof: ProofAlways, Effort: light}})
	place := b.call("POST /.waiting-room/sale/tickets", "", b.proof("sale")).code(t, 201)
	if err := b.state.Load().rooms[0].queue.Reset(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reset is known", func() bool {
		return b.call("GET /.waiting-room/sale/status", place.jar()).field("state") == "expired"
	})
	a := b.call("GET /.waiting-room/sale/status", place.jar()).code(t, 200)
	if a.field("token") != "" || a.field("reason") != "reset" || len(a.cookies) != 0 {
		t.Errorf("an expired place: %s", a.text())
	}
	b.call("GET /buy", asJSON, place.jar()).code(t, 428)
	if page := b.call("GET /buy", asPage, place.jar()).code(t, 200); !strings.Contains(page.body, `data-state="proof" data-reason="reset"`) {
		t.Errorf("the page: %s", page.text())
	}
}

func TestProof_AutoRequiresItWhileQueueExists(t *testing.T) {
	t.Parallel()
	b := guarded(t, Room{ID: "sale", Policy: policy(1), Guard: Guard{Proof: ProofAuto, Effort: light}})
	tickets := "POST /.waiting-room/sale/tickets"
	if a := b.call(tickets).code(t, 201); a.field("state") != "admitted" {
		t.Fatalf("the first: %s", a.text())
	}
	b.call(tickets).code(t, 201) // waits, so a queue exists
	eventually(t, "the snapshot has the waiting ticket", func() bool { return b.state.Load().rooms[0].queue.Snapshot().Waiting == 1 })
	b.call(tickets).code(t, 428)
	b.call(tickets, "", b.proof("sale")).code(t, 201)
	if got := b.state.Load().rooms[0].proofEffort(); got != light.Number {
		t.Errorf("the number is %d, want %d", got, light.Number)
	}
}

func TestIdempotencyKey_OfTicketNeedsNoProof(t *testing.T) {
	t.Parallel()
	b := guarded(t, Room{ID: "sale", Policy: policy(1), Guard: Guard{Proof: ProofAuto, Effort: light}})
	tickets, key := "POST /.waiting-room/sale/tickets", "Idempotency-Key: 0123456789abcdefghijklm"
	b.call(tickets).code(t, 201)
	first := b.call(tickets, key).code(t, 201)
	eventually(t, "the snapshot has the waiting ticket", func() bool { return b.state.Load().rooms[0].queue.Snapshot().Waiting == 1 })
	if again := b.call(tickets, key).code(t, 200); jti(t, again) != jti(t, first) {
		t.Errorf("the key's place: %s, then %s", first.text(), again.text())
	}
	b.call(tickets, "Idempotency-Key: another-6789abcdefghijklm").code(t, 428)
	b.call(tickets, "", b.proof("sale")).code(t, 201) // still waits when the key's place is given up
	b.call("DELETE /.waiting-room/sale/tickets", "X-Waiting-Room-Token: "+first.field("token")).code(t, 204)
	b.call(tickets, key).code(t, 428)
}

// If the ticket of a key is the session of another client, for example another browser in the network, the key counts as new.
func TestIdempotencyKey_OfOtherSessionIsIgnored(t *testing.T) {
	t.Parallel()
	b := guarded(t, Room{ID: "sale", Policy: policy(1), Guard: Guard{Proof: ProofAuto, Effort: light}})
	tickets, key := "POST /.waiting-room/sale/tickets", "Idempotency-Key: 0123456789abcdefghijklm"
	b.call(tickets, key, "User-Agent: one").code(t, 201) // in a quiet room
	b.call(tickets).code(t, 201)                         // waits
	eventually(t, "the snapshot has the waiting ticket", func() bool { return b.state.Load().rooms[0].queue.Snapshot().Waiting == 1 })
	if a := b.call(tickets, key, "User-Agent: one").code(t, 200); a.field("state") != "active" {
		t.Errorf("its own: %s", a.text())
	}
	b.call(tickets, key, "User-Agent: two").code(t, 428)
}

func TestCaptcha_IsRequiredForTicket(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100)
	judge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.PostFormValue("response") + " of " + r.PostFormValue("remoteip") + " with " + r.PostFormValue("secret")
		switch r.PostFormValue("response") {
		case "away":
			w.WriteHeader(500)
		case "flood":
			w.WriteHeader(429)
		case "phished":
			fmt.Fprint(w, `{"success":true,"hostname":"phish.evil"}`)
		case "no":
			fmt.Fprint(w, `{"success":false,"error-codes":["timeout-or-duplicate"]}`)
		default:
			fmt.Fprint(w, `{"success":true,"hostname":"shop.test"}`)
		}
	}))
	t.Cleanup(judge.Close)
	captcha := guard.Captcha{Provider: guard.Turnstile, SiteKey: "0x4", Secret: "s3cret", VerifyURL: judge.URL, Timeout: time.Minute, Hosts: []string{"shop.test"}}
	open := captcha
	open.Open, open.VerifyURL = true, judge.URL+"/open"
	b := guarded(t, Room{ID: "sale", Policy: policy(0), Guard: Guard{Captcha: captcha}},
		Room{ID: "both", Paths: []string{"/both"}, Policy: policy(0), Guard: Guard{Captcha: captcha, Proof: ProofAlways, Effort: light}},
		Room{ID: "open", Paths: []string{"/open"}, Policy: policy(0), Guard: Guard{Captcha: open}})
	join := func(room, body string) *response {
		return b.call("POST /.waiting-room/"+room+"/tickets", from("203.0.113.7"), "", body)
	}
	if a := join("sale", "{}").code(t, 428); a.field("code") != "captcha_required" || a.field("challenge") != "/.waiting-room/sale/challenge" {
		t.Error(a.text())
	}
	_, api := visitorAPI(t)
	conforms(t, api, b.call("GET /.waiting-room/both/challenge"), "GET /.waiting-room/both/challenge")
	if a := b.call("GET /.waiting-room/sale/challenge").code(t, 200); a.body != `{"captcha":{"provider":"turnstile","site_key":"0x4"}}` {
		t.Error(a.text())
	}
	first := join("sale", `{"captcha":"yes"}`).code(t, 201)
	if got := <-asked; got != "yes of 203.0.113.7 with s3cret" {
		t.Errorf("the provider was asked %q", got)
	}
	if again := join("sale", `{"captcha":"yes"}`).code(t, 200); jti(t, again) != jti(t, first) {
		t.Error("one solution made two tickets")
	}
	if len(asked) != 0 {
		t.Error("the gateway checked the solution of a repeated join again")
	}
	if a := join("sale", `{"captcha":"no"}`).code(t, 422); a.field("code") != "captcha_failed" {
		t.Error(a.text())
	}
	if a := join("sale", `{"captcha":"away"}`).code(t, 503); a.field("code") != "captcha_unavailable" || a.header.Get("Retry-After") == "" {
		t.Error(a.text())
	}
	join("open", `{"captcha":"no"}`).code(t, 422)
	for range 3 {
		join("open", `{"captcha":"flood"}`).code(t, 503)
	}
	for range 2 { // so far it may be the visitor's doing
		join("open", `{"captcha":"away"}`).code(t, 503)
	}
	join("open", `{"captcha":"away"}`).code(t, 201)
	for _, line := range []string{"cannot check a CAPTCHA solution; the join is refused", "cannot check a CAPTCHA solution; the join is accepted, because captcha.on_fail is open"} {
		if !strings.Contains(b.logs.String(), `"msg":"`+line+`","room":"open"`) {
			t.Errorf("no line %q about the room open in the log\n%s", line, b.logs)
		}
	}
	// An address that sends many wrong solutions has no more of them checked for a while, also with on_fail: open.
	eve := forgerOf("203.0.113.7", forgedAnswer)
	if b.meters.forgeries.Exhausted(eve, 0, meter.Quota{N: 1, Per: time.Hour}, 1) == 0 {
		t.Error("a wrong solution is not counted")
	}
	b.meters.forgeries.Take(eve, time.Hour, forgeryQuota, 1) // as if an hour's allowance were used up
	before := len(asked)
	for _, name := range []string{"sale", "open"} {
		if a := join(name, `{"captcha":"anew"}`).code(t, 503); a.field("code") != "captcha_unavailable" {
			t.Error(a.text())
		}
	}
	if len(asked) != before {
		t.Error("the provider was called for an address that had sent too many wrong solutions")
	}
	b.meters.forgeries = meter.NewRequests()
	// The host in the provider's response counts, not the host of the visitor's request.
	if a := b.call("POST /.waiting-room/sale/tickets", "Host: phish.evil", from("203.0.113.7"), "", `{"captcha":"phished"}`).code(t, 422); a.field("code") != "captcha_failed" {
		t.Error(a.text())
	}
	proof := strings.TrimSuffix(b.proof("both"), "}")
	join("both", proof+"}").code(t, 428)
	join("both", `{"captcha":"yes"}`).code(t, 428)
	join("both", proof+`,"captcha":"more"}`).code(t, 201)
	o := b.o
	captcha.Hosts = nil
	o.Rooms = []Room{{ID: "sale", Policy: policy(0), Guard: Guard{Captcha: captcha}}}
	if err := b.Reload(o); err == nil || !strings.Contains(err.Error(), "rooms.sale.guard.captcha.hosts") {
		t.Errorf("a room over every host: %v", err)
	}
	o.Rooms[0].Hosts = []string{"www.test"}
	if err := b.Reload(o); err != nil {
		t.Fatal(err)
	}
	if a := b.call("POST /.waiting-room/sale/tickets", "Host: www.test", from("203.0.113.7"), "", `{"captcha":"theirs"}`).code(t, 422); a.field("code") != "captcha_failed" {
		t.Errorf("a solution for shop.test in a room of www.test: %s", a.text())
	}
	if err := b.Reload(b.o); err != nil {
		t.Fatal(err)
	}
	page := b.call("GET /buy", asPage).code(t, 200)
	if csp := page.header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-src https://challenges.cloudflare.com") {
		t.Errorf("the policy: %s", csp)
	}
}

func FuzzParseJoin(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", "[]", `{"nonce":"a"}`, `{"altcha":"e30=","captcha":"x","nonce":"ü"}`, `{"altcha":null}`, `{"captcha":""}`, `{"other":1}`, `{"nonce":"a","nonce":"b"}`, "{\"\xff\":1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		j, p := parseJoin(body)
		if p == nil {
			p = &answer.Problem{}
		}
		switch {
		case p.Detail != "" && j != (joinBody{}):
			t.Errorf("%q: %+v and %s", body, j, p.Detail)
		case !utf8.ValidString(p.Field), !utf8.ValidString(j.nonce + j.altcha + j.captcha):
			t.Errorf("%q: no UTF-8 in %q or %+v", body, p.Field, j)
		case len([]rune(j.nonce)) > nonceMax, len(j.captcha) > 4*guard.TokenMost, len(j.altcha) > 4*guard.ProofMost:
			t.Errorf("%q: too long", body)
		}
	})
}

// The number of tries grows with the join rate. A reload that turns the proof on keeps existing tickets.
func TestProof_EffortFollowsJoinRate(t *testing.T) {
	t.Parallel()
	b := guarded(t, Room{ID: "sale", Policy: policy(0)})
	place := b.call("POST /.waiting-room/sale/tickets").code(t, 201)
	o := b.o
	o.Rooms = []Room{{ID: "sale", Policy: policy(0), Guard: Guard{Proof: ProofAlways, Effort: guard.Effort{Number: 1000, Most: 8000, JoinRate: 0.01}}}}
	if err := b.Reload(o); err != nil {
		t.Fatal(err)
	}
	if a := b.call("GET /.waiting-room/sale/status", place.jar()).code(t, 200); a.field("state") != "waiting" {
		t.Errorf("a place from before: %s", a.text())
	}
	b.call("POST /.waiting-room/sale/tickets").code(t, 428)
	number := func() string { return b.call("GET /.waiting-room/sale/challenge").code(t, 200).field("maxnumber") }
	eventually(t, "the number has grown to its most", func() bool {
		b.call("POST /.waiting-room/sale/tickets", "", b.proof("sale")).code(t, 201)
		return number() == "8000"
	})
}

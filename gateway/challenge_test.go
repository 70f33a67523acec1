package gateway

import (
	"strings"
	"testing"

	"github.com/anteroom/anteroom/admission"
)

// setChallenge changes the level of the room's challenge as an operator; "": as configured.
func (b *bench) setChallenge(level string) {
	b.t.Helper()
	change := admission.Live{Challenge: &level}
	if level == "" {
		change = admission.Live{Clear: []string{"challenge"}}
	}
	if err := b.Views()[0].Queue.Patch(b.t.Context(), "ann", change); err != nil {
		b.t.Fatal(err)
	}
}

// An operator raises and lowers the challenge of a room, whatever its configuration has. Visitors with a place keep it.
func TestChallenge_FollowsOperator(t *testing.T) {
	t.Parallel()
	const tickets, challenge = "POST /.waiting-room/sale/tickets", "GET /.waiting-room/sale/challenge"
	for _, row := range []struct {
		configured, level string
		asks              bool
		number            string // of a challenge; "": there is none
	}{
		{"", "", false, ""}, {"", ProofNone, false, ""}, {"", ProofAuto, true, "1000"}, {"", ProofAlways, true, "1000"}, {"", ProofHardest, true, "8000"},
		{ProofAlways, "", true, "1000"}, {ProofAlways, ProofNone, false, ""}, {ProofAlways, ProofHardest, true, "8000"},
	} {
		t.Run(row.configured+"-"+row.level, func(t *testing.T) {
			t.Parallel()
			b := guarded(t, Room{ID: "sale", Policy: policy(0), Guard: Guard{Proof: row.configured, Effort: light}})
			place := b.call(tickets, "", b.maybeProof(row.configured)).code(t, 201)
			if row.level != "" {
				b.setChallenge(row.level)
			}
			if a := b.call("GET /.waiting-room/sale/status", place.jar()).code(t, 200); a.field("state") != "waiting" {
				t.Errorf("a place from before: %s", a.text())
			}
			page := b.call("GET /buy", asPage).code(t, 200)
			if got := strings.Contains(page.body, `data-state="proof"`); got != row.asks {
				t.Errorf("the page asks for a proof: %v, want %v", got, row.asks)
			}
			if got := strings.Contains(page.header.Get("Content-Security-Policy"), "worker-src"); got != row.asks || got != strings.Contains(page.body, "/pow-") {
				t.Errorf("the page with a proof %v has the policy %s", row.asks, page.header.Get("Content-Security-Policy"))
			}
			if !row.asks {
				b.call(challenge).code(t, 404)
				b.call(tickets).code(t, 201)
				return
			}
			b.call(tickets).code(t, 428)
			if a := b.call(challenge).code(t, 200); a.field("maxnumber") != row.number {
				t.Errorf("%s, want a number of %s", a.text(), row.number)
			}
			b.call(tickets, "", b.proof("sale")).code(t, 201)
			b.setChallenge("")
			if row.configured == "" {
				b.call(tickets).code(t, 201)
			}
		})
	}
}

// maybeProof returns the body of a join at a configured level.
func (b *bench) maybeProof(configured string) string {
	if configured == "" {
		return ""
	}
	return b.proof("sale")
}

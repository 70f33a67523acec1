package console

import (
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/token"
)

// permit returns a permit of the room sale. Missing fields have usual values; Expires is relative to the end of a new permit.
func (b *bench) permit(p token.Permit) string {
	b.t.Helper()
	if p.Room == "" {
		p.Room = "sale"
	}
	if p.Epoch == "" {
		p.Epoch = b.sale.Snapshot().Epoch
	}
	if p.Session == (token.ID{}) {
		p.Session = token.ID{1}
	}
	if p.ID == (token.ID{}) {
		p.ID = token.ID{2}
	}
	p.Path, p.Method = "/seatmap/812", "POST"
	p.IssuedAt = b.clock.now().Unix() + p.Expires
	p.Expires = p.IssuedAt + token.PermitLife
	return string(b.ring.AppendPermit(nil, &p))
}

func permitBody(raw string) string { return `{"permit":"` + raw + `"}` }

const redeemPath = "/admin/v1/permits/redeem"

func TestRedeem(t *testing.T) {
	b := newBench(t)
	raw := b.permit(token.Permit{})
	want(t, b.ask("POST", redeemPath, permitBody(raw)), 200,
		`{"redeemed":true,"room":"sale","sid":"`+token.ID{1}.String()+`","for":"/seatmap/812","method":"POST"}`)
	wantCode(t, b.ask("POST", redeemPath, permitBody(raw)), 409, "already_redeemed")
	want(t, b.ask("POST", redeemPath, permitBody(b.permit(token.Permit{ID: token.ID{3}}))), 200)

	pass := string(b.ring.AppendPass(nil, &token.Pass{ID: token.ID{4}, Session: token.ID{1}, Room: "sale", IssuedAt: b.clock.now().Unix(), Expires: b.clock.now().Unix() + 60}))
	at := len(raw) - 9 // within the signature
	changed := raw[:at] + string(raw[at]^1) + raw[at+1:]
	for _, row := range []struct {
		name, body string
		status     int
		code       string
		want       string
	}{
		{"expired", permitBody(b.permit(token.Permit{ID: token.ID{5}, Expires: -token.PermitLife - token.Leeway})), 410, "permit_expired", ""},
		{"of another epoch of the store", permitBody(b.permit(token.Permit{ID: token.ID{6}, Epoch: "1.other"})), 410, "permit_expired", "lost data"},
		{"issued in the future", permitBody(b.permit(token.Permit{ID: token.ID{6}, Expires: token.Leeway + 1})), 422, "permit_invalid", ""},
		{"of a room that is not configured", permitBody(b.permit(token.Permit{Room: "old"})), 422, "permit_invalid", ""},
		{"a pass", permitBody(pass), 422, "permit_invalid", ""},
		{"a changed signature", permitBody(changed), 422, "permit_invalid", ""},
		{"not a string", `{"permit":1}`, 422, "invalid", `"path":"permit"`},
		{"nothing", `{}`, 422, "invalid", `"path":"permit"`},
		{"another member", `{"permit":"x","sid":"y"}`, 422, "invalid", `"path":"sid"`},
		{"a member twice", `{"permit":"x","permit":"y"}`, 400, "bad_json", "permit"},
	} {
		w := b.ask("POST", redeemPath, row.body)
		if wantCode(t, w, row.status, row.code); !strings.Contains(w.Body.String(), row.want) {
			t.Errorf("%s: %s", row.name, w.Body)
		}
	}
	wantCode(t, b.ask("POST", redeemPath, permitBody(raw), "Authorization: Bearer "+readToken), 403, "read_only")
}

// A backend that did not receive the response repeats the request.
func TestRedeem_RepeatsWithItsKey(t *testing.T) {
	b := newBench(t)
	raw := b.permit(token.Permit{})
	const key, other = "Idempotency-Key: 0123456789abcdef012345", "Idempotency-Key: another-0123456789abcdef"
	for range 3 {
		want(t, b.ask("POST", redeemPath, permitBody(raw), key), 200)
	}
	wantCode(t, b.ask("POST", redeemPath, permitBody(raw), other), 409, "already_redeemed")
	wantCode(t, b.ask("POST", redeemPath, permitBody(raw)), 409, "already_redeemed")
	b.tick((token.PermitLife + token.Leeway) * time.Second)
	wantCode(t, b.ask("POST", redeemPath, permitBody(raw), key), 410, "permit_expired")
}

func TestRedeem_RefusesRevokedSession(t *testing.T) {
	b := newBench(t)
	s, _, err := b.sale.Join(t.Context(), admission.Arrival{ID: admission.ID{7}})
	if err != nil || s.State != admission.Active {
		t.Fatal(s, err)
	}
	raw := b.permit(token.Permit{Session: token.ID(s.Ticket.ID)})
	want(t, b.ask("POST", "/admin/v1/rooms/sale/sessions/"+s.Ticket.ID.String()+"/revoke", ""), 204)
	wantCode(t, b.ask("POST", redeemPath, permitBody(raw)), 410, "session_revoked")
}

// A store that is away, or came back empty, never lets a permit be redeemed twice.
func TestRedeem_NeverTwiceWithoutStore(t *testing.T) {
	server := redistest.Server(t)
	b := newBenchOn(t, server.Client())
	raw := b.permit(token.Permit{})
	want(t, b.ask("POST", redeemPath, permitBody(raw)), 200)
	if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.ask("POST", redeemPath, permitBody(raw)), 410, "permit_expired")
	b.tick(time.Second) // restores the room, in a new epoch
	wantCode(t, b.ask("POST", redeemPath, permitBody(raw)), 410, "permit_expired")
	b.tick(time.Second)
	want(t, b.ask("POST", redeemPath, permitBody(b.permit(token.Permit{ID: token.ID{9}}))), 200)
	server.Kill()
	w := b.ask("POST", redeemPath, permitBody(b.permit(token.Permit{ID: token.ID{10}})))
	if wantCode(t, w, 503, "store_unavailable"); w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "Idempotency-Key") {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
}

package console

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/access"
)

const bobToken = "b-9c3e5f7a1d2b4068"

func newApprovalBench(t *testing.T) *bench {
	return newBench(t, func(o *Options) {
		o.TwoPerson = []string{"reset"}
		o.Tokens = append(o.Tokens, Token{Name: "bob", Token: bobToken, Role: access.Admin},
			Token{Name: "vip", Token: "v-4b7d1e9a2c5f8036", Role: access.Admin, Rooms: []string{"vip"}},
			Token{Name: "cat", Token: "c-1a2b3c4d5e6f7081", Role: access.Operator})
	})
}

// as sends a request with another token.
func (b *bench) as(token, method, path, body string) (status int, answer map[string]any) {
	w := b.ask(method, path, body, "Authorization: Bearer "+token)
	if w.Body.Len() == 0 {
		return w.Code, nil
	}
	return w.Code, decode(b.t, w.Body.Bytes())
}

func TestApproval_NeedsTwoPersons(t *testing.T) {
	b := newApprovalBench(t)
	b.join(15)
	waiting := func() float64 {
		b.tick(time.Second)
		return at(decode(t, b.ask("GET", "/admin/v1/rooms/sale", "").Body.Bytes()), "waiting").(float64)
	}
	const reset, pending = "/admin/v1/rooms/sale/reset", "/admin/v1/pending"
	wantCode(t, b.ask("POST", reset, `{"confirm":"vip"}`), 422, "invalid") // what is wrong is said to the person who asks
	w := b.ask("POST", reset, `{"confirm":"sale"}`)
	want(t, w, 202)
	asked := decode(t, w.Body.Bytes())
	path := pending + "/" + asked["id"].(string)
	if w.Header().Get("Location") != path || asked["action"] != "reset" || asked["by"] != "ops" || asked["yours"] != true {
		t.Errorf("asked: %v, Location %q", asked, w.Header().Get("Location"))
	}
	if waiting() == 0 {
		t.Fatal("one person reset the room")
	}
	for _, row := range []struct {
		token, method, path, code string
		status                    int
	}{
		{writeToken, "POST", path + "/confirm", "same_person", 403},
		{readToken, "POST", path + "/confirm", "read_only", 403},
		{"c-1a2b3c4d5e6f7081", "POST", path + "/confirm", "role_required", 403},
		{"v-4b7d1e9a2c5f8036", "POST", path + "/confirm", "unknown_pending", 404},
		{"c-1a2b3c4d5e6f7081", "DELETE", path, "role_required", 403},
		{bobToken, "POST", pending + "/x/confirm", "unknown_pending", 404},
	} {
		if status, p := b.as(row.token, row.method, row.path, ""); status != row.status || p["code"] != row.code {
			t.Errorf("%s %s: %d %v, want %d %s", row.method, row.path, status, p, row.status, row.code)
		}
	}
	_, list := b.as(bobToken, "GET", pending, "")
	if all, _ := list["pending"].([]any); len(all) != 1 || at(all[0], "id") != asked["id"] || at(all[0], "yours") != false {
		t.Errorf("pending: %v", list)
	}
	if _, list := b.as("v-4b7d1e9a2c5f8036", "GET", pending, ""); len(list["pending"].([]any)) != 0 {
		t.Errorf("an admin of another room sees %v", list)
	}
	if status, room := b.as(bobToken, "POST", path+"/confirm", "{}"); status != 200 || room["id"] != "sale" {
		t.Fatalf("confirmed: %d %v", status, room)
	}
	if waiting() != 0 {
		t.Error("the confirmed reset did not happen")
	}
	if status, p := b.as(bobToken, "POST", path+"/confirm", ""); status != 404 || p["code"] != "unknown_pending" {
		t.Errorf("confirmed again: %d %v", status, p)
	}
	entries, err := b.core.Audit(t.Context(), 10, nil)
	var said []string
	for _, e := range entries {
		said = append(said, e.Action+" by "+e.Who)
	}
	if wanted := []string{"reset by bob, asked by ops", "confirm_reset by bob", "ask_reset by ops"}; err != nil || !slices.Equal(said, wanted) {
		t.Errorf("the audit log has %q (%v), want %q", said, err, wanted)
	}
}

func TestApproval_EndsAndIsWithdrawn(t *testing.T) {
	b := newApprovalBench(t)
	ask := func() string {
		_, a := b.as(writeToken, "POST", "/admin/v1/rooms/sale/reset", `{"confirm":"sale"}`)
		return "/admin/v1/pending/" + a["id"].(string)
	}
	path := ask()
	if status, _ := b.as(writeToken, "DELETE", path, ""); status != 204 {
		t.Errorf("withdrawn: %d", status)
	}
	if status, p := b.as(bobToken, "POST", path+"/confirm", ""); status != 404 {
		t.Errorf("confirmed after that: %d %v", status, p)
	}
	path = ask()
	b.tick(10*time.Minute + time.Second)
	if status, p := b.as(bobToken, "POST", path+"/confirm", ""); status != 404 {
		t.Errorf("confirmed after ten minutes: %d %v", status, p)
	}
	for range 100 {
		ask()
	}
	if status, p := b.as(writeToken, "POST", "/admin/v1/rooms/sale/reset", `{"confirm":"sale"}`); status != 409 || p["code"] != "too_many_pending" {
		t.Errorf("the 101st: %d %v", status, p)
	}
}

// What GET audit/export sends is what the entries were hashed over.
func TestExport_HasAllEntries(t *testing.T) {
	b := newBench(t)
	for _, action := range []string{"pause", "resume", "drain"} {
		want(t, b.ask("POST", "/admin/v1/rooms/sale/"+action, ""), 200)
	}
	w := b.ask("GET", "/admin/v1/audit/export", "")
	want(t, w, 200)
	if lines := strings.Count(w.Body.String(), "\n"); lines != 3 || w.Header().Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%d lines of %s: %s", lines, w.Header().Get("Content-Type"), w.Body)
	}
}

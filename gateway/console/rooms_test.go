package console

import (
	"strings"
	"testing"

	"github.com/anteroom/anteroom/admission"
)

func TestRoomObject(t *testing.T) {
	b := newBench(t)
	s := &b.sale.snap
	s.Waiting, s.Parked, s.Admitted, s.Active = 12, 3, 4, 50
	s.Oldest = roomTime - 90_500_000
	s.Policy.Rate, s.Policy.MaxActive, s.Live = 2_500, 100, []string{"rate", "max_active", "session.ttl"}
	for second := roomTime/1e6 - 59; second <= roomTime/1e6; second++ {
		s.Flow = append(s.Flow, admission.Flow{Second: second, Admitted: 2})
	}
	s.Flow[0].Admitted = 17
	want(t, b.ask("GET", "/admin/v1/rooms/sale", ""), 200, `{
		"id":"sale",
		"policy":{"enabled":true,"paused":false,"draining":false,"on_store_error":"wait",
			"admission":{"rate":2.5,"burst":10,"max_active":100,"min_wait":"0s","head_window":0},
			"queue":{"method":"fifo","absence":"10m0s","claim_window":"5m0s","capacity":0},
			"session":{"ttl":"5m0s"},"page":{"message":""}},
		"live":{"admission":{"rate":2.5,"max_active":100},"session":{"ttl":"5m0s"}},
		"waiting":12,"parked":3,"admitted":4,"active":50,"rate":2.25,"oldest_wait_seconds":90.5,
		"eta":{"seconds":120,"low":100,"high":150},"eta_error":0.95,
		"origin":{"p95_seconds":0.042,"error_rate":0.005},"store_age_seconds":0.25,"paused":false,"draining":false}`)
}

func TestRoomOfAStoreNeverHeard(t *testing.T) {
	b := newBench(t)
	b.vip.snap = admission.Snapshot{}
	v := decode(t, b.ask("GET", "/admin/v1/rooms/vip", "").Body.Bytes())
	for _, path := range []string{"store_age_seconds", "eta", "eta_error"} {
		if got := at(v, path); got != nil {
			t.Errorf("%s is %v before the store was heard, want none", path, got)
		}
	}
	if got := at(v, "policy.admission.rate"); got != 10.0 {
		t.Errorf("policy.admission.rate %v, want the file's 10", got)
	}
}

func TestRoomsAreListedInOrder(t *testing.T) {
	list := decode(t, newBench(t).ask("GET", "/admin/v1/rooms", "").Body.Bytes())["rooms"].([]any)
	if len(list) != 2 || at(list[0], "id") != "sale" || at(list[1], "id") != "vip" {
		t.Errorf("rooms %v", list)
	}
	none := newBench(t, func(o *Options) { o.Rooms = func() []Room { return nil } })
	want(t, none.ask("GET", "/admin/v1/rooms", ""), 200, `{"rooms":[]}`)
}

func TestMeasuredRate(t *testing.T) {
	now := int64(1_000_000_000) // second 1000
	for _, row := range []struct {
		name  string
		since int64
		flow  []admission.Flow
		want  string
	}{
		{"no flow", 0, nil, "0"},
		{"a steady minute", 0, steady(941, 1000, 5), "5"},
		{"what is older than a minute is left out", 0, append(steady(900, 940, 99), steady(941, 1000, 5)...), "5"},
		{"a room of ten seconds", 991 * 1e6, steady(991, 1000, 3), "3"},
		{"a room of this second", 1000 * 1e6, steady(1000, 1000, 4), "4"},
		{"one in a minute", 0, steady(950, 950, 1), "0.017"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := measuredRate(&admission.Snapshot{Known: true, Since: row.since, Flow: row.flow}, now).String()
			if got != row.want {
				t.Errorf("rate %s, want %s", got, row.want)
			}
		})
	}
}

func steady(from, to, admitted int64) []admission.Flow {
	var list []admission.Flow
	for s := from; s <= to; s++ {
		list = append(list, admission.Flow{Second: s, Admitted: admitted})
	}
	return list
}

func TestThousandths(t *testing.T) {
	for n, want := range map[thousandth]string{
		0: "0", 1: "0.001", 10: "0.01", 100: "0.1", 1000: "1", 2500: "2.5", 1_000_000_000: "1000000", -1500: "-1.5", -1: "-0.001",
	} {
		if got := n.String(); got != want {
			t.Errorf("%d thousandths are %s, want %s", int64(n), got, want)
		}
	}
}

func TestActions(t *testing.T) {
	b := newBench(t)
	for _, step := range []struct {
		action           string
		paused, draining bool
	}{{"pause", true, false}, {"drain", true, true}, {"resume", false, false}} {
		w := b.ask("POST", "/admin/v1/rooms/sale/"+step.action, "")
		want(t, w, 200)
		v := decode(t, w.Body.Bytes())
		if v["paused"] != step.paused || v["draining"] != step.draining || v["id"] != "sale" {
			t.Errorf("after %s: paused %v draining %v", step.action, v["paused"], v["draining"])
		}
	}
	wantCode(t, b.ask("POST", "/admin/v1/rooms/sale/pause", `{"for":"1h"}`), 422, "invalid")
}

func TestResetAsksForTheID(t *testing.T) {
	b := newBench(t)
	b.sale.snap.Waiting = 7
	for _, body := range []string{``, `{}`, `{"confirm":"vip"}`, `{"confirm":true}`, `{"confirm":"sale","also":1}`} {
		wantCode(t, b.ask("POST", "/admin/v1/rooms/sale/reset", body), 422, "invalid")
	}
	if b.sale.Snapshot().Waiting != 7 {
		t.Fatal("a refused reset emptied the room")
	}
	w := b.ask("POST", "/admin/v1/rooms/sale/reset", `{"confirm":"sale"}`)
	want(t, w, 200)
	if got := decode(t, w.Body.Bytes())["waiting"]; got != 0.0 {
		t.Errorf("waiting %v after a reset", got)
	}
}

func TestAChangeThatTheSnapshotDoesNotShowYetIsInTheAnswer(t *testing.T) {
	b := newBench(t)
	b.sale.stuck = true
	v := decode(t, b.ask("PATCH", "/admin/v1/rooms/sale", `{"rate":7.5}`).Body.Bytes())
	if at(v, "policy.admission.rate") != 7.5 || at(v, "live.admission.rate") != 7.5 {
		t.Errorf("the answer to the change is %v", v)
	}
}

func TestTickets(t *testing.T) {
	b := newBench(t)
	id := admission.ID{1, 2, 3}
	b.sale.tickets[id] = admission.Found{State: admission.Waiting, Order: roomTime - 30e6, Seen: roomTime - 2e6, Ahead: 4}
	path := "/admin/v1/rooms/sale/tickets/" + id.String()
	want(t, b.ask("GET", path, ""), 200, `{"jti":"AQIDAAAAAAAAAAAAAAAAAA","room":"sale","state":"waiting","parked":false,"position":5,"ahead":4,
		"order":1799999970000000,"seen":1799999998000000,"waited_seconds":30,"seen_seconds_ago":2}`)
	want(t, b.ask("DELETE", path, ""), 204)
	wantCode(t, b.ask("GET", path, ""), 404, "unknown_ticket")
	wantCode(t, b.ask("DELETE", path, ""), 404, "unknown_ticket")

	b.sale.tickets[id] = admission.Found{State: admission.Active, AdmittedAt: 1_767_323_045_000_006}
	want(t, b.ask("GET", path, ""), 200, `{"jti":"AQIDAAAAAAAAAAAAAAAAAA","room":"sale","state":"active","parked":false,"admitted_at":"2026-01-02T03:04:05.000006Z"}`)
	want(t, b.ask("POST", "/admin/v1/rooms/sale/sessions/"+id.String()+"/revoke", ""), 204)
	want(t, b.ask("GET", path, ""), 200, `{"jti":"AQIDAAAAAAAAAAAAAAAAAA","room":"sale","state":"ended","reason":"revoked","parked":false}`)

	for _, bad := range []string{"x", "AQIDAAAAAAAAAAAAAAAAAB", "AQIDAAAAAAAAAAAAAAAAAA==", strings.Repeat("A", 5000)} {
		wantCode(t, b.ask("GET", "/admin/v1/rooms/sale/tickets/"+bad, ""), 404, "unknown_ticket")
	}
}

func TestHistory(t *testing.T) {
	b := newBench(t)
	want(t, b.ask("GET", "/admin/v1/rooms/sale/history?minutes=1", ""), 200, `{"buckets":[{"at":"2027-01-15T07:59:00.000000Z","joins":7,"admissions":6,
		"abandoned":1,"waiting":0,"rate":2.5,"wait_p50_seconds":1.5,"wait_p90_seconds":4}]}`)
	if n := len(decode(t, b.ask("GET", "/admin/v1/rooms/sale/history", "").Body.Bytes())["buckets"].([]any)); n != 60 {
		t.Errorf("%d minutes by default, want 60", n)
	}
	for _, q := range []string{"minutes=0", "minutes=1441", "minutes=-1", "minutes=x", "minutes=", "minutes=1.5", "minutes=1&minutes=2"} {
		wantCode(t, b.ask("GET", "/admin/v1/rooms/sale/history?"+q, ""), 422, "invalid")
	}
}

func TestAuditNamesTheHolderOfTheToken(t *testing.T) {
	b := newBench(t)
	want(t, b.ask("PATCH", "/admin/v1/rooms/sale", `{"rate":5}`), 200)
	want(t, b.ask("POST", "/admin/v1/rooms/sale/pause", ""), 200)
	entries := decode(t, b.ask("GET", "/admin/v1/audit", "").Body.Bytes())["entries"].([]any)
	if len(entries) != 2 || at(entries[0], "action") != "pause" || at(entries[1], "who") != "ops" ||
		at(entries[1], "before.admission.rate") != 10.0 || at(entries[1], "after.admission.rate") != 5.0 {
		t.Errorf("audit %v", entries)
	}
	if n := len(decode(t, b.ask("GET", "/admin/v1/audit?limit=1", "").Body.Bytes())["entries"].([]any)); n != 1 {
		t.Errorf("%d entries with limit=1", n)
	}
	wantCode(t, b.ask("GET", "/admin/v1/audit?limit=1001", ""), 422, "invalid")
}

func TestRecordedIsAlwaysJSON(t *testing.T) {
	for text, want := range map[string]string{"": `null`, `{"rate":5}`: `{"rate":5}`, `not "json"`: `"not \"json\""`} {
		if got := string(recorded(text)); got != want {
			t.Errorf("recorded(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestWithoutTheStore(t *testing.T) {
	b := newBench(t)
	b.sale.down = true
	want(t, b.ask("GET", "/admin/v1/rooms", ""), 200)
	want(t, b.ask("GET", "/admin/v1/rooms/sale", ""), 200)
	id := admission.ID{9}.String()
	for _, row := range [][3]string{
		{"PATCH", "/admin/v1/rooms/sale", `{"rate":5}`}, {"POST", "/admin/v1/rooms/sale/pause", ""}, {"POST", "/admin/v1/rooms/sale/resume", ""},
		{"POST", "/admin/v1/rooms/sale/drain", ""}, {"POST", "/admin/v1/rooms/sale/reset", `{"confirm":"sale"}`},
		{"GET", "/admin/v1/rooms/sale/history", ""}, {"GET", "/admin/v1/rooms/sale/tickets/" + id, ""}, {"DELETE", "/admin/v1/rooms/sale/tickets/" + id, ""},
		{"POST", "/admin/v1/rooms/sale/sessions/" + id + "/revoke", ""}, {"GET", "/admin/v1/audit", ""},
	} {
		w := b.ask(row[0], row[1], row[2])
		wantCode(t, w, 503, "store_unavailable")
		if w.Header().Get("Retry-After") != "1" {
			t.Errorf("%s %s: Retry-After %q", row[0], row[1], w.Header().Get("Retry-After"))
		}
	}
}

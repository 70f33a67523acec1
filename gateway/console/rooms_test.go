package console

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestRoom_Object(t *testing.T) {
	const now = 1_800_000_000_000_000
	s := &admission.Snapshot{Known: true, Policy: filePolicy, Waiting: 12, Parked: 3, Admitted: 4, Active: 50, Oldest: now - 90_500_000,
		Since: now - 1e9, Flow: queued(now/1e6-59, now/1e6, 2), Live: []string{"rate", "max_active", "session.ttl"}}
	s.Policy.Rate, s.Policy.MaxActive = 2_500, 100
	s.Flow[0].Admitted = 17
	b := newBench(t)
	c := &Console{o: Options{OriginStats: func(string) (float64, float64) { return 0.0421, 0.005 }}}
	got, err := json.Marshal(c.viewOf(Room{
		Queue: b.sale, Origin: "shop",
		Wait:      func() eta.Estimate { return eta.Estimate{Seconds: 120, Low: 99.6, High: 150.4, Known: true} },
		WaitError: func() (float64, bool) { return 0.95, true },
	}, s, now, 250*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	wanted := compact(t, `{
		"id":"sale",
		"policy":{"enabled":true,"paused":false,"draining":false,"on_store_error":"wait",
			"rate":2.5,"burst":10,"max_active":100,"method":"fifo","message":"","on_sold_out":"keep","challenge":"none",
			"admission":{"strategy":"token_bucket","min_wait":"0s","head_window":0},
			"queue":{"absence":"10m0s","claim_window":"5m0s","capacity":0},
			"session":{"ttl":"5m0s"}},
		"live":{"rate":2.5,"max_active":100,"session":{"ttl":"5m0s"}},
		"waiting":12,"parked":3,"admitted":4,"active":50,"rate":2.25,"oldest_wait_seconds":90.5,
		"eta":{"seconds":120,"low":100,"high":150},"eta_error":0.95,
		"origin":{"p95_seconds":0.042,"error_rate":0.005},"store_age_seconds":0.25,"sold_out":false,"paused":false,"draining":false}`)
	if compact(t, string(got)) != wanted {
		t.Errorf("room\n  %s\nwant\n  %s", compact(t, string(got)), wanted)
	}
}

func TestRoom_WithQueue(t *testing.T) {
	b := newBench(t)
	b.join(13)
	v := decode(t, b.ask("GET", "/admin/v1/rooms/sale", "").Body.Bytes())
	for path, want := range map[string]any{"waiting": 3.0, "active": 10.0, "admitted": 0.0, "parked": 0.0, "rate": 10.0, "oldest_wait_seconds": 0.25, "store_age_seconds": 0.0} {
		if got := at(v, path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

func TestRoom_BeforeFirstSnapshot(t *testing.T) {
	b := newBench(t, func(o *Options) {
		unheard := o.Core.Room("later", filePolicy)
		o.Rooms = func() []Room { return []Room{{Queue: unheard, File: filePolicy}} }
	})
	v := decode(t, b.ask("GET", "/admin/v1/rooms/later", "").Body.Bytes())
	for _, path := range []string{"store_age_seconds", "eta", "eta_error"} {
		if got := at(v, path); got != nil {
			t.Errorf("%s is %v before the store has replied, want none", path, got)
		}
	}
	if got := at(v, "policy.rate"); got != 1.0 {
		t.Errorf("policy.rate %v, want the file's 1", got)
	}
}

func TestRooms_ListedInOrder(t *testing.T) {
	list := decode(t, newBench(t).ask("GET", "/admin/v1/rooms", "").Body.Bytes())["rooms"].([]any)
	if len(list) != 2 || at(list[0], "id") != "sale" || at(list[1], "id") != "vip" {
		t.Errorf("rooms %v", list)
	}
	none := newBench(t, func(o *Options) { o.Rooms = func() []Room { return nil } })
	want(t, none.ask("GET", "/admin/v1/rooms", ""), 200, `{"rooms":[]}`)
}

func TestMeasuredRate_OverWindow(t *testing.T) {
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
		{"a queue of ten seconds after an idle minute", 0, append(steady(941, 941, 7), queued(991, 1000, 3)...), "3"},
		{"a queue of ten seconds after a minute without one", 0, append(steady(941, 990, 1), queued(991, 1000, 3)...), "3"},
		{"a queue of a minute", 0, queued(900, 1000, 4), "4"},
	} {
		t.Run(row.name, func(t *testing.T) {
			waiting := int64(0)
			if len(row.flow) > 0 && row.flow[len(row.flow)-1].Busy > 0 {
				waiting = 100
			}
			got := measuredRate(&admission.Snapshot{Known: true, Since: row.since, Flow: row.flow, Waiting: waiting}, now).String()
			if got != row.want {
				t.Errorf("rate %s, want %s", got, row.want)
			}
		})
	}
}

// queued is steady with a queue all the time.
func queued(from, to, admitted int64) []admission.Flow {
	list := steady(from, to, admitted)
	for i := range list {
		list[i].Busy = 1000
	}
	return list
}

func steady(from, to, admitted int64) []admission.Flow {
	var list []admission.Flow
	for s := from; s <= to; s++ {
		list = append(list, admission.Flow{Second: s, Admitted: admitted})
	}
	return list
}

func TestThousandth_String(t *testing.T) {
	for n, want := range map[thousandth]string{
		0: "0", 1: "0.001", 10: "0.01", 100: "0.1", 1000: "1", 2500: "2.5", 1_000_000_000: "1000000", -1500: "-1.5", -1: "-0.001",
	} {
		if got := n.String(); got != want {
			t.Errorf("%d thousandths are %s, want %s", int64(n), got, want)
		}
	}
}

func TestActions_ChangeRoom(t *testing.T) {
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

func TestReset_RequiresID(t *testing.T) {
	b := newBench(t)
	b.join(17)
	for _, body := range []string{``, `{}`, `{"confirm":"vip"}`, `{"confirm":true}`, `{"confirm":"sale","also":1}`} {
		wantCode(t, b.ask("POST", "/admin/v1/rooms/sale/reset", body), 422, "invalid")
	}
	if n := b.sale.Snapshot().Waiting; n != 7 {
		t.Fatalf("%d wait after refused resets, want 7", n)
	}
	w := b.ask("POST", "/admin/v1/rooms/sale/reset", `{"confirm":"sale"}`)
	want(t, w, 200)
	if got := decode(t, w.Body.Bytes())["waiting"]; got != 0.0 {
		t.Errorf("waiting %v after a reset", got)
	}
}

func TestTickets_LookupAndRemove(t *testing.T) {
	b := newBench(t)
	first := b.join(15)[0].Ticket
	path := "/admin/v1/rooms/sale/tickets/" + first.ID.String()
	v := decode(t, b.ask("GET", path, "").Body.Bytes())
	for key, want := range map[string]any{"jti": first.ID.String(), "room": "sale", "state": "waiting", "parked": false, "position": 1.0, "ahead": 0.0,
		"order": float64(first.Order), "waited_seconds": 0.25, "seen_seconds_ago": 0.25, "reason": nil, "admitted_at": nil} {
		if v[key] != want {
			t.Errorf("%s is %v, want %v", key, v[key], want)
		}
	}
	b.tick(750 * time.Millisecond)
	v = decode(t, b.ask("GET", path, "").Body.Bytes())
	if v["state"] != "admitted" || v["position"] != nil || v["admitted_at"] != b.clock.now().UTC().Format("2006-01-02T15:04:05.000000Z") {
		t.Errorf("at its turn the ticket is %v", v)
	}
	want(t, b.ask("DELETE", path, ""), 204)
	v = decode(t, b.ask("GET", path, "").Body.Bytes())
	if v["state"] != "expired" || v["reason"] != "removed" {
		t.Errorf("removed, the ticket is %v", v)
	}
	wantCode(t, b.ask("DELETE", path, ""), 404, "unknown_ticket")
	unknown := admission.ID{1, 2, 3}.String()
	wantCode(t, b.ask("GET", "/admin/v1/rooms/sale/tickets/"+unknown, ""), 404, "unknown_ticket")
	wantCode(t, b.ask("GET", "/admin/v1/rooms/vip/tickets/"+first.ID.String(), ""), 404, "unknown_ticket")

	for _, bad := range []string{"x", "AQIDAAAAAAAAAAAAAAAAAB", "AQIDAAAAAAAAAAAAAAAAAA==", strings.Repeat("A", 5000)} {
		wantCode(t, b.ask("GET", "/admin/v1/rooms/sale/tickets/"+bad, ""), 404, "unknown_ticket")
	}
}

func TestSessions_Revoke(t *testing.T) {
	b := newBench(t)
	s, _, err := b.sale.Join(t.Context(), admission.Arrival{ID: admission.ID{7}})
	if err != nil || s.State != admission.Active {
		t.Fatalf("join: %+v %v", s, err)
	}
	id := s.Ticket.ID.String()
	want(t, b.ask("POST", "/admin/v1/rooms/sale/sessions/"+id+"/revoke", ""), 204)
	if !b.sale.Revoked(s.Ticket.ID) {
		t.Error("the session is not revoked")
	}
	v := decode(t, b.ask("GET", "/admin/v1/rooms/sale/tickets/"+id, "").Body.Bytes())
	if v["state"] != "ended" || v["reason"] != "revoked" {
		t.Errorf("revoked, the session is %v", v)
	}
	wantCode(t, b.ask("POST", "/admin/v1/rooms/sale/sessions/nobody/revoke", ""), 404, "unknown_ticket")
}

func TestHistory_Buckets(t *testing.T) {
	b := newBench(t)
	b.join(15)
	buckets := decode(t, b.ask("GET", "/admin/v1/rooms/sale/history?minutes=2", "").Body.Bytes())["buckets"].([]any)
	if len(buckets) != 2 {
		t.Fatalf("%d buckets of 2 minutes", len(buckets))
	}
	for key, want := range map[string]any{"at": "2027-01-15T08:00:00.000000Z", "joins": 15.0, "admissions": 10.0, "abandoned": 0.0, "waiting": 5.0, "rate": 1.0,
		"wait_p50_seconds": 0.0, "wait_p90_seconds": 0.0} {
		if got := at(buckets[1], key); got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if n := len(decode(t, b.ask("GET", "/admin/v1/rooms/sale/history", "").Body.Bytes())["buckets"].([]any)); n != 60 {
		t.Errorf("%d minutes by default, want 60", n)
	}
	for _, q := range []string{"minutes=0", "minutes=1441", "minutes=-1", "minutes=x", "minutes=", "minutes=1.5", "minutes=1&minutes=2"} {
		wantCode(t, b.ask("GET", "/admin/v1/rooms/sale/history?"+q, ""), 422, "invalid")
	}
}

func TestAudit_Entries(t *testing.T) {
	b := newBench(t)
	want(t, b.ask("PATCH", "/admin/v1/rooms/sale", `{"rate":5,"session":{"ttl":"2m"},"message":"12","enabled":true}`), 200)
	b.clock.move(time.Second)
	want(t, b.ask("PATCH", "/admin/v1/rooms/sale", `{"rate":7.5,"session":{"ttl":null}}`), 200)
	b.clock.move(time.Second)
	want(t, b.ask("POST", "/admin/v1/rooms/vip/pause", ""), 200)
	b.clock.move(time.Second)
	want(t, b.ask("POST", "/admin/v1/rooms/vip/reset", `{"confirm":"vip"}`), 200)
	wantCode(t, b.ask("PATCH", "/admin/v1/rooms/sale", `{"rate":-1}`), 422, "invalid")
	w := b.ask("GET", "/admin/v1/audit", "")
	plain := regexp.MustCompile(`"seq":[12],"hash":"[0-9a-f]{64}",`).ReplaceAllString(w.Body.String(), "")
	w.Body = bytes.NewBufferString(plain)
	want(t, w, 200, `{"entries":[
		{"at":"2027-01-15T08:00:03.000000Z","who":"ops","room":"vip","action":"reset","before":{"tickets":0},"after":{"tickets":0},"undo":"never"},
		{"at":"2027-01-15T08:00:02.000000Z","who":"ops","room":"vip","action":"pause","before":{"paused":null},"after":{"paused":true},"undo":"possible"},
		{"at":"2027-01-15T08:00:01.000000Z","who":"ops","room":"sale","action":"patch","before":{"rate":5,"session":{"ttl":"2m0s"}},"after":{"rate":7.5,"session":{"ttl":null}},"undo":"possible"},
		{"at":"2027-01-15T08:00:00.000000Z","who":"ops","room":"sale","action":"patch",
			"before":{"rate":null,"session":{"ttl":null},"message":null,"enabled":null},"after":{"rate":5,"session":{"ttl":"2m0s"},"message":"12","enabled":true},"undo":"changed"}]}`)
	if n := len(decode(t, b.ask("GET", "/admin/v1/audit?limit=1", "").Body.Bytes())["entries"].([]any)); n != 1 {
		t.Errorf("%d entries with limit=1", n)
	}
	wantCode(t, b.ask("GET", "/admin/v1/audit?limit=1001", ""), 422, "invalid")
}

// The before of an entry, sent as a PATCH, undoes the change.
func TestAudit_EntryUndoesChange(t *testing.T) {
	b := newBench(t)
	want(t, b.ask("PATCH", "/admin/v1/rooms/sale", `{"rate":5,"max_active":9}`), 200)
	then := b.sale.Snapshot().Policy
	b.clock.move(time.Second)
	want(t, b.ask("PATCH", "/admin/v1/rooms/sale", `{"rate":0.001,"max_active":null,"message":"x","method":"reject","burst":2.5,"session":{"ttl":"1h"}}`), 200)
	entries := decode(t, b.ask("GET", "/admin/v1/audit?limit=1", "").Body.Bytes())["entries"].([]any)
	before, err := json.Marshal(at(entries[0], "before"))
	if err != nil {
		t.Fatal(err)
	}
	want(t, b.ask("PATCH", "/admin/v1/rooms/sale", string(before)), 200)
	if now := b.sale.Snapshot().Policy; now != then {
		t.Errorf("after %s the policy is %+v, want %+v", before, now, then)
	}
}

// benchWithoutStore has two visitors waiting and its store just killed.
func benchWithoutStore(t *testing.T) *bench {
	t.Helper()
	store := redistest.Server(t)
	b := newBenchOn(t, store.Client())
	b.join(12)
	store.Kill()
	return b
}

func TestRoom_WithoutStore(t *testing.T) {
	b := benchWithoutStore(t)
	v := decode(t, b.ask("GET", "/admin/v1/rooms/sale", "").Body.Bytes())
	if v["waiting"] != 2.0 || at(v, "policy.rate") != 1.0 {
		t.Errorf("without the store the room is %v", v)
	}
	want(t, b.ask("GET", "/admin/v1/rooms", ""), 200)
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

// A store that replies and refuses writes is named with its cause and the remedy, for changes and for calls that are not made while the
// store counts as away.
func TestProblem_NamesTheStoreThatRefusesWrites(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, want, remedy string }{
		{"misconf", "cannot save its data to its disk (MISCONF)", "free space"},
		{"noreplicas", "too few of its replicas", "min-replicas-to-write"},
		{"readonly", "read-only replica (READONLY)", "primary"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Server(t)
			b, ctx := newBenchOn(t, server.Client()), t.Context()
			client := server.Client()
			var err error
			switch row.name {
			case "misconf":
				if err = os.MkdirAll(filepath.Join(client.ConfigGet(ctx, "dir").Val()["dir"], "dump.rdb", "in the way"), 0o700); err != nil {
					break
				}
				if err = client.ConfigSet(ctx, "save", "3600 1000000").Err(); err != nil {
					break
				}
				err = client.BgSave(ctx).Err()
				for err == nil && !strings.Contains(client.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err") {
					err = ctx.Err()
				}
			case "noreplicas":
				err = client.ConfigSet(ctx, "min-replicas-to-write", "1").Err()
			case "readonly":
				err = client.SlaveOf(ctx, "127.0.0.1", "1").Err()
			}
			if err != nil {
				t.Fatal(err)
			}
			body := b.ask("PATCH", "/admin/v1/rooms/sale", `{"rate":5}`)
			wantCode(t, body, 503, "store_unavailable")
			for _, part := range []string{row.want, row.remedy, "repeat"} {
				if !strings.Contains(body.Body.String(), part) {
					t.Errorf("PATCH: %s lacks %q", body.Body, part)
				}
			}
			if strings.Contains(body.Body.String(), "in time") {
				t.Errorf("PATCH: %s", body.Body)
			}
		})
	}
}

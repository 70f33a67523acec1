package console

import (
	"fmt"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/admission"
)

// newest returns the newest entry of the audit log.
func (b *bench) newest() map[string]any {
	b.t.Helper()
	w := b.ask("GET", "/admin/v1/audit", "")
	want(b.t, w, 200)
	return at(decode(b.t, w.Body.Bytes()), "entries").([]any)[0].(map[string]any)
}

func (b *bench) undo(seq any) (code int, body string) {
	w := b.ask("POST", fmt.Sprintf("/admin/v1/rooms/sale/audit/%v/undo", seq), "")
	return w.Code, w.Body.String()
}

// Each change of a live setting returns to the values before it, and the undoing itself can be undone.
func TestUndo_RestoresFormerValues(t *testing.T) {
	const room = "/admin/v1/rooms/sale"
	for _, row := range []struct{ first, method, path, body string }{
		{`{}`, "PATCH", room, `{"rate":7}`},
		{`{"rate":5}`, "PATCH", room, `{"rate":7,"max_active":3}`},
		{`{"rate":5}`, "PATCH", room, `{"rate":null}`},
		{`{"message":"before"}`, "PATCH", room, `{"message":""}`},
		{`{"message":""}`, "PATCH", room, `{"message":"Doors at 8"}`},
		{`{}`, "PATCH", room, `{"method":"reject","on_sold_out":"close","enabled":false,"session":{"ttl":"90s"}}`},
		{`{}`, "POST", room + "/pause", ``},
		{`{"paused":true}`, "POST", room + "/resume", ``},
		{`{}`, "POST", room + "/drain", ``},
	} {
		t.Run(row.body+row.path, func(t *testing.T) {
			b := newBench(t)
			want(t, b.ask("PATCH", room, row.first), 200)
			live := func() string { return fmt.Sprint(b.sale.Snapshot().LiveFields()) }
			before := live()
			want(t, b.ask(row.method, row.path, row.body), 200)
			after, entry := live(), b.newest()
			if after == before || entry["undo"] != "possible" {
				t.Fatalf("live %s after %s, entry %v", after, before, entry)
			}
			if code, body := b.undo(entry["seq"]); code != 200 || live() != before {
				t.Fatalf("undo: %d %s; live %s, want %s", code, body, live(), before)
			}
			if code, body := b.undo(entry["seq"]); code != 409 || !strings.Contains(body, `"changed"`) {
				t.Errorf("a second time: %d %s", code, body)
			}
			again := b.newest()
			if again["action"] != "undo" || again["undoes"] != entry["seq"] || again["who"] != "ops" {
				t.Errorf("the entry of the undoing: %v", again)
			}
			if code, body := b.undo(again["seq"]); code != 200 || live() != after {
				t.Errorf("undo of the undoing: %d %s; live %s, want %s", code, body, live(), after)
			}
		})
	}
}

// What was changed since is not overwritten, and an entry that ended places or sessions is not undone.
func TestUndo_RefusesOtherEntries(t *testing.T) {
	b := newBench(t)
	waiting := b.join(12)
	const room = "/admin/v1/rooms/sale"
	want(t, b.ask("PATCH", room, `{"rate":7,"message":"hi"}`), 200)
	first := b.newest()["seq"]
	want(t, b.ask("PATCH", room, `{"rate":8}`), 200)
	version := b.sale.Snapshot().Version
	if code, body := b.undo(first); code != 409 || !strings.Contains(body, `"changed"`) {
		t.Errorf("a change that was changed since: %d %s", code, body)
	}
	if v := b.sale.Snapshot(); v.Version != version || v.Policy.Rate != 8000 || v.Policy.Message != "hi" {
		t.Errorf("a refused undo changed the room: %+v", v.Policy)
	}
	w := b.ask("GET", "/admin/v1/audit", "")
	if list := at(decode(t, w.Body.Bytes()), "entries").([]any); at(list[0], "undo") != "possible" || at(list[1], "undo") != "changed" {
		t.Errorf("%v", list)
	}
	for _, step := range [][3]string{
		{"DELETE", room + "/tickets/" + waiting[0].Ticket.ID.String(), ""}, {"POST", room + "/reset", `{"confirm":"sale"}`}, {"POST", room + "/evacuate", `{"reason":"fire"}`},
		{"PUT", room + "/facts", `{"items":[` + item + `]}`},
	} {
		if w := b.ask(step[0], step[1], step[2]); w.Code >= 300 {
			t.Fatalf("%v: %d %s", step, w.Code, w.Body)
		}
		entry := b.newest()
		if code, body := b.undo(entry["seq"]); entry["undo"] != "never" || code != 409 || !strings.Contains(body, `"not_reversible"`) {
			t.Errorf("%v: %d %s", entry, code, body)
		}
	}
	for _, seq := range []string{"99", "0", "-1", "x"} {
		if code, body := b.undo(seq); code != 404 || !strings.Contains(body, `"unknown_entry"`) {
			t.Errorf("entry %s: %d %s", seq, code, body)
		}
	}
	wantCode(t, b.ask("POST", room+"/audit/1/undo", `{"force":true}`), 422, "invalid")
}

// A method that the configuration has no lottery for any more is not restored.
func TestUndo_ChecksConfiguration(t *testing.T) {
	e := &admission.Entry{Changes: []admission.Change{{Field: "method", Before: new("lottery"), After: new("fifo")}}}
	if faults := faultsBeside(&Room{File: filePolicy}, formerly(e)); len(faults) != 1 || faults[0].Path != "method" {
		t.Errorf("%v", faults)
	}
}

package console

import (
	"strings"
	"testing"

	"github.com/anteroom/anteroom/token"
)

func TestEvacuate_EndsSessionsAndIsAudited(t *testing.T) {
	b := newBench(t)
	b.join(12) // ten are inside, two wait
	for _, body := range []string{`{}`, `{"reason":""}`, `{"reason":"  "}`, `{"reason":7}`, `{"reason":"a\nb"}`} {
		wantCode(t, b.ask("POST", "/admin/v1/rooms/sale/evacuate", body), 422, "invalid")
	}
	if n := b.sale.Snapshot().Active; n != 10 {
		t.Fatalf("%d inside after refused evacuations, want 10", n)
	}
	began := b.clock.now()
	v := decode(t, b.ask("POST", "/admin/v1/rooms/sale/evacuate", `{"reason":"the origin is down"}`).Body.Bytes())
	if v["active"] != 0.0 || v["waiting"] != 2.0 || v["evacuated_at"] != began.UTC().Format("2006-01-02T15:04:05.000000Z") {
		t.Errorf("room after an evacuation: active %v, waiting %v, evacuated_at %v", v["active"], v["waiting"], v["evacuated_at"])
	}
	wantCode(t, b.ask("POST", "/admin/v1/permits/redeem", permitBody(b.permit(token.Permit{}))), 410, "session_revoked")
	entry := decode(t, b.ask("GET", "/admin/v1/audit", "").Body.Bytes())["entries"].([]any)[0].(map[string]any)
	if entry["action"] != "evacuate" || entry["who"] != "ops" || at(entry, "before.sessions") != 10.0 || at(entry, "after.reason") != "the origin is down" {
		t.Errorf("audit entry %v", entry)
	}
	if e := b.sale.Evacuation(); !e.Ends(e.Fence, 0) || e.Ends(e.Fence+1, 0) {
		t.Errorf("evacuation %+v", e)
	}
}

func TestRamp_NamesEveryFault(t *testing.T) {
	b := newBench(t)
	for body, paths := range map[string]string{
		`{}`: "step every until", `{"step":0,"every":"1m","until":9}`: "step", `{"step":1,"every":"500ms","until":9}`: "every", `{"step":1,"every":60,"until":9}`: "every",
		`{"step":-1,"every":"1m","until":9}`: "until", `{"from":10,"step":1,"every":"1m","until":9}`: "until", `{"step":1,"every":"1m","until":9,"while":5}`: "while",
		`{"step":1,"every":"1m","until":9,"while":{"p95_ms":0,"errors":2,"load":1}}`: "while.p95_ms while.errors while.load",
		`{"step":1,"every":"1m","until":9,"on_breach":"panic","to":1}`:               "on_breach to",
	} {
		w := b.ask("POST", "/admin/v1/rooms/sale/ramp", body)
		wantCode(t, w, 422, "invalid")
		var got []string
		for _, p := range decode(t, w.Body.Bytes())["problems"].([]any) {
			got = append(got, at(p, "path").(string))
		}
		if strings.Join(got, " ") != paths {
			t.Errorf("%s: faults at %q, want %q", body, got, paths)
		}
	}
	if b.tick(0); len(b.sale.Snapshot().Live) > 0 {
		t.Error("a refused ramp has changed the room")
	}
}

func TestSimulate_ShowsBothFutures(t *testing.T) {
	b := newBench(t)
	for body, path := range map[string]string{`{"rate":-1}`: "rate", `{"max_active":1.5}`: "max_active", `{"pause":1}`: "pause", `{"burst":1}`: "burst"} {
		w := b.ask("POST", "/admin/v1/rooms/sale/simulate", body)
		wantCode(t, w, 422, "invalid")
		if got := at(decode(t, w.Body.Bytes())["problems"].([]any)[0], "path"); got != path {
			t.Errorf("%s: the fault is of %v, want %s", body, got, path)
		}
	}
	before := b.sale.Snapshot()
	v := decode(t, b.ask("POST", "/admin/v1/rooms/sale/simulate", `{"rate":2}`).Body.Bytes())
	for path, want := range map[string]any{"now.rate": 1.0, "with.rate": 2.0, "now.empty_in_seconds": 100.0, "with.empty_in_seconds": 50.0} {
		if got := at(v, path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	v = decode(t, b.ask("POST", "/admin/v1/rooms/sale/simulate", `{"pause":true}`).Body.Bytes())
	if at(v, "with.paused") != true || at(v, "with.empty_at") != nil || at(v, "with.wait") != nil || at(v, "with.inside") != 10.0 {
		t.Errorf("with a pause %v", at(v, "with"))
	}
	if b.tick(0); b.sale.Snapshot().Version != before.Version || len(b.sale.Snapshot().Live) > 0 {
		t.Error("a simulation has changed the room")
	}
	wantCode(t, b.ask("POST", "/admin/v1/rooms/vip/simulate", "{}"), 409, "not_simulated")
}

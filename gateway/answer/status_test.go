package answer

import (
	"encoding/json"
	"testing"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/forecast"
	"pgregory.net/rapid"
)

func TestStatus_IsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Status{
			Room: "sale", State: "waiting", Position: rapid.Int64Range(0, 1e9).Draw(t, "position"), Waiting: 3,
			ETA: forecast.Wait{Known: rapid.Bool().Draw(t, "known"), Seconds: 1, Low: 2, High: 3}, Refresh: 2, JoinedAt: 1780000000123456,
			Message: rapid.String().Draw(t, "message"), Reason: rapid.String().Draw(t, "reason"),
			Pass: []byte("a.b.c"), ExpiresAt: 1780000000, Token: []byte("d.e.f"), Now: 1780000000123456,
		}
		if rapid.Bool().Draw(t, "compat") {
			s.Compat = inRoom(admission.Policy{Method: admission.FIFO}, forecast.Events{})
		}
		var out map[string]any
		if err := json.Unmarshal(s.Append(nil), &out); err != nil {
			t.Fatal(err)
		}
		if out["message"] != s.Message || out["joined_at"] != "2026-05-28T20:26:40.123456Z" || (out["position"] == nil) != (s.Position == 0) {
			t.Fatalf("%v", out)
		}
	})
}

func TestStatus_Text(t *testing.T) {
	s := Status{
		Room: "sale", State: "waiting", Position: 1234, Waiting: 50210, ETA: forecast.Wait{Known: true, Seconds: 123, Low: 110, High: 150}, Refresh: 12,
		JoinedAt: 1767323045000000, Message: "",
	}
	const want = `{"room":"sale","state":"waiting","position":1234,"ahead":1233,"waiting":50210,"eta":{"seconds":123,"low":110,"high":150},"refresh_after":12,"joined_at":"2026-01-02T03:04:05.000000Z","message":"","paused":false}`
	if got := string(s.Append(nil)); got != want {
		t.Errorf("%s", got)
	}
}

func TestProblemTable(t *testing.T) {
	codes := map[string]bool{}
	for _, p := range Problems() {
		if codes[p.Code] || p.Code == "" || p.Title == "" || p.Status < 400 || p.Status > 599 {
			t.Errorf("%+v", p)
		}
		codes[p.Code] = true
		var out map[string]any
		if err := json.Unmarshal(p.Append(nil), &out); err != nil || out["code"] != p.Code || out["status"] != float64(p.Status) {
			t.Errorf("%s: %v %v", p.Code, out, err)
		}
		if p.Status == 503 && p.Retry == 0 {
			t.Errorf("%s: 503 without Retry-After", p.Code)
		}
	}
}

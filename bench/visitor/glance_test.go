package visitor

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// A glance sees what encoding/json sees, whatever a message holds.
func TestGlanceAgreesWithJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-zA-Z0-9_.-]{1,20}`)
		body := map[string]any{"message": rapid.SampledFrom([]string{"", `"position":7`, `"token":"x"`, `\"state":"`}).Draw(t, "message"), "eta": map[string]any{"seconds": 3}}
		for name, value := range map[string]*rapid.Generator[any]{
			"state": word.AsAny(), "reason": word.AsAny(), "token": word.AsAny(), "pass": word.AsAny(), "admitted_at": word.AsAny(),
			"position": rapid.Int64Range(1, 1<<40).AsAny(), "waiting": rapid.Int64Range(1, 1<<40).AsAny(), "refresh_after": rapid.Float64Range(0.125, 600).AsAny(),
		} {
			if rapid.Bool().Draw(t, name) {
				body[name] = value.Draw(t, name+" value")
			}
		}
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		var want Status
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		got := Glance(raw)
		if string(got.State) != want.State || string(got.Reason) != want.Reason || string(got.Token) != want.Token || string(got.Pass) != want.Pass ||
			string(got.AdmittedAt) != want.AdmittedAt || got.Position != want.Position || got.Waiting != want.Waiting || got.RefreshAfter != want.RefreshAfter {
			t.Fatalf("%s: a glance sees %+v", raw, got)
		}
	})
}

func FuzzGlance(f *testing.F) {
	f.Add([]byte(`{"state":"waiting","position":12,"waiting":13,"refresh_after":2.5,"token":"a.b.c"}`))
	f.Add([]byte(`"position":99999999999999999999`))
	f.Add([]byte(`"refresh_after":1.2.3`))
	f.Add([]byte(`{"jti":"0123456789012345678901234","ord":-1,"ep":`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if s := Glance(body); s.Position < 0 || s.Waiting < 0 || s.RefreshAfter < 0 {
			t.Errorf("%q: %+v", body, s)
		}
		if p := GlancePlace(body); p.Order < 0 {
			t.Errorf("%q: %+v", body, p)
		}
	})
}

package console

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// docs/operations.md had no row for challenge and on_sold_out.
func TestPatch_MatchesDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Live changes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, f := range liveFields {
		if !strings.Contains(section, "\n| `"+f.name+"` |") {
			t.Errorf("docs/operations.md has no row for %s in \"Live changes\"", f.name)
		}
	}
}

func TestPatch_ChangesRoom(t *testing.T) {
	for _, row := range []struct{ body, path, want string }{
		{`{"rate":5}`, "policy.rate", `5`},
		{`{"admission":{"rate":5}}`, "policy.rate", `5`},
		{`{"rate":0}`, "policy.rate", `0`},
		{`{"rate":-0.0}`, "policy.rate", `0`},
		{`{"rate":0.125}`, "policy.rate", `0.125`},
		{`{"rate":2.50000}`, "policy.rate", `2.5`},
		{`{"rate":12.5e1}`, "policy.rate", `125`},
		{`{"rate":1000000}`, "policy.rate", `1000000`},
		{`{"rate":1E6}`, "policy.rate", `1000000`},
		{`{"burst":1.5}`, "policy.burst", `1.5`},
		{`{"max_active":200}`, "policy.max_active", `200`},
		{`{"max_active":2e2}`, "policy.max_active", `200`},
		{`{"admission":{"burst":3,"max_active":0}}`, "policy.burst", `3`},
		{`{"paused":true}`, "paused", `true`},
		{`{"enabled":false}`, "policy.enabled", `false`},
		{`{"message":"Doors at 8"}`, "policy.message", `"Doors at 8"`},
		{`{"page":{"message":"two\nlines"}}`, "policy.message", `"two\nlines"`},
		{`{"message":""}`, "live.message", `""`},
		{`{"method":"reject"}`, "policy.method", `"reject"`},
		{`{"queue":{"method":"passthrough"}}`, "policy.method", `"passthrough"`},
		{`{"session":{"ttl":"2m"}}`, "policy.session.ttl", `"2m0s"`},
		{`{"rate":5,"session":{"ttl":"90s"}}`, "live", `{"rate":5,"session":{"ttl":"1m30s"}}`},
		{` {"rate":5} ` + "\n", "live", `{"rate":5}`},
		{`{}`, "live", `{}`},
	} {
		t.Run(row.body, func(t *testing.T) {
			w := newBench(t).ask("PATCH", "/admin/v1/rooms/sale", row.body)
			want(t, w, 200)
			got, err := json.Marshal(at(decode(t, w.Body.Bytes()), row.path))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != row.want {
				t.Errorf("%s is %s, want %s", row.path, got, row.want)
			}
		})
	}
}

func TestPatch_RefusesSilenceShorterThanInFile(t *testing.T) {
	for _, row := range []struct {
		life, ttl time.Duration
		faults    int
	}{{time.Hour, 3 * time.Second, 1}, {time.Hour, 4 * time.Second, 0}, {0, time.Second, 0}} {
		got := faultsBeside(&Room{File: admission.Policy{PassLife: row.life}}, &admission.Live{SessionTTL: &row.ttl})
		if len(got) != row.faults || len(got) > 0 && got[0].Path != "session.ttl" {
			t.Errorf("passes of %v, session.ttl %v: %v, want %d faults", row.life, row.ttl, got, row.faults)
		}
	}
}

func TestPatch_NullReturnsFieldToFile(t *testing.T) {
	for _, row := range []struct{ body, live string }{
		{`{"rate":null}`, `{"max_active":9,"session":{"ttl":"1m0s"},"message":"hello"}`},
		{`{"admission":{"max_active":null}}`, `{"rate":5,"session":{"ttl":"1m0s"},"message":"hello"}`},
		{`{"admission":null}`, `{"session":{"ttl":"1m0s"},"message":"hello"}`},
		{`{"session":null,"message":null}`, `{"rate":5,"max_active":9}`},
		{`{"session":{"ttl":null},"rate":6}`, `{"rate":6,"max_active":9,"message":"hello"}`},
	} {
		t.Run(row.body, func(t *testing.T) {
			b := newBench(t)
			want(t, b.ask("PATCH", "/admin/v1/rooms/sale", `{"rate":5,"max_active":9,"message":"hello","session":{"ttl":"1m"}}`), 200)
			w := b.ask("PATCH", "/admin/v1/rooms/sale", row.body)
			want(t, w, 200)
			got, err := json.Marshal(at(decode(t, w.Body.Bytes()), "live"))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != compact(t, row.live) {
				t.Errorf("live %s, want %s", got, compact(t, row.live))
			}
		})
	}
}

func TestPatch_ReportsEveryFault(t *testing.T) {
	b := newBench(t)
	w := b.ask("PATCH", "/admin/v1/rooms/sale", `{"rate":-1,"burst":0.5,"max_active":1.5,"paused":"yes","message":7,"method":"lifo",
		"session":{"ttl":"1ms","max":"1h"},"enabled":null,"speed":3,"admission":{"rate":7,"strategy":"adaptive"},"queue":[],"draining":true}`)
	want(t, w, 422, `{"type":"urn:anteroom:problem:invalid","title":"Unprocessable Entity","status":422,"code":"invalid","detail":"nothing was changed; problems lists all that is wrong","problems":[
		{"path":"rate","value":-1,"problem":"is out of range","allowed":"a number from 0 to 1000000 with at most three decimal places"},
		{"path":"burst","value":0.5,"problem":"is out of range","allowed":"a number from 1 to 1000000 with at most three decimal places"},
		{"path":"max_active","value":1.5,"problem":"has more decimal places than are kept","allowed":"a whole number from 0 (no limit) to 1000000000"},
		{"path":"paused","value":"yes","problem":"is not true or false","allowed":"true or false"},
		{"path":"message","value":7,"problem":"is not text","allowed":"text of at most 1000 characters, with no control characters but line breaks and tabs"},
		{"path":"method","value":"lifo","problem":"is not a method","allowed":"fifo, lottery, passthrough or reject"},
		{"path":"session.ttl","value":"1ms","problem":"is out of range","allowed":"a duration from 1s to 24h, such as \"5m\""},
		{"path":"session.max","value":"1h","problem":"is not a live field (what else the file has changes with it, on SIGHUP)","allowed":"rate, burst, max_active, paused, message, method, on_sold_out, challenge, session: {ttl}, enabled"},
		{"path":"speed","value":3,"problem":"is not a live field (what else the file has changes with it, on SIGHUP)","allowed":"rate, burst, max_active, paused, message, method, on_sold_out, challenge, session: {ttl}, enabled"},
		{"path":"admission.rate","value":7,"problem":"is given already, as rate","allowed":"one of the two"},
		{"path":"admission.strategy","value":"adaptive","problem":"is not a live field (what else the file has changes with it, on SIGHUP)","allowed":"rate, burst, max_active, paused, message, method, on_sold_out, challenge, session: {ttl}, enabled"},
		{"path":"queue","value":[],"problem":"is not an object","allowed":"an object with queue.method, queue.on_sold_out"},
		{"path":"draining","value":true,"problem":"is not changed here","allowed":"POST to the room's /drain and /resume"}]}`)
	if v := b.sale.Snapshot().Version; v != 0 {
		t.Errorf("a refused change reached the room: version %d", v)
	}
}

func TestPatch_RefusesValues(t *testing.T) {
	for _, body := range []string{
		`{"rate":"5"}`, `{"rate":true}`, `{"rate":[5]}`, `{"rate":{}}`, `{"rate":0.0001}`, `{"rate":1e-4}`, `{"rate":1000000.001}`, `{"rate":1e400}`,
		`{"rate":1e-999999999999}`, `{"rate":1e999999999999}`, `{"rate":-0.001}`, `{"burst":0}`, `{"burst":0.999}`, `{"max_active":-1}`,
		`{"max_active":1000000001}`, `{"max_active":0.1}`, `{"paused":1}`, `{"paused":"true"}`, `{"enabled":0}`, `{"method":"FIFO"}`, `{"method":""}`,
		`{"session":{"ttl":300}}`, `{"session":{"ttl":"300"}}`, `{"session":{"ttl":"-5m"}}`, `{"session":{"ttl":"25h"}}`, `{"session":"5m"}`, `{"session.ttl":"5m"}`, `{"admission.rate":5}`,
		`{"message":"\u0000"}`, `{"message":"\u001b[31m"}`, `{"message":"` + strings.Repeat("가", 1001) + `"}`, `{"Rate":5}`, `{"":1}`,
	} {
		if w := newBench(t).ask("PATCH", "/admin/v1/rooms/sale", body); w.Code != 422 {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	want(t, newBench(t).ask("PATCH", "/admin/v1/rooms/sale", `{"message":"`+strings.Repeat("가", 1000)+`"}`), 200)
}

func TestBody_RefusesAmbiguousJSON(t *testing.T) {
	for _, row := range []struct {
		name, body string
		status     int
		code       string
	}{
		{"a name twice", `{"rate":5,"rate":6}`, 400, "bad_json"},
		{"a name twice, once escaped", `{"rate":5,"r\u0061te":6}`, 400, "bad_json"},
		{"a name twice, nested", `{"admission":{"rate":5,"rate":6}}`, 400, "bad_json"},
		{"something after it", `{"rate":5}{"rate":6}`, 400, "bad_json"},
		{"a comment", `{"rate":5} // five`, 400, "bad_json"},
		{"cut off", `{"rate":5`, 400, "bad_json"},
		{"a comma too many", `{"rate":5,}`, 400, "bad_json"},
		{"single quotes", `{'rate':5}`, 400, "bad_json"},
		{"a leading zero", `{"rate":05}`, 400, "bad_json"},
		{"NaN", `{"rate":NaN}`, 400, "bad_json"},
		{"an array", `[{"rate":5}]`, 400, "bad_json"},
		{"null", `null`, 400, "bad_json"},
		{"nothing", ``, 400, "bad_json"},
		{"blanks", `  `, 400, "bad_json"},
		{"not UTF-8", "{\"message\":\"\xff\"}", 400, "bad_json"},
		{"a byte order mark", "\ufeff{}", 400, "bad_json"},
		{"nested without end", strings.Repeat(`{"a":`, 20) + `1` + strings.Repeat(`}`, 20), 400, "bad_json"},
		{"64 KiB and one", `{"message":"` + strings.Repeat("x", 64<<10) + `"}`, 413, "too_large"},
	} {
		t.Run(row.name, func(t *testing.T) {
			wantCode(t, newBench(t).ask("PATCH", "/admin/v1/rooms/sale", row.body, "Content-Type: application/json"), row.status, row.code)
		})
	}
}

func TestBody_RequiresJSONType(t *testing.T) {
	for kind, status := range map[string]int{
		"application/json": 200, "application/json; charset=utf-8": 200, "Application/Merge-Patch+JSON": 200,
		"": 200, "text/plain": 415, "application/x-www-form-urlencoded": 415, "multipart/form-data; boundary=x": 415, "application/json5": 415, "application/json, text/plain": 415,
	} {
		if w := newBench(t).ask("PATCH", "/admin/v1/rooms/sale", `{"rate":5}`, "Content-Type: "+kind); w.Code != status {
			t.Errorf("%q: %d, want %d", kind, w.Code, status)
		}
	}
	wantCode(t, newBench(t).ask("POST", "/admin/v1/rooms/sale/reset", `{"confirm":"sale"}`, "Content-Type: text/plain"), 415, "unsupported_media_type")
}

func TestPatch_CutsLongValuesInProblems(t *testing.T) {
	w := newBench(t).ask("PATCH", "/admin/v1/rooms/sale", `{"method":"`+strings.Repeat("가", 9000)+`"}`)
	want(t, w, 422)
	if w.Body.Len() > 1500 {
		t.Errorf("the problem echoes %d bytes", w.Body.Len())
	}
	decode(t, w.Body.Bytes())
}

// exact reads the value of a decimal, and reads back what thousandth writes.
func TestExact_InvertsThousandth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(-1e15, 1e15).Draw(t, "n")
		got, err := exact(thousandth(n).String(), 3)
		if err != nil || got != n {
			t.Fatalf("exact(%s) = %d, %v; want %d", thousandth(n), got, err, n)
		}
	})
}

func FuzzPatch(f *testing.F) {
	for _, seed := range []string{
		`{"rate":5}`, `{"admission":{"rate":2.5,"burst":1e1,"max_active":null}}`, `{"session":{"ttl":"2m"},"page":{"message":"x"},"queue":{"method":"reject"}}`,
		`{"paused":true,"enabled":false,"message":null}`, `{"rate":1e-999}`, `{"rate":5,"rate":6}`, `{"a":{"b":{"c":{}}}}`, `{"rate":-0}`, `[]`, ``, `{"session":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		n, err := ophttp.Object(body)
		if err == nil {
			err = checkNames(n, "", 1)
		}
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without text")
			}
			return
		}
		change, faults := decodePatch(n)
		if len(faults) > 0 {
			if _, err := json.Marshal(ophttp.Invalid(faults...)); err != nil {
				t.Fatalf("problems that cannot be written: %v", err)
			}
			return
		}
		inRange := func(name string, v *int64, least, most int64) {
			if v != nil && (*v < least || *v > most) {
				t.Fatalf("%s %d came through %q", name, *v, body)
			}
		}
		inRange("rate", change.Rate, 0, 1e9)
		inRange("burst", change.Burst, 1e3, 1e9)
		inRange("max_active", change.MaxActive, 0, 1e9)
		if change.SessionTTL != nil && (*change.SessionTTL < time.Second || *change.SessionTTL > 24*time.Hour) {
			t.Fatalf("session.ttl %s came through %q", change.SessionTTL, body)
		}
		if change.Message != nil && utf8.RuneCountInString(*change.Message) > 1000 {
			t.Fatalf("a message of %d bytes came through", len(*change.Message))
		}
	})
}

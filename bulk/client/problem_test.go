package client

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestProblem_IsReadFromResponse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		status  int
		body    string
		want    string
		passing bool
	}{
		{"of the server", 409, `{"code":"sealed","status":409,"title":"Conflict","detail":"group \"g\" is sealed"}`, `409 sealed: group "g" is sealed`, false},
		{"with fields", 422, `{"code":"invalid","detail":"nothing was changed","problems":[{"path":"weight","value":0,"problem":"is out of range","allowed":"0.01 to 100"},{"path":"x","problem":"is not a field"}]}`,
			"422 invalid: weight: is out of range (use 0.01 to 100); x: is not a field", false},
		{"the status of the answer counts", 503, `{"code":"store_unavailable","status":200}`, "503 store_unavailable", true},
		{"of a proxy", 502, "<html>\nbad gateway", "502 http_502: <html>", true},
		{"JSON that is none", 500, `{"error":"x"}`, `500 http_500: {"error":"x"}`, false},
		{"of another form", 404, `{"code":5}`, `404 http_404: {"code":5}`, false},
		{"empty", 504, "", "504 http_504", true},
		{"quota", 429, `{"code":"quota"}`, "429 quota", true},
		{"our body came too slowly", 408, `{"code":"body_idle"}`, "408 body_idle", true},
		{"our body broke off", 400, `{"code":"bad_body"}`, "400 bad_body", true},
		{"not UTF-8", 500, "\xff\xfe" + strings.Repeat("a", 300), "500 http_500: �" + strings.Repeat("a", 198) + "…", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := readProblem(row.status, http.Header{}, strings.NewReader(row.body))
			if p.Error() != row.want || p.passing() != row.passing || p.Status != row.status {
				t.Errorf("%q, passing %v, status %d; want %q, %v", p.Error(), p.passing(), p.Status, row.want, row.passing)
			}
		})
	}
}

func TestRetryAfter_ReadsSecondsAndDates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for _, row := range []struct {
		header string
		want   time.Duration
	}{
		{"", 0}, {"0", 0}, {"7", 7 * time.Second}, {"-7", 0}, {"7.5", 0}, {"soon", 0}, {"99999999999999", 0},
		{"Fri, 02 Jan 2026 15:04:35 GMT", 30 * time.Second}, {"Fri, 02 Jan 2026 15:04:00 GMT", 0},
	} {
		if got := retryAfter(row.header, now); got != row.want {
			t.Errorf("Retry-After: %s is %v; want %v", row.header, got, row.want)
		}
	}
}

func TestTolerance_AsJSON(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		tolerance Tolerance
		want      string
	}{
		{"", `{"failure_tolerance":""}`}, {"0", `{"failure_tolerance":0}`}, {"12", `{"failure_tolerance":12}`},
		{"5%", `{"failure_tolerance":"5%"}`}, {"2.5%", `{"failure_tolerance":"2.5%"}`},
	} {
		type holder struct {
			T Tolerance `json:"failure_tolerance"`
		}
		b, err := json.Marshal(holder{row.tolerance})
		if err != nil || string(b) != row.want {
			t.Errorf("%q becomes %s, %v; want %s", row.tolerance, b, err, row.want)
		}
		var back holder
		if err := json.Unmarshal(b, &back); err != nil || back.T != row.tolerance {
			t.Errorf("%s becomes %q, %v", b, back.T, err)
		}
	}
}

func FuzzProblem(f *testing.F) {
	f.Add(409, `{"code":"sealed","detail":"d","problems":[{"path":"x"}]}`, "7")
	f.Add(502, "\xff<html>", "Fri, 02 Jan 2026 15:04:35 GMT")
	f.Fuzz(func(t *testing.T, status int, body, after string) {
		p := readProblem(status, http.Header{"Retry-After": {after}}, strings.NewReader(body))
		if p.Status != status || p.Code == "" || p.RetryAfter < 0 {
			t.Errorf("%+v of %d, %q and %q", p, status, body, after)
		}
	})
}

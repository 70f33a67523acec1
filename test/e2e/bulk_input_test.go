package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A bad line is reported with its number and field; the jobs of the other lines run.
func TestBulkBadLines(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "limits: {line: 1KiB}")
	w := f.worker()
	w.ask(http.MethodPost, "/v1/groups", `{"id":"g","tenant":"acme","type":"webhook"}`).want(http.StatusCreated)
	long := `{"id":"long","payload":"` + strings.Repeat("x", 1024) + `"}`
	lines := []struct{ line, reason string }{
		{`{"id":"a","payload":1}`, ""},
		{`{"id":"broken","payload":`, "JSON"},
		{long, "limits.line"},
		{`{"id":"unknown","type":"carrier-pigeon","payload":1}`, `type "carrier-pigeon"`},
		{`{"id":"a","payload":2}`, ""}, // a duplicate
		{``, ""},
		{`{"id":"nothing"}`, "payload is missing"},
		{`{"id":"dear","payload":1,"cost":0}`, "cost"},
		{`{"id":"late","payload":1,"run_at":"tomorrow"}`, "run_at"},
		{`{"id":"more","payload":1,"color":"red"}`, "color"},
		{`{"id":"two words","payload":1}`, "id"},
		{`["a job?"]`, "object"},
		{`{"payload":{"no":"id"}}`, ""},
		{`{"id":"z","payload":null}`, ""},
	}
	var body strings.Builder
	for _, l := range lines {
		body.WriteString(l.line + "\n")
	}
	got := into[bulkGroup](w.ask(http.MethodPost, "/v1/groups/g/jobs", body.String()).want(http.StatusOK))
	if got.Accepted != 3 || got.Duplicates != 1 {
		t.Errorf("%+v", got)
	}
	reasons := map[int]string{}
	for _, r := range got.Rejected {
		reasons[r.Line] = r.Reason
	}
	for i, l := range lines {
		reason, rejected := reasons[i+1]
		if rejected != (l.reason != "") || !strings.Contains(reason, l.reason) {
			t.Errorf("line %d, %s: rejected %v, %q; want %q", i+1, l.line, rejected, reason, l.reason)
		}
	}
	w.ask(http.MethodPost, "/v1/groups/g/seal", "").want(http.StatusOK)
	if g := w.completes("g"); g.Total != 3 || g.Succeeded != 3 {
		t.Errorf("%+v", g)
	}
	once(t, f.to.of("g"), 3)
	w.results("g", 3)

	// The command reports the same lines, and submits the others.
	file := filepath.Join(tempDir(t), "jobs.ndjson")
	write(t, file, body.String())
	code, out, errs := bulkCommand(t, "", "submit", "--server", w.url, "--type", "webhook", "--tenant", "acme", "--id", "cli", "--watch", file)
	if code != 1 || out != "cli\n" || !strings.Contains(errs, file+":2: ") || !strings.Contains(errs, "9 of 14 lines were rejected") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if g := w.group("cli"); g.Status != "COMPLETED" || g.Succeeded != 3 {
		t.Errorf("%+v", g)
	}
}

// An invalid request receives a clear problem and changes nothing.
func TestBulkBadRequests(t *testing.T) {
	t.Parallel()
	const admin, team = "e2e-admin-token-of-the-bulk-worker", "e2e-team-token-of-acme"
	file := filepath.Join(tempDir(t), "token")
	write(t, file, team+"\n")
	f := newFarm(t, fmt.Sprintf("admin: {token: %q}\napi_tokens: [{name: acme, tenants: [acme], token_file: %q}]\nlimits: {pending_per_tenant: 100}", admin, file))
	f.to.answer = func(_ http.ResponseWriter, r *http.Request, run jobRun) {
		if run.group == "held" {
			<-r.Context().Done()
		}
	}
	w := f.worker()
	as := func(token string) headers { return headers{"Authorization": "Bearer " + token} }
	acme, all := as(team), as(admin)
	w.ask(http.MethodPost, "/v1/bulk?tenant=acme&type=webhook&id=done", jobLines(2), acme).want(http.StatusCreated)
	w.ask(http.MethodPost, "/v1/bulk?tenant=globex&type=webhook&id=theirs", jobLines(2), all).want(http.StatusCreated)
	until(t, "the first two have ended", func() bool {
		return into[bulkGroup](w.ask(http.MethodGet, "/v1/groups/done", "", acme)).Status == "COMPLETED" &&
			into[bulkGroup](w.ask(http.MethodGet, "/v1/groups/theirs", "", all)).Status == "COMPLETED"
	})
	w.ask(http.MethodPost, "/v1/groups", `{"id":"open","tenant":"acme","type":"webhook"}`, acme).want(http.StatusCreated)
	for _, row := range []struct {
		method, path, body string
		as                 headers
		status             int
		code, says         string
	}{
		{"GET", "/v1/groups", "", headers{}, 401, "unauthorized", ""},
		{"GET", "/v1/groups", "", as("not-a-token-of-anybody"), 401, "unauthorized", ""},
		{"POST", "/v1/bulk?tenant=acme&type=webhook", jobLines(1), as("not-a-token-of-anybody"), 401, "unauthorized", ""},
		{"POST", "/v1/bulk?tenant=globex&type=webhook", jobLines(1), acme, 403, "wrong_tenant", "globex"},
		{"GET", "/v1/groups/theirs", "", acme, 404, "not_found", "theirs"},
		{"PATCH", "/v1/limits", `{"global":1}`, acme, 403, "operators_only", ""},
		{"POST", "/v1/groups/done/jobs", jobLines(1), acme, 409, "sealed", "done"},
		{"POST", "/v1/groups/done/cancel", "", acme, 409, "wrong_state", "done"},
		{"POST", "/v1/groups/done/pause", "", acme, 409, "wrong_state", "done"},
		{"POST", "/v1/groups/done/redrive", "", acme, 409, "wrong_state", "done"},
		{"GET", "/v1/groups/open/result", "", acme, 409, "wrong_state", "open"},
		{"POST", "/v1/groups", `{"id":"done","tenant":"acme","type":"webhook","weight":7}`, acme, 409, "exists", "done"},
		{"POST", "/v1/groups", `{"id":"x","tenant":"acme","type":"webhook","color":"red"}`, acme, 422, "invalid", "color"},
		{"POST", "/v1/groups", `{"id":"x","tenant":"acme","type":"webhook","weight":-1,"priority":"urgent"}`, acme, 422, "invalid", "priority"},
		{"POST", "/v1/groups", `{"id":"x","type":"webhook"}`, acme, 422, "invalid", "tenant"},
		{"POST", "/v1/groups", `{"id":"x","tenant":"acme","type":"webhook","callback_url":"ftp://host/"}`, acme, 422, "invalid", "callback_url"},
		{"POST", "/v1/groups", `{"id":`, acme, 400, "bad_json", ""},
		{"POST", "/v1/groups", `{"id":"x","tenant":"acme","type":"` + strings.Repeat("x", 70<<10) + `"}`, acme, 413, "too_large", ""},
		{"POST", "/v1/bulk?tenant=acme&type=webhook", jobLines(10_001), acme, 422, "idempotency_key", ""},
		{"POST", "/v1/bulk?tenant=acme&type=webhook&id=much", strings.ReplaceAll(jobLines(5000), "\n", "\n\n"), acme, 429, "quota", "pending_per_tenant"},
		{"GET", "/v1/groups/nobody", "", acme, 404, "not_found", "nobody"},
		{"GET", "/v1/nothing", "", acme, 404, "not_found", ""},
	} {
		a := w.ask(row.method, row.path, row.body, row.as)
		if a.problem(row.status, row.code); !strings.Contains(a.body, row.says) {
			t.Errorf("%s %s: no %q in %s", row.method, row.path, row.says, a.body)
		}
	}
	if g := into[bulkGroup](w.ask(http.MethodGet, "/v1/groups/done", "", acme)); g.Total != 2 || g.Succeeded != 2 {
		t.Errorf("%+v", g)
	}
	once(t, f.to.of("done"), 2)
	if log := w.text(); strings.Contains(log, admin) || strings.Contains(log, team) {
		t.Error("a token is in the log")
	}
}

// An upload whose connection breaks before its end or its response is sent again. No job is lost or duplicated.
func TestBulkUpload_BreaksOff(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "")
	w := f.worker()
	const n = 2500
	text := jobLines(n)
	w.ask(http.MethodPost, "/v1/groups", `{"id":"g","tenant":"acme","type":"webhook"}`).want(http.StatusCreated)
	// part sends the beginning of the chunk and resets the connection.
	part := func(bytesOf int) {
		t.Helper()
		c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		before := w.group("g").Total
		var request bytes.Buffer
		fmt.Fprintf(&request, "POST /v1/groups/g/jobs HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: chunk\r\nContent-Length: %d\r\n\r\n%s", len(text), text[:bytesOf])
		if _, err := c.Write(request.Bytes()); err != nil {
			t.Fatal(err)
		}
		until(t, "some of it is in", func() bool { return w.group("g").Total > before || before == n })
		if err := c.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
	}
	part(len(text) / 2)
	part(len(text) - 1)
	part(len(text))
	// The test does not wait for the response; the repeated chunk receives its own.
	key := headers{"Idempotency-Key": "chunk"}
	for range 2 {
		var g bulkGroup
		until(t, "the chunk is free to be sent again", func() bool {
			a := w.ask(http.MethodPost, "/v1/groups/g/jobs", text, key)
			if a.code == http.StatusOK {
				g = into[bulkGroup](a)
			}
			return a.code == http.StatusOK
		})
		if g.Accepted != n || g.Duplicates != 0 {
			t.Errorf("accepted %d, duplicates %d of %d", g.Accepted, g.Duplicates, n)
		}
	}
	// In another chunk, and in one without a key, all jobs are duplicates.
	for _, other := range []headers{{"Idempotency-Key": "another"}, {}} {
		if g := into[bulkGroup](w.ask(http.MethodPost, "/v1/groups/g/jobs", text, other).want(http.StatusOK)); g.Accepted != 0 || g.Duplicates != n {
			t.Errorf("the same jobs with %v: accepted %d, duplicates %d of %d", other, g.Accepted, g.Duplicates, n)
		}
	}
	w.ask(http.MethodPost, "/v1/groups/g/seal", "").want(http.StatusOK)
	if g := w.completes("g"); g.Total != n || g.Succeeded != n {
		t.Errorf("%+v", g)
	}
	once(t, f.to.of("g"), n)
	w.results("g", n)

	// A truncated submission leaves its group unsealed, and continues when it is sent again.
	c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /v1/bulk?tenant=acme&type=webhook&id=cut HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\n%s", strconv.Itoa(len(text)), text[:len(text)/3])
	until(t, "some of it is in", func() bool {
		a := w.ask(http.MethodGet, "/v1/groups/cut", "")
		return a.code == http.StatusOK && into[bulkGroup](a).Total > 0
	})
	_ = c.Close()
	if g := w.group("cut"); g.Sealed || g.Status != "CREATED" {
		t.Errorf("after the cut: %+v", g)
	}
	var g bulkGroup
	until(t, "the submission is taken", func() bool {
		a := w.ask(http.MethodPost, "/v1/bulk?tenant=acme&type=webhook&id=cut", text)
		if a.code == http.StatusCreated || a.code == http.StatusOK {
			g = into[bulkGroup](a)
		}
		return g.ID != ""
	})
	if g.Accepted != n || g.Duplicates != 0 {
		t.Errorf("accepted %d, duplicates %d of %d", g.Accepted, g.Duplicates, n)
	}
	w.completes("cut")
	once(t, f.to.of("cut"), n)
}

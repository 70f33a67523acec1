package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestCreateGroup_CreatesOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	body := `{"id":"g","tenant":"acme","type":"mail","priority":"low","weight":2,"rate":5,"concurrency":3,"base_priority":7,"aggregate":"count",` +
		`"failure_tolerance":10,"callback_url":"https://example.com/done","start":"sealed"}`
	w := b.ask("POST", "/v1/groups", body)
	want(t, w, 201)
	v := decoded(t, w)
	if got := pick(v, "id", "tenant", "type", "status", "sealed", "paused", "priority", "weight", "rate_limit", "concurrency", "base_priority", "aggregate", "failure_tolerance", "callback_url", "start", "total", "progress", "rate", "eta", "congestion", "throttles_per_job"); got !=
		`id="g" tenant="acme" type="mail" status="CREATED" sealed=false paused=false priority="low" weight=2 rate_limit=5 concurrency=3 base_priority=7 aggregate={"op":"count"} failure_tolerance=10 callback_url="https://example.com/done" start="sealed" total=0 progress=0 rate=0 eta=null congestion="none" throttles_per_job=0` {
		t.Error(got)
	}
	if at, err := time.Parse(time.RFC3339, fmt.Sprint(v["created_at"])); err != nil || time.Since(at) > time.Hour || w.Header().Get("Location") != "/v1/groups/g" {
		t.Error(v["created_at"], err, w.Header())
	}
	want(t, b.ask("POST", "/v1/groups", body), 200) // again
	wantCode(t, b.ask("POST", "/v1/groups", `{"id":"g","tenant":"acme","type":"mail"}`), 409, "exists", "g")
	if one, two := b.create(`{"tenant":"acme","type":"mail"}`), b.create(`{"tenant":"acme","type":"mail"}`); one == two || one == "" {
		t.Error(one, two)
	}
	// Without an id the key names it.
	one := b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail"}`, key+"k")
	want(t, one, 201)
	two := b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail"}`, key+"k")
	want(t, two, 200)
	if decoded(t, one)["id"] != decoded(t, two)["id"] {
		t.Error(one.Body, two.Body)
	}
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"fax"}`, key+"k"), 422, "idempotency_key")

	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme"`), 400, "bad_json")
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"`+strings.Repeat("x", maxBody)+`"}`), 413, "too_large")
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","priority":"urgent","wieght":1}`), 422, "invalid", "priority", "high, normal or low", "wieght", "type", "is missing")
	wantCode(t, b.send("POST", "/v1/groups", cut(`{"tenant":`)), 400, "bad_body")
}

// TestCreateGroup_WhileItsIDIsBeingDeleted: with an id derived from the Idempotency-Key, the refusal claimed that the key was used
// with other fields.
func TestCreateGroup_WhileItsIDIsBeingDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.server.deleteTime = 0
	for _, row := range []struct{ path, body, header string }{
		{"/v1/groups", `{"id":"a","tenant":"acme","type":"mail"}`, key},
		{"/v1/groups", `{"tenant":"acme","type":"mail"}`, key + "b"},
		{"/v1/bulk?tenant=acme&type=mail&id=c", lines(3), key},
		{"/v1/bulk?tenant=acme&type=mail", lines(3), key + "d"},
	} {
		w := b.ask("POST", row.path, row.body, row.header)
		want(t, w, 201)
		id, _ := decoded(t, w)["id"].(string)
		group := "/v1/groups/" + id
		want(t, b.ask("POST", group+"/seal", ""), 200)
		b.run(done)
		want(t, b.ask("DELETE", group, ""), 202)
		wantCode(t, b.ask("POST", row.path, row.body, row.header), 409, "exists", id, "is being deleted", "repeat DELETE "+group+" until", "then repeat this request")
		for b.ask("DELETE", group, "").Code != 404 {
			if _, err := b.store.Tend(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		want(t, b.ask("POST", row.path, row.body, row.header), 201)
	}
}

func TestListGroups_FiltersAndPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 5 {
		b.create(fmt.Sprintf(`{"id":"a%d","tenant":"acme","type":"mail","aggregate":"sum:n"}`, i))
	}
	b.create(`{"id":"z","tenant":"zoo","type":"mail"}`)
	want(t, b.ask("POST", "/v1/groups/a3/seal", ""), 200)
	list := func(query string, headers ...string) string {
		t.Helper()
		var ids []string
		for cursor := ""; ; {
			w := b.ask("GET", "/v1/groups?"+query+cursor, "", headers...)
			want(t, w, 200)
			var page struct {
				Groups []struct{ ID string }
				Next   string
			}
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
				t.Fatal(err)
			}
			for _, g := range page.Groups {
				ids = append(ids, g.ID)
			}
			if page.Next == "" {
				return strings.Join(ids, " ")
			}
			cursor = "&cursor=" + page.Next
		}
	}
	for _, row := range []struct{ query, token, want string }{
		{"", adminToken, "z a4 a3 a2 a1 a0"},
		{"limit=2", adminToken, "z a4 a3 a2 a1 a0"},
		{"tenant=acme&limit=1", adminToken, "a4 a3 a2 a1 a0"},
		{"status=CREATED&tenant=acme", adminToken, "a4 a2 a1 a0"},
		{"status=aggregating", adminToken, "a3"},
		{"tenant=nobody", adminToken, ""},
		{"", acmeToken, "a4 a3 a2 a1 a0"},
		{"tenant=acme", acmeToken, "a4 a3 a2 a1 a0"},
	} {
		if got := list(row.query, "Authorization: Bearer "+row.token); got != row.want {
			t.Errorf("%q: %q, want %q", row.query, got, row.want)
		}
	}
	wantCode(t, b.ask("GET", "/v1/groups?status=DONE&limit=0&sort=id", ""), 422, "invalid", "CREATED", "limit", "sort")
	wantCode(t, b.ask("GET", "/v1/groups?label=region", ""), 422, "invalid", "label", "has no =", "key=value")
	wantCode(t, b.ask("GET", "/v1/groups?cursor=x", ""), 422, "invalid", "cursor")
	wantCode(t, b.ask("GET", "/v1/groups?tenant=zoo", "", "Authorization: Bearer "+acmeToken), 403, "wrong_tenant", "zoo")
}

func TestGroupActions_ReturnChangedGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	at := "/v1/groups/" + id
	want(t, b.ask("POST", at+"/jobs", lines(10)), 200)
	for _, row := range []struct{ method, path, body, fields string }{
		{"POST", "/pause", "", `paused=true status="CREATED"`},
		{"POST", "/pause", "{}", `paused=true status="CREATED"`},
		{"POST", "/resume", "", `paused=false status="CREATED"`},
		{"PATCH", "", `{"weight":3,"rate":2.5,"priority":"high","concurrency":4,"base_priority":5}`, `weight=3 rate_limit=2.5 priority="high" concurrency=4 base_priority=5`},
		{"PATCH", "", `{}`, `weight=3`},
		{"PATCH", "", `{"weight":null,"rate":null}`, `weight=1 rate_limit=0 priority="high"`},
		{"POST", "/seal", "", `status="DISPATCHED" sealed=true pending=10`},
		{"POST", "/seal", "", `status="DISPATCHED"`},
		{"POST", "/cancel", "", `cancelled=10 progress=1 eta=null`},
	} {
		w := b.ask(row.method, at+row.path, row.body)
		want(t, w, 200)
		var names []string
		for _, part := range strings.Fields(row.fields) {
			name, _, _ := strings.Cut(part, "=")
			names = append(names, name)
		}
		if got := pick(decoded(t, w), names...); got != row.fields {
			t.Errorf("%s %s %s: %s, want %s", row.method, row.path, row.body, got, row.fields)
		}
	}
	for _, action := range []string{"/pause", "/resume", "/release", "/seal", "/cancel"} {
		wantCode(t, b.ask("POST", at+action, `{"x":1}`), 422, "invalid", "x")
		wantCode(t, b.ask("POST", at+action, `[`), 400, "bad_json")
		wantCode(t, b.ask("POST", "/v1/groups/none"+action, ``), 404, "not_found", "none")
	}
	wantCode(t, b.ask("PATCH", at, `{"tenant":"x","weight":-1}`), 422, "invalid", "tenant", "weight", "0.01 to 100")
	wantCode(t, b.ask("GET", "/v1/groups/%20", ""), 404, "not_found")
	wantCode(t, b.ask("PUT", at, ""), 405, "method_not_allowed", "DELETE, GET, HEAD, PATCH")
	if allow := b.ask("GET", at+"/seal", "").Header().Get("Allow"); allow != "POST" {
		t.Errorf("Allow %q", allow)
	}
}

// Outcomes that a group does not keep are not listed, and a request for such a job is 404 result_not_kept.
func TestResults_NotKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i, results := range []string{"failures", "none", "all", "failures", "none"} {
		aggregate, kept := "count", 2
		if i > 2 {
			aggregate = "sum:n"
		}
		if results == "all" {
			kept = 220
		}
		id := b.create(`{"tenant":"acme","type":"mail","failure_tolerance":"1%","aggregate":"` + aggregate + `","results":"` + results + `"}`)
		at := "/v1/groups/" + id
		want(t, b.ask("POST", at+"/jobs", lines(220)), 200)
		want(t, b.ask("POST", at+"/seal", ""), 200)
		b.run(func(j store.Leased) store.Ack {
			if strings.HasSuffix(j.ID, "00") {
				return buried(j)
			}
			return done(j)
		})
		if aggregate != "count" {
			b.finish(id)
		}
		w := b.ask("GET", at+"/results", "")
		if n := strings.Count(w.Body.String(), "\n"); w.Code != 200 || n != kept || w.Header().Get("X-Bulk-Results") != results {
			t.Errorf("%s: %d %d lines, want %d; %v", results, w.Code, n, kept, w.Header())
		}
		if got := pick(b.group(id), "results", "total", "succeeded", "dead"); got != `results="`+results+`" total=220 succeeded=218 dead=2` {
			t.Error(got)
		}
		want(t, b.ask("GET", at+"/jobs/j100", ""), 200)
		if results == "all" {
			wantCode(t, b.ask("GET", at+"/jobs/nobody", ""), 404, "not_found")
			continue
		}
		for _, job := range []string{"j7", "nobody"} {
			wantCode(t, b.ask("GET", at+"/jobs/"+job, ""), 404, "result_not_kept", "results: "+results)
		}
		wantCode(t, b.ask("POST", at+"/jobs", lines(220)), 409, "sealed")
	}
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","results":"some"}`), 422, "invalid", "results")
}

func TestResults_ListOutcomesAndDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail","failure_tolerance":"1%"}`)
	at := "/v1/groups/" + id
	want(t, b.ask("POST", at+"/jobs", lines(2500)), 200)
	want(t, b.ask("GET", at+"/results", ""), 200)
	want(t, b.ask("POST", at+"/seal", ""), 200)
	wantCode(t, b.ask("GET", at+"/result", ""), 409, "wrong_state", "DISPATCHED", "/events")
	wantCode(t, b.ask("POST", at+"/redrive", ""), 409, "wrong_state", "no dead letters")
	b.run(func(j store.Leased) store.Ack {
		if strings.HasSuffix(j.ID, "00") {
			return buried(j)
		}
		return done(j)
	})
	count := func(path string) (lines int, first map[string]any) {
		t.Helper()
		w := b.ask("GET", path, "")
		if kind := w.Header().Get("Content-Type"); w.Code != 200 || kind != ndjson {
			t.Fatalf("%s: %d %s %s", path, w.Code, kind, w.Body)
		}
		seen := map[string]bool{}
		for s := bufio.NewScanner(w.Body); s.Scan(); lines++ {
			var v map[string]any
			if err := json.Unmarshal(s.Bytes(), &v); err != nil {
				t.Fatalf("%v in %s", err, s.Bytes())
			}
			if seen[fmt.Sprint(v["id"])] {
				t.Errorf("%s: %v twice", path, v["id"])
			}
			seen[fmt.Sprint(v["id"])] = true
			if lines == 0 || v["status"] == "succeeded" && first["status"] == "dead" {
				first = v
			}
		}
		return lines, first
	}
	n, first := count(at + "/results")
	if got := pick(first, "status", "attempts", "result"); n != 2500 || got != `status="succeeded" attempts=1 result={"ok":true}` {
		t.Errorf("%d, %s", n, got)
	}
	if n, _ = count(at + "/results?limit=1001"); n != 1001 {
		t.Errorf("%d with a limit of 1001", n)
	}
	n, first = count("/v1/dead?group=" + id)
	if got := pick(first, "id", "type", "payload", "cost", "attempts", "code", "error"); n != 24 ||
		got != `id="j100" type="mail" payload={"n":100} cost=1 attempts=1 code="unknown_type" error="no handler"` {
		t.Errorf("%d, %s", n, got)
	}
	wantCode(t, b.ask("GET", "/v1/dead", ""), 422, "invalid", "group")
	wantCode(t, b.ask("GET", "/v1/dead?group=none", ""), 404, "not_found")
	wantCode(t, b.ask("GET", at+"/results?limit=0", ""), 422, "invalid", "limit")

	want(t, b.ask("GET", at+"/result", ""), 200, `{"succeeded":2476,"failed":0,"dead":24,"cancelled":0,"errors":{"unknown_type":24}}`)
	if got := pick(b.group(id), "status", "progress", "dead", "error", "eta"); got != `status="COMPLETED" progress=1 dead=24 error=null eta=null` {
		t.Error(got)
	}
	w := b.ask("POST", at+"/redrive", `{"rate":9}`)
	want(t, w, 201)
	if got := pick(decoded(t, w), "redrive_of", "total", "rate_limit", "sealed"); got != `redrive_of="`+id+`" total=24 rate_limit=9 sealed=true` {
		t.Error(got)
	}
	wantCode(t, b.ask("POST", at+"/redrive", `{"rate":-1}`), 422, "invalid", "rate")
	wantCode(t, b.ask("POST", at+"/redrive", `{"statuses":"dead","codes":[1]}`), 422, "invalid", "statuses", "codes")
	wantCode(t, b.ask("POST", at+"/redrive", `{"statuses":["succeeded"]}`), 422, "invalid", "statuses")
	wantCode(t, b.ask("POST", at+"/redrive", `{"statuses":["failed"],"codes":["http_500"]}`), 409, "wrong_state", "no such jobs")
}

func TestGroup_NamesReasonOfFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail","failure_tolerance":"1%"}`)
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", lines(10)), 200)
	want(t, b.ask("POST", "/v1/groups/"+id+"/seal", ""), 200)
	b.run(buried)
	if got := pick(b.group(id), "status", "error"); got != `status="FAILED" error="10 of 10 jobs failed or died; failure_tolerance is 1%"` {
		t.Error(got)
	}
}

// A stream sends progress, and ends when its group ends.
func TestEvents_StreamProgressUntilEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	served := httptest.NewServer(b.handler)
	t.Cleanup(served.Close)
	id := b.create(`{"tenant":"acme","type":"mail","aggregate":"sum:n"}`)
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", lines(10)), 200)
	resp := open(t, served.URL+"/v1/groups/"+id+"/events")
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || kind != "text/event-stream" {
		t.Fatal(resp.Status, kind)
	}
	events := bufio.NewScanner(resp.Body)
	next := func(status string) map[string]any {
		t.Helper()
		for events.Scan() {
			data, is := strings.CutPrefix(events.Text(), "data: ")
			if !is {
				continue
			}
			var v map[string]any
			if err := json.Unmarshal([]byte(data), &v); err != nil {
				t.Fatal(err)
			}
			if v["status"] == status {
				return v
			}
		}
		t.Fatalf("the stream ended before %s: %v", status, events.Err())
		return nil
	}
	if got := pick(next("CREATED"), "total", "progress"); got != "total=10 progress=0" {
		t.Error(got)
	}
	want(t, b.ask("POST", "/v1/groups/"+id+"/seal", ""), 200)
	next("DISPATCHED")
	b.run(done)
	if got := pick(next("AGGREGATING"), "succeeded", "progress"); got != "succeeded=10 progress=1" {
		t.Error(got)
	}
	b.finish(id)
	next("COMPLETED")
	for events.Scan() {
		if events.Text() != "" {
			t.Errorf("%q after the last event", events.Text())
		}
	}
	if err := events.Err(); err != nil {
		t.Error(err)
	}
	// A client that connects after the end receives one event, and a browser that reconnects none.
	if w := b.ask("GET", "/v1/groups/"+id+"/events", ""); strings.Count(w.Body.String(), "event: progress") != 1 || !strings.Contains(w.Body.String(), "id: end") {
		t.Error(w.Body)
	}
	if w := b.ask("GET", "/v1/groups/"+id+"/events", "", "Last-Event-ID: end"); w.Code != 204 {
		t.Error(w.Code)
	}
	if n := inUse(b.server.streams); n != 0 {
		t.Errorf("%d streams are counted", n)
	}
}

// TestEvents_EndWithTheLastRun: the last event of a cancelled group still counted running jobs, and a deleted group sent no last event.
func TestEvents_EndWithTheLastRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	served := httptest.NewServer(b.handler)
	t.Cleanup(served.Close)
	// stream returns a function that reads the next event: its name, its id and the group.
	stream := func(id string) func() (name, last string, v map[string]any) {
		events := bufio.NewScanner(open(t, served.URL+"/v1/groups/"+id+"/events").Body)
		return func() (name, last string, v map[string]any) {
			t.Helper()
			for events.Scan() {
				key, value, _ := strings.Cut(events.Text(), ": ")
				switch key {
				case "event":
					name = value
				case "id":
					last = value
				case "data":
					if err := json.Unmarshal([]byte(value), &v); err != nil {
						t.Fatal(err)
					}
					return name, last, v
				}
			}
			return "", "", nil
		}
	}
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", lines(3)), 200)
	p, err := b.store.Pull(t.Context(), 1)
	if err != nil || len(p.Jobs) != 1 {
		t.Fatal(p, err)
	}
	next := stream(id)
	next()
	want(t, b.ask("POST", "/v1/groups/"+id+"/cancel", ""), 200)
	if name, last, v := next(); name != "progress" || last != "" || pick(v, "status", "in_flight") != `status="CANCELLED" in_flight=1` {
		t.Errorf("%s %q %v", name, last, v)
	}
	if _, err := b.store.Ack(t.Context(), []store.Ack{{Key: p.Jobs[0].Key, Fence: p.Jobs[0].Fence, Verdict: store.Done}}); err != nil {
		t.Fatal(err)
	}
	if name, last, v := next(); name != "progress" || last != "end" || pick(v, "status", "in_flight") != `status="CANCELLED" in_flight=0` {
		t.Errorf("%s %q %v", name, last, v)
	}
	if name, _, _ := next(); name != "" {
		t.Error(name)
	}

	id = b.create(`{"tenant":"acme","type":"mail"}`)
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", lines(1)), 200)
	next = stream(id)
	next()
	want(t, b.ask("POST", "/v1/groups/"+id+"/cancel", ""), 200)
	for again := true; again; {
		tend, err := b.store.Tend(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		again = tend.Again
	}
	want(t, b.ask("DELETE", "/v1/groups/"+id, ""), 204)
	// The stream looks once a second: it may have seen the cancel.
	name, last, v := next()
	if name == "" || last != "end" || v["id"] != id {
		t.Errorf("%s %q %v", name, last, v)
	}
}

// TestProblem_NamesFullStore: the problem of a full store claimed that the store did not reply in time.
func TestProblem_NamesFullStore(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client()
	b := newBenchOn(t, client, store.Defaults())
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	if err := client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{"/v1/groups": `{"tenant":"acme","type":"mail"}`, "/v1/groups/" + id + "/jobs": lines(1)} {
		w := b.ask("POST", path, body)
		wantCode(t, w, 503, "store_full", "the store's memory is full", "retention.jobs", "maxmemory")
		if w.Header().Get("Retry-After") != "5" {
			t.Error(w.Header())
		}
	}
	want(t, b.ask("POST", "/v1/groups/"+id+"/cancel", ""), 200)
}

// TestProblem_NamesStoreThatRefusesWrites: the problem of a read-only store claimed that the store did not reply in time.
func TestProblem_NamesStoreThatRefusesWrites(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client()
	b := newBenchOn(t, client, store.Defaults())
	for _, row := range []struct{ setting, on, off, cause, remedy string }{
		{"min-replicas-to-write", "1", "0", "NOREPLICAS", "restore the replicas"},
	} {
		if err := client.ConfigSet(t.Context(), row.setting, row.on).Err(); err != nil {
			t.Fatal(err)
		}
		wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail"}`), 503, "store_unavailable", "the store refuses writes", row.cause, row.remedy)
		if err := client.ConfigSet(t.Context(), row.setting, row.off).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.SlaveOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail"}`), 503, "store_unavailable", "the store refuses writes", "READONLY", "primary")
}

func TestEvents_AreBoundedAndEndWithServer(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.Limits.Streams = 1 })
	served := httptest.NewServer(b.handler)
	t.Cleanup(served.Close)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	resp := open(t, served.URL+"/v1/groups/"+id+"/events")
	events := bufio.NewScanner(resp.Body)
	for events.Scan() && !strings.HasPrefix(events.Text(), "data: ") {
	}
	w := b.ask("GET", "/v1/groups/"+id+"/events", "")
	wantCode(t, w, 503, "too_many_streams", "poll")
	if w.Header().Get("Retry-After") != "5" {
		t.Error(w.Header())
	}
	b.server.Close()
	b.server.Close()
	for events.Scan() {
	}
	if err := events.Err(); err != nil {
		t.Errorf("the stream broke: %v", err)
	}
}

func open(t *testing.T, url string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close(); http.DefaultClient.CloseIdleConnections() })
	return resp
}

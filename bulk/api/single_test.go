package api

import (
	"net/url"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/bulk/store"
)

func TestSubmitJob_RunsAndIsReadAtItsLocation(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.ask("POST", "/v1/jobs", `{"id":"r/1","tenant":"acme","type":"mail","payload":{"to":"a"},"cost":3}`)
	want(t, w, 202)
	where := w.Header().Get("Location")
	v := decoded(t, w)
	if v["id"] != "r/1" || v["duplicate"] != nil || where != "/v1/groups/"+v["group"].(string)+"/jobs/r%2F1" {
		t.Fatal(w.Body, where)
	}
	if got := pick(decoded(t, b.ask("GET", where, "")), "id", "status", "type"); got != `id="r/1" status="pending" type="mail"` {
		t.Error(got)
	}
	again := b.ask("POST", "/v1/jobs", `{"id":"r/1","tenant":"acme","type":"mail","payload":{"to":"other"}}`)
	want(t, again, 200)
	if got := decoded(t, again); got["duplicate"] != true || got["group"] != v["group"] || again.Header().Get("Location") != where {
		t.Error(again.Body)
	}
	if n := b.run(func(j store.Leased) store.Ack {
		if j.Cost != 3 || string(j.Payload) != `{"to":"a"}` {
			t.Errorf("%+v", j)
		}
		return done(j)
	}); n != 1 {
		t.Fatal(n)
	}
	if got := pick(decoded(t, b.ask("GET", where, "")), "status", "result"); got != `status="succeeded" result={"ok":true}` {
		t.Error(got)
	}
	if got := b.group(v["group"].(string)); got["rolling_until"] == nil || got["status"] != "CREATED" {
		t.Error(got)
	}

	waits := b.ask("POST", "/v1/jobs", `{"tenant":"acme","type":"mail","payload":1,"delay":"3h"}`, key+"k")
	want(t, waits, 202)
	same := b.ask("POST", "/v1/jobs", `{"tenant":"acme","type":"mail","payload":1,"delay":"3h"}`, key+"k")
	want(t, same, 200)
	if decoded(t, same)["id"] != decoded(t, waits)["id"] || decoded(t, waits)["start_at"] == nil {
		t.Error(waits.Body, same.Body)
	}
	if got := decoded(t, b.ask("GET", waits.Header().Get("Location"), "")); got["status"] != "waiting" {
		t.Error(got)
	}
	want(t, b.ask("POST", waits.Header().Get("Location")+"/cancel", ""), 200)
	if got := decoded(t, b.ask("GET", waits.Header().Get("Location"), "")); got["status"] != "cancelled" {
		t.Error(got)
	}
	want(t, b.ask("POST", "/v1/jobs", `{"tenant":"acme","type":"mail","payload":1}`, "Authorization: Bearer "+acmeToken), 202)
	wantCode(t, b.ask("POST", "/v1/jobs", `{"tenant":"zoo","type":"mail","payload":1}`, "Authorization: Bearer "+acmeToken), 403, "wrong_tenant")
}

func TestSubmitJob_RefusesBadFields(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) {
		o.AllowType = func(kind string) bool { return kind == "mail" }
		o.Limits.Line = 100
		o.Tokens[0].Most = Ceilings{Priority: store.Normal, Pending: 1}
	})
	wantCode(t, b.ask("POST", "/v1/jobs", `{}`), 422, "invalid", "tenant", "type", "payload", "is missing")
	wantCode(t, b.ask("POST", "/v1/jobs?x=1", `{}`), 422, "invalid")
	for field, words := range map[string]string{
		`"type":"fax"`: "no handler", `"priority":"urgent"`: "priority", `"delay":"1d"`: "is not a duration", `"delay":"0s"`: "is not from", `"delay":5`: "is not a duration",
		`"start_at":"today"`: "is not a time", `"delay":"1h","start_at":"2090-01-02T03:04:05Z"`: "is given with start_at", `"expires_at":"2020-01-02T03:04:05Z"`: "expires_at",
		`"unique":"k"`: "is not an object", `"unique":{"key":"k"}`: "lacks key or for", `"unique":{"key":"k","for":"1ms"}`: "is not from 1s to 720h", `"unique":{"key":"k","for":"1h","x":1}`: "x is not a field",
		`"unique":{"key":1,"for":"1h"}`: "key is not text", `"cost":1001`: "is out of range", `"id":"a b"`: "id", `"payload":"` + strings.Repeat("x", 100) + `"`: "limits.line", `"x":1`: "is not a field",
	} {
		body := `{"tenant":"acme",` + field
		if !strings.Contains(field, `"type"`) {
			body += `,"type":"mail"`
		}
		if !strings.Contains(field, `"payload"`) {
			body += `,"payload":1`
		}
		wantCode(t, b.ask("POST", "/v1/jobs", body+"}"), 422, "invalid", words)
	}
	const acme = "Authorization: Bearer " + acmeToken
	wantCode(t, b.ask("POST", "/v1/jobs", `{"tenant":"acme","type":"mail","payload":1,"priority":"high"}`, acme), 422, "invalid", "max_priority")
	want(t, b.ask("POST", "/v1/jobs", `{"tenant":"acme","type":"mail","payload":1}`, acme), 202)
	wantCode(t, b.ask("POST", "/v1/jobs", `{"tenant":"acme","type":"mail","payload":1}`, acme), 429, "quota", "unfinished jobs", "1 more", "api_tokens[].max_pending is ")
	// No group can take the place of one of single jobs.
	wantCode(t, b.ask("POST", "/v1/groups", `{"id":"jobs:mine","tenant":"acme","type":"mail"}`), 422, "invalid", "jobs:")
}

func TestCreateGroup_TimesAndUnique(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const spec = `{"id":"one","tenant":"acme","type":"mail","start_at":"2090-01-02T03:04:05+01:00","expires_at":"2090-01-03T00:00:00Z","unique":{"key":"nightly","for":"12h"}}`
	want(t, b.ask("POST", "/v1/groups", spec), 201)
	want(t, b.ask("POST", "/v1/groups/one/jobs", lines(2)), 200)
	want(t, b.ask("POST", "/v1/groups/one/seal", ""), 200)
	const times = `start_at="2090-01-02T02:04:05.000000Z" expires_at="2090-01-03T00:00:00.000000Z" gated=true gated_by="start_at" gated_until="2090-01-02T02:04:05.000000Z" status="DISPATCHED" eta=null`
	if got := pick(b.group("one"), "start_at", "expires_at", "gated", "gated_by", "gated_until", "status", "eta"); got != times {
		t.Error(got)
	}
	again := b.ask("POST", "/v1/groups", strings.Replace(spec, `"one"`, `"two"`, 1))
	want(t, again, 200)
	if got := decoded(t, again); got["id"] != "one" || got["duplicate"] != true || again.Header().Get("Location") != "/v1/groups/one" {
		t.Error(again.Body)
	}
	bulk := b.ask("POST", "/v1/bulk?tenant=acme&type=mail&id=three&unique="+url.QueryEscape(`{"key":"nightly","for":"12h"}`), lines(50_000), key+"k")
	want(t, bulk, 200)
	if got := decoded(t, bulk); got["id"] != "one" || got["duplicate"] != true || got["accepted"] != 0.0 {
		t.Error(bulk.Body)
	}
	want(t, b.ask("GET", "/v1/groups/three", ""), 404)
	want(t, b.ask("PATCH", "/v1/groups/one", `{"start_at":null,"expires_at":null}`), 200)
	if got := pick(b.group("one"), "start_at", "expires_at", "gated"); got != `start_at=null expires_at=null gated=false` {
		t.Error(got)
	}
	if n := b.run(done); n != 2 {
		t.Error(n)
	}
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","expires_at":"2020-01-02T03:04:05Z"}`), 422, "invalid", "expires_at")
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","start_at":"2090-01-02T03:04:05Z","expires_at":"2090-01-02T03:04:05Z"}`), 422, "invalid", "expires_at")
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","start_at":"tomorrow"}`), 422, "invalid", "start_at", "RFC 3339")
}

func TestCreateGroup_WaitsForOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const acme = "Authorization: Bearer " + acmeToken
	b.create(`{"id":"zoo","tenant":"zoo","type":"mail"}`)
	b.create(`{"id":"import","tenant":"acme","type":"mail"}`)
	want(t, b.ask("POST", "/v1/groups", `{"id":"mail","tenant":"acme","type":"mail","after":["import"]}`, acme), 201)
	want(t, b.ask("POST", "/v1/bulk?tenant=acme&type=mail&id=alarm&when=on_failure&after="+url.QueryEscape(`["import"]`), lines(1)), 201)
	if got := pick(b.group("mail"), "after", "when", "waits_for", "gated", "gated_by", "gated_until"); got != `after=["import"] when="on_success" waits_for=["import"] gated=true gated_by="after" gated_until=null` {
		t.Error(got)
	}
	want(t, b.ask("POST", "/v1/groups/import/cancel", ""), 200)
	b.tend()
	if got := pick(b.group("mail"), "status", "skipped", "error", "waits_for"); got !=
		`status="CANCELLED" skipped=true error="the groups that it waited for did not end as on_success requires: import is CANCELLED" waits_for=null` {
		t.Error(got)
	}
	if n := b.run(done); n != 1 {
		t.Errorf("%d jobs ran", n)
	}
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","after":["import"]}`), 409, "wrong_state", "import")
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","after":["nobody"]}`), 422, "invalid", "after", "nobody")
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","after":["zoo"]}`, acme), 422, "invalid", "after", "zoo")
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","after":"import"}`), 422, "invalid", "after", "list")
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","after":["a b"]}`), 422, "invalid", "after")
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","when":"on_end"}`), 422, "invalid", "when", "after")
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","after":["import"],"when":"soon"}`), 422, "invalid", "when")
}

func TestCreateGroup_QuietHours(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.create(`{"id":"g","tenant":"acme","type":"mail","quiet_hours":{"from":"22:00","to":"21:59","time_zone":"Europe/Berlin"}}`)
	if got := pick(b.group("g"), "gated_by", "quiet_hours"); got != `gated_by="quiet_hours" quiet_hours={"from":"22:00","time_zone":"Europe/Berlin","to":"21:59"}` && !strings.HasPrefix(got, "gated_by=null") {
		t.Error(got)
	}
	want(t, b.ask("PATCH", "/v1/groups/g", `{"quiet_hours":null}`), 200)
	if got := b.group("g")["quiet_hours"]; got != nil {
		t.Error(got)
	}
	for hours, words := range map[string]string{
		`"night"`: "is not an object", `{"from":"22:00"}`: "not a time of day", `{"from":"22:00","to":"22:00"}`: "both", `{"from":"22:00","to":"25:00"}`: "25:00",
		`{"from":"22:00","to":"08:00","time_zone":"Mars"}`: "IANA", `{"from":"22:00","to":"08:00","zone":"UTC"}`: "zone is not a field", `{"from":22}`: "from is not text",
	} {
		wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","quiet_hours":`+hours+`}`), 422, "invalid", "quiet_hours", words)
	}
}

// tend does the housekeeping that is due, as a keeper does.
func (b *bench) tend() {
	b.t.Helper()
	for range 3 {
		d, err := b.store.Dispatch(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		for _, id := range d.Tend {
			if _, err := b.store.Tend(b.t.Context(), id); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

package api

import (
	"strings"
	"testing"

	"github.com/anteroom/anteroom/bulk/store"
)

func TestSchedules_CreateChangeDelete(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const body = `{"id":"report","tenant":"acme","cron":"30 7 1 1 *","time_zone":"Europe/Berlin","job":{"type":"mail","payload":{"n":1},"cost":2,"priority":"low"}}`
	w := b.ask("POST", "/v1/schedules", body)
	want(t, w, 201)
	v := decoded(t, w)
	if got := pick(v, "id", "tenant", "cron", "time_zone", "overlap", "catch_up", "paused", "job", "started", "last_run"); w.Header().Get("Location") != "/v1/schedules/report" || got !=
		`id="report" tenant="acme" cron="30 7 1 1 *" time_zone="Europe/Berlin" overlap="allow" catch_up="none" paused=false job={"cost":2,"payload":{"n":1},"priority":"low","type":"mail"} started=0 last_run=null` {
		t.Error(got)
	}
	if runs, _ := v["next_runs"].([]any); len(runs) != 5 || !strings.HasSuffix(runs[0].(string), "-01-01T06:30:00.000000Z") {
		t.Error(v["next_runs"])
	}
	want(t, b.ask("POST", "/v1/schedules", strings.ReplaceAll(body, ",", ", ")), 200)
	wantCode(t, b.ask("POST", "/v1/schedules", strings.Replace(body, `"n":1`, `"n":2`, 1)), 409, "exists", "report")

	w = b.ask("PATCH", "/v1/schedules/report", `{"paused":true}`)
	want(t, w, 200)
	if got := pick(decoded(t, w), "paused", "next_runs", "job"); got != `paused=true next_runs=[] job={"cost":2,"payload":{"n":1},"priority":"low","type":"mail"}` {
		t.Error(got)
	}
	w = b.ask("PATCH", "/v1/schedules/report", `{"paused":false,"group":{"type":"mail","results":"none"},"jobs":[{"payload":1},{"id":"x","payload":2}],"expires_after":"1h30m","overlap":"skip"}`)
	want(t, w, 200)
	if got := pick(decoded(t, w), "paused", "job", "jobs", "group", "expires_after", "overlap"); got !=
		`paused=false job=null jobs=[{"payload":1},{"id":"x","payload":2}] group={"results":"none","type":"mail"} expires_after="1h30m0s" overlap="skip"` {
		t.Error(got)
	}
	want(t, b.ask("PATCH", "/v1/schedules/report", `{"jobs":[{"payload":3}]}`), 200)
	if got := pick(decoded(t, b.ask("GET", "/v1/schedules/report", "")), "jobs", "group"); got != `jobs=[{"payload":3}] group={"results":"none","type":"mail"}` {
		t.Error(got)
	}
	want(t, b.ask("DELETE", "/v1/schedules/report", ""), 204)
	wantCode(t, b.ask("GET", "/v1/schedules/report", ""), 404, "not_found", "report")
	wantCode(t, b.ask("DELETE", "/v1/schedules/report", ""), 404, "not_found")
	wantCode(t, b.ask("PATCH", "/v1/schedules/a%20b", "{}"), 404, "not_found")
}

func TestSchedules_OneTokenLeavesSomeForOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t, withUmbra, func(o *Options) { o.Limits.Schedules = 2 })
	create := func(id, tenant, token string) int {
		return b.ask("POST", "/v1/schedules", `{"id":"`+id+`","tenant":"`+tenant+`","cron":"@yearly","job":{"type":"mail","payload":1}}`, "Authorization: Bearer "+token).Code
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if got := create(id, "acme", acmeToken); got != 201 {
			t.Errorf("%s: %d", id, got)
		}
	}
	if got := create("e", "acme", acmeToken); got != 429 {
		t.Errorf("a fifth schedule of one token: %d", got)
	}
	if got := create("a", "acme", acmeToken); got != 200 {
		t.Errorf("the repeated request for a schedule: %d", got)
	}
	for tenant, token := range map[string]string{"umbra": umbraToken, "acme": adminToken} {
		if got := create("of-"+tenant, tenant, token); got != 201 {
			t.Errorf("a schedule by another token: %d", got)
		}
	}
}

func TestSchedules_RefuseBadFields(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) {
		o.AllowType = func(kind string) bool { return kind == "mail" }
		o.Tokens[0].Most = Ceilings{Priority: store.Normal, Weight: 2}
	})
	wantCode(t, b.ask("POST", "/v1/schedules", `{}`), 422, "invalid", "tenant", "cron", "group")
	for body, words := range map[string][]string{
		`"cron":"61 * * * *","job":{"type":"mail","payload":1}`:                                            {"cron", "61"},
		`"cron":"@every 1h","job":{"type":"mail","payload":1}`:                                             {"cron", "@every"},
		`"cron":"@daily","time_zone":"Mars","job":{"type":"mail","payload":1}`:                             {"time_zone"},
		`"cron":"@daily","overlap":"wait","job":{"type":"mail","payload":1}`:                               {"overlap", "allow, skip or queue"},
		`"cron":"@daily","catch_up":"two","job":{"type":"mail","payload":1}`:                               {"catch_up"},
		`"cron":"@daily","expires_after":"1ms","job":{"type":"mail","payload":1}`:                          {"expires_after"},
		`"cron":"@daily","paused":1,"job":{"type":"mail","payload":1}`:                                     {"paused"},
		`"cron":"@daily","job":{"type":"fax","payload":1}`:                                                 {"job.type", "no handler"},
		`"cron":"@daily","job":{"type":"mail"}`:                                                            {"job.payload", "missing"},
		`"cron":"@daily","job":{"payload":1}`:                                                              {"job.type", "missing"},
		`"cron":"@daily","job":{"type":"mail","payload":1,"delay":"1h"}`:                                   {"job.delay", "is not a field"},
		`"cron":"@daily","job":{"type":"mail","payload":1},"jobs":[{"payload":1}]`:                         {"job", "given with"},
		`"cron":"@daily","group":{"type":"mail"}`:                                                          {"jobs"},
		`"cron":"@daily","group":{"type":"mail"},"jobs":[]`:                                                {"jobs"},
		`"cron":"@daily","group":{"type":"mail","start_at":"2090-01-01T00:00:00Z"},"jobs":[{"payload":1}]`: {"group.start_at", "is not a field"},
		`"cron":"@daily","group":{"type":"mail","weight":1000},"jobs":[{"payload":1}]`:                     {"group.weight"},
		`"cron":"@daily","group":{"type":"mail"},"jobs":[{"payload":1},{"x":1}]`:                           {"jobs[1]"},
		`"cron":"@daily","group":{"type":"mail"},"jobs":[{"payload":1,"run_at":"2090-01-01T00:00:00Z"}]`:   {"jobs[0]", "expires_after"},
		`"cron":"@daily","group":{"type":"mail"},"jobs":[{"payload":1,"type":"fax"}]`:                      {"jobs[0]", "fax"},
		`"cron":"@daily","group":{"type":"mail"},"jobs":[{"id":"a","payload":1},{"id":"a","payload":1}]`:   {"jobs", "given twice"},
		`"id":"a:b","cron":"@daily","job":{"type":"mail","payload":1}`:                                     {"id"},
	} {
		wantCode(t, b.ask("POST", "/v1/schedules", `{"tenant":"acme",`+body+`}`), 422, "invalid", words...)
	}
	const acme = "Authorization: Bearer " + acmeToken
	wantCode(t, b.ask("POST", "/v1/schedules", `{"tenant":"acme","cron":"@daily","job":{"type":"mail","payload":1,"priority":"high"}}`, acme), 422, "invalid", "priority", "max_priority")
	want(t, b.ask("POST", "/v1/schedules", `{"id":"mine","tenant":"acme","cron":"@daily","job":{"type":"mail","payload":1}}`, acme), 201)
	wantCode(t, b.ask("PATCH", "/v1/schedules/mine", `{"group":{"type":"mail","weight":3},"jobs":[{"payload":1}]}`, acme), 422, "invalid", "group.weight", "max_weight")
	wantCode(t, b.ask("PATCH", "/v1/schedules/mine", `{"cron":"* * *"}`, acme), 422, "invalid", "cron")
	wantCode(t, b.ask("PATCH", "/v1/schedules/mine", `{"tenant":"zoo"}`, acme), 422, "invalid", "tenant")
	wantCode(t, b.ask("POST", "/v1/groups", `{"id":"schedule:mine:x","tenant":"acme","type":"mail"}`), 422, "invalid", "schedule:")
}

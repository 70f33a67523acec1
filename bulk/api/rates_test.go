package api

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/store"
)

func TestLimits_AreShownAndChanged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, row := range []struct{ method, body, want string }{
		{"GET", ``, `{"global":10000,"per_tenant":0,"burst":0,"live":false,"adaptive":false}`},
		{"PATCH", `{}`, `{"global":10000,"per_tenant":0,"burst":0,"live":false,"adaptive":false}`},
		{"PATCH", `{"global":50.5}`, `{"global":50.5,"per_tenant":0,"burst":0,"live":true,"adaptive":false}`},
		{"PATCH", `{"global":null}`, `{"global":10000,"per_tenant":0,"burst":0,"live":false,"adaptive":false}`},
		{"PATCH", `{"global":50.5}`, `{"global":50.5,"per_tenant":0,"burst":0,"live":true,"adaptive":false}`},
		{"PATCH", `{"per_tenant":7}`, `{"global":50.5,"per_tenant":7,"burst":0,"live":true,"adaptive":false}`},
		{"PATCH", `{"global":null}`, `{"global":10000,"per_tenant":7,"burst":0,"live":true,"adaptive":false}`},
		{"GET", ``, `{"global":10000,"per_tenant":7,"burst":0,"live":true,"adaptive":false}`},
		{"PATCH", `{"global":null,"per_tenant":null}`, `{"global":10000,"per_tenant":0,"burst":0,"live":false,"adaptive":false}`},
		{"PATCH", `{"processors":{"mail":{"rate":14,"concurrency":3}}}`,
			`{"global":10000,"per_tenant":0,"burst":0,"live":false,"adaptive":false,"processors":{"mail":{"rate":14,"concurrency":3,"in_flight":0,"live":true}}}`},
		{"PATCH", `{"processors":{"mail":{"rate":null}}}`,
			`{"global":10000,"per_tenant":0,"burst":0,"live":false,"adaptive":false,"processors":{"mail":{"rate":0,"concurrency":3,"in_flight":0,"live":true}}}`},
		{"PATCH", `{"processors":{"mail":{"concurrency":null}}}`, `{"global":10000,"per_tenant":0,"burst":0,"live":false,"adaptive":false}`},
	} {
		w := b.ask(row.method, "/v1/limits", row.body)
		want(t, w, 200, row.want)
	}
	wantCode(t, b.ask("PATCH", "/v1/limits", `{"global":0,"per_tenant":-1,"burst":3}`), 422, "invalid", "global", "per_tenant", "burst")
	for _, body := range []string{`[]`, `{"a b":{}}`, `{"mail":1}`, `{"mail":{"rate":-1}}`, `{"mail":{"rates":1}}`, `{"mail":{"concurrency":1.5}}`, `{"mail":{},"mail":{}}`} {
		wantCode(t, b.ask("PATCH", "/v1/limits", `{"processors":`+body+`}`), 422, "invalid", "processors")
	}
}

func TestTenant_IsShownAndChanged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	wantCode(t, b.ask("GET", "/v1/tenants/acme", ""), 404, "not_found", "acme")
	wantCode(t, b.ask("GET", "/v1/tenants/a%20b", ""), 404, "not_found")
	b.create(`{"tenant":"acme","type":"mail"}`)
	for _, row := range []struct{ method, body, want string }{
		{"GET", ``, `{"tenant":"acme","weight":1,"rate":0,"concurrency":0,"groups":1,"in_flight":0,"served":0}`},
		{"PATCH", `{"weight":2.5}`, `{"tenant":"acme","weight":2.5,"rate":0,"concurrency":0,"groups":1,"in_flight":0,"served":0}`},
		{"PATCH", `{"rate":12}`, `{"tenant":"acme","weight":2.5,"rate":12,"concurrency":0,"groups":1,"in_flight":0,"served":0}`},
		{"PATCH", `{"weight":null}`, `{"tenant":"acme","weight":1,"rate":12,"concurrency":0,"groups":1,"in_flight":0,"served":0}`},
		{"PATCH", `{"concurrency":4}`, `{"tenant":"acme","weight":1,"rate":12,"concurrency":4,"groups":1,"in_flight":0,"served":0}`},
		{"PATCH", `{"concurrency":null}`, `{"tenant":"acme","weight":1,"rate":12,"concurrency":0,"groups":1,"in_flight":0,"served":0}`},
		{"PATCH", `{"rate":0}`, `{"tenant":"acme","weight":1,"rate":0,"concurrency":0,"groups":1,"in_flight":0,"served":0}`},
	} {
		want(t, b.ask(row.method, "/v1/tenants/acme", row.body), 200, row.want)
	}
	want(t, b.ask("PATCH", "/v1/tenants/new", `{"weight":3}`), 200, `{"tenant":"new","weight":3,"rate":0,"concurrency":0,"groups":0,"in_flight":0,"served":0}`)
	wantCode(t, b.ask("PATCH", "/v1/tenants/acme", `{"weight":0,"rates":1}`), 422, "invalid", "weight", "rates")
}

func TestCongestion_ListsTenants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	want(t, b.ask("GET", "/v1/congestion", ""), 200, `{"summary":{"tenants":0,"level":"none","non_ready":0,"pending":0,"in_flight":0,"backoff_seconds":0,"throttles_per_job":0},"tenants":[]}`)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", lines(3)), 200)
	p, err := b.store.Pull(t.Context(), 1)
	if err != nil || len(p.Jobs) != 1 {
		t.Fatal(p, err)
	}
	if _, err := b.store.Ack(t.Context(), []store.Ack{{Key: p.Jobs[0].Key, Fence: p.Jobs[0].Fence, Verdict: store.Throttled, After: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	w := b.ask("GET", "/v1/congestion", "")
	want(t, w, 200)
	first := decoded(t, w)["tenants"].([]any)[0].(map[string]any)
	if got := pick(first, "tenant", "level", "non_ready", "pending", "in_flight"); got != `tenant="acme" level="none" non_ready=1 pending=2 in_flight=0` {
		t.Error(got)
	}
	if err := b.store.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	w = b.ask("GET", "/v1/congestion/acme/history?minutes=5", "")
	want(t, w, 200)
	v := decoded(t, w)
	points := v["history"].([]any)
	if len(points) != 1 || v["tenant"] != "acme" || points[0].(map[string]any)["at"] == nil {
		t.Errorf("%s", w.Body)
	}
	want(t, b.ask("GET", "/v1/congestion/nobody/history", ""), 200, `{"tenant":"nobody","history":[]}`)
	wantCode(t, b.ask("GET", "/v1/congestion/acme/history?minutes=0", ""), 422, "invalid", "minutes")
}

func TestCongestionSummary_WeightsTenants(t *testing.T) {
	got := summarize([]congestionView{
		{Level: "high", NonReady: 3, Pending: 1, InFlight: 1, Backoff: 12, ThrottlesPerJob: 2, Finished: 100},
		{Level: "low", NonReady: 1, Backoff: 1.5, ThrottlesPerJob: 0.5, Finished: 300},
		{Level: "none", Pending: 5},
	})
	if want := (bulktype.CongestionSummary{Tenants: 3, Level: "high", NonReady: 4, Pending: 6, InFlight: 1, Backoff: 12, ThrottlesPerJob: 0.875}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

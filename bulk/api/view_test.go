package api

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

func TestETA_EstimatesRemainingTime(t *testing.T) {
	group := func(change func(*store.Group)) store.Group {
		g := store.Group{Status: store.Running, Sealed: true, Total: 1000, Succeeded: 400, Expected: 10}
		change(&g)
		return g
	}
	for _, row := range []struct {
		name   string
		change func(*store.Group)
		want   string
	}{
		{"600 left at 10 a second, a quarter faster or slower", func(*store.Group) {}, `{"seconds":60,"low":48,"high":80}`},
		{"rounded up", func(g *store.Group) { g.Expected = 7 }, `{"seconds":86,"low":69,"high":115}`},
		{"failed, dead and cancelled ones are done too", func(g *store.Group) { g.Failed, g.Dead, g.Cancelled = 100, 100, 100 }, `{"seconds":30,"low":24,"high":40}`},
		{"before the seal: of the jobs that are in", func(g *store.Group) { g.Status, g.Sealed = store.Created, false }, `{"seconds":60,"low":48,"high":80}`},
		{"never faster than its own rate", func(g *store.Group) { g.GroupSpec.Rate = 11 }, `{"seconds":60,"low":55,"high":80}`},
		{"a lower rate since: the rate of late says more", func(g *store.Group) { g.GroupSpec.Rate = 1 }, `{"seconds":60,"low":60,"high":80}`},
		{"all done, being reduced", func(g *store.Group) { g.Status, g.Succeeded = store.Aggregating, 1000 }, `{"seconds":0,"low":0,"high":0}`},
		{"all done, but more may come", func(g *store.Group) { g.Status, g.Sealed, g.Succeeded = store.Created, false, 1000 }, `null`},
		{"nothing finished of late", func(g *store.Group) { g.Expected = 0 }, `null`},
		{"no job has ended, at the configured rate", func(g *store.Group) { g.Succeeded = 0; g.Expected = 100 }, `{"seconds":10,"low":8,"high":14}`},
		{"paused", func(g *store.Group) { g.Paused = true }, `null`},
		{"ended", func(g *store.Group) { g.Status = store.Cancelled }, `null`},
		{"a rate next to nothing", func(g *store.Group) { g.Expected = 1e-300 }, `{"seconds":1000000000000,"low":1000000000000,"high":1000000000000}`},
	} {
		if got := string(ophttp.Marshal(estimate(group(row.change)))); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

func TestProgress_IsRoundedDown(t *testing.T) {
	for _, row := range []struct {
		g    store.Group
		want float64
	}{
		{store.Group{}, 0},
		{store.Group{Sealed: true}, 1},
		{store.Group{Total: 3, Succeeded: 1}, 0.3333},
		{store.Group{Total: 1_000_000, Succeeded: 999_999}, 0.9999},
		{store.Group{Total: 4, Succeeded: 1, Failed: 1, Dead: 1, Cancelled: 1}, 1},
	} {
		if got := progress(row.g); got != row.want {
			t.Errorf("%+v: %v, want %v", row.g, got, row.want)
		}
	}
}

func TestGroupView_HasEveryField(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	g := store.Group{
		GroupSpec: store.GroupSpec{ID: "g", Tenant: "acme", Type: "mail", Level: store.High, Weight: 2, Rate: 5, Aggregate: `{"op":"count"}`, Tolerance: store.Tolerance{Percent: 5, Share: true}},
		Status:    store.Running, Sealed: true, Total: 10, Pending: 4, NonReady: 1, InFlight: 1, Succeeded: 4, Throttles: 15, Rate1: 2.00049, Expected: 2.00049,
		Gated: true, GatedUntil: at, CreatedAt: at, SealedAt: at, StartedAt: at,
	}
	const want = `{"id":"g","tenant":"acme","type":"mail","status":"RUNNING","sealed":true,"paused":false,"priority":"high","weight":2,"base_priority":0,` +
		`"rate_limit":5,"concurrency":0,"start":"early","results":"all","aggregate":{"op":"count"},"failure_tolerance":"5%",` +
		`"total":10,"pending":4,"ready":0,"non_ready":1,"in_flight":1,"succeeded":4,"failed":0,"dead":0,"cancelled":0,` +
		`"progress":0.4,"rate":2,"eta":{"seconds":3,"low":3,"high":4},"congestion":"low","throttles_per_job":1.5,"gated":true,"gated_until":"2026-01-02T03:04:05.000006Z",` +
		`"created_at":"2026-01-02T03:04:05.000006Z","sealed_at":"2026-01-02T03:04:05.000006Z","started_at":"2026-01-02T03:04:05.000006Z"}`
	if got := string(ophttp.Marshal(viewOf(g, "low"))); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestOutcomeView_KeepsFormOfResult(t *testing.T) {
	for _, row := range []struct{ result, want string }{
		{"", `{"id":"a","status":"succeeded","attempts":1}`},
		{"{\n \"a\": 1\n}", `{"id":"a","status":"succeeded","attempts":1,"result":{"a":1}}`},
		{"plain\ntext", `{"id":"a","status":"succeeded","attempts":1,"result":"plain\ntext"}`},
		{"\xff\x00", `{"id":"a","status":"succeeded","attempts":1,"result_base64":"/wA="}`},
	} {
		got := string(ophttp.Marshal(outcomeOf(store.Outcome{ID: "a", Status: "succeeded", Attempts: 1, Result: []byte(row.result)})))
		if got != row.want || !json.Valid([]byte(got)) {
			t.Errorf("%q: %s, want %s", row.result, got, row.want)
		}
	}
}

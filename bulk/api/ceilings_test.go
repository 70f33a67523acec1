package api

import (
	"strings"
	"testing"

	"github.com/anteroom/anteroom/bulk/store"
)

func TestCeilings_OfATokenNameTheField(t *testing.T) {
	b := newBench(t, func(o *Options) {
		o.Tokens[0].Most = Ceilings{Weight: 0.5, Priority: store.Low, Pending: 2, Groups: 1}
	})
	const acme = "Authorization: Bearer " + acmeToken
	for _, row := range []struct{ method, path, body, field string }{
		{"POST", "/v1/groups", `{"tenant":"acme","type":"webhook","weight":0.6}`, "weight"},
		{"POST", "/v1/groups", `{"tenant":"acme","type":"webhook","priority":"normal"}`, "priority"},
		{"POST", "/v1/bulk?tenant=acme&type=webhook&priority=high", "", "priority"},
	} {
		w := b.ask(row.method, row.path, row.body, acme, "Content-Type: application/x-ndjson")
		if row.body != "" {
			w = b.ask(row.method, row.path, row.body, acme)
		}
		wantCode(t, w, 422, "invalid", `"path":"`+row.field+`"`, "api_tokens[].max_"+row.field, `\"acme\"`)
	}
	w := b.ask("POST", "/v1/groups", `{"id":"g","tenant":"acme","type":"webhook"}`, acme)
	want(t, w, 201)
	if g := decoded(t, w); g["weight"] != 0.5 || g["priority"] != "low" {
		t.Errorf("what is left out is not within the ceilings: %v", g)
	}
	wantCode(t, b.ask("PATCH", "/v1/groups/g", `{"weight":1}`, acme), 422, "invalid", "max_weight")
	wantCode(t, b.ask("PATCH", "/v1/groups/g", `{"priority":"high"}`, acme), 422, "invalid", "max_priority")
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"webhook"}`, acme), 429, "quota", "api_tokens[].max_groups")
	line := `{"payload":1}` + "\n"
	wantCode(t, b.ask("POST", "/v1/groups/g/jobs", strings.Repeat(line, 3), acme, "Content-Type: application/x-ndjson"), 429, "quota", "has 0 unfinished jobs", "3 more", "api_tokens[].max_pending is 2", "at most 2 at a time")
	want(t, b.ask("POST", "/v1/groups/g/jobs", strings.Repeat(line, 3), "Content-Type: application/x-ndjson"), 200) // the operators' token
	want(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"webhook","priority":"high","weight":7}`), 201)
}

func TestPatch_OfATenantsTokenLeavesWhatOperatorsSet(t *testing.T) {
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"webhook","priority":"low","weight":2}`)
	for _, body := range []string{`{"priority":"high"}`, `{"weight":50}`} {
		wantCode(t, b.ask("PATCH", "/v1/groups/"+id, body, "Authorization: Bearer "+acmeToken), 403, "operators_only", "an operator has set it")
	}
	want(t, b.ask("PATCH", "/v1/groups/"+id, `{"rate":5}`, "Authorization: Bearer "+acmeToken), 200)
}

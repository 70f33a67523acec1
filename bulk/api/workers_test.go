package api

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

func TestWorkers_WhatRunsNow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, tenant := range []string{"acme", "zoo"} {
		id := b.create(`{"tenant":"` + tenant + `","type":"mail","id":"` + tenant + `"}`)
		want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", lines(3)+`{"id":"f","type":"fax","payload":1}`+"\n"), 200)
	}
	if _, err := b.store.Keep(t.Context(), store.ProcessStatus{Host: "h1", Workers: 8, Busy: 3, Types: []string{"fax", "mail"}, StartedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	for range 4 { // so that each starts later than the last
		if p, err := b.store.Pull(t.Context(), 2); err != nil || len(p.Jobs) != 2 {
			t.Fatal(p, err)
		}
	}
	type view struct {
		Processes []struct {
			ID, Host, State string
			Keeper          bool
			Workers, Busy   int
			Types           []string
		}
		Running int
		Jobs    []struct {
			Group, Tenant, ID, Type, Status, Process string
			Attempts                                 int
			StartedAt                                time.Time `json:"started_at"`
		}
	}
	look := func(query string, header ...string) view {
		t.Helper()
		b.server.running.at = time.Time{}
		w := b.ask("GET", "/v1/workers"+query, "", header...)
		want(t, w, 200)
		var v view
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	all := look("")
	if len(all.Processes) != 1 || all.Running != 8 || len(all.Jobs) != 8 {
		t.Fatalf("%+v", all)
	}
	p := all.Processes[0]
	if got := fmt.Sprintln(p.Host, p.Keeper, p.State, p.Workers, p.Busy, p.Types); got != "h1 true running 8 3 [fax mail]\n" {
		t.Error(got)
	}
	for i, j := range all.Jobs {
		if j.Process != p.ID || j.Attempts != 1 || j.Status != "running" || j.Group != j.Tenant || j.Type != map[bool]string{true: "fax", false: "mail"}[j.ID == "f"] {
			t.Errorf("%+v", j)
		}
		if i > 0 && j.StartedAt.Before(all.Jobs[i-1].StartedAt) {
			t.Error("a longer running job comes later")
		}
	}
	for query, n := range map[string]int{"?tenant=acme": 4, "?group=zoo": 4, "?process=" + p.ID: 8, "?process=other": 0, "?type=tape": 0} {
		if got := look(query); len(got.Jobs) != n || got.Running != n {
			t.Errorf("%s: %d jobs, running %d, want %d", query, len(got.Jobs), got.Running, n)
		}
	}
	if got := look("?limit=2"); len(got.Jobs) != 2 || got.Running != 8 || got.Jobs[0] != all.Jobs[0] {
		t.Errorf("%+v", got)
	}
	acme := look("", "Authorization: Bearer "+acmeToken)
	if len(acme.Processes) != 0 || acme.Running != 4 || len(acme.Jobs) != 4 || acme.Jobs[0].Tenant != "acme" {
		t.Errorf("%+v", acme)
	}
	wantCode(t, b.ask("GET", "/v1/workers?limit=0", ""), 422, "invalid", "limit")
	wantCode(t, b.ask("GET", "/v1/workers?tenant=zoo", "", "Authorization: Bearer "+acmeToken), 403, "wrong_tenant")
	// The first client may disconnect: the others that wait for the same reading still get it.
	left, leave := context.WithCancel(t.Context())
	leave()
	b.server.running.at = time.Time{}
	if _, err := b.server.running.read(left, b.server.store); err != nil {
		t.Error(err)
	}
	// The process ends; jobs whose leases are still held are shown until they are taken over.
	if err := b.store.Unkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := look(""); len(got.Processes) != 0 || got.Running != 8 {
		t.Errorf("%+v", got)
	}
}

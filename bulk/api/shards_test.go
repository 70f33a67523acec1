package api

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// What concerns several groups, over a store of several shards.
func TestServer_ChainsJobsAndSchedulesOverShards(t *testing.T) {
	f, err := store.NewFleet(store.Options{Shards: 4, Prefix: redistest.Prefix(t), Timeout: 10 * time.Second, Settings: store.Defaults(), Log: slog.New(slog.DiscardHandler)}, redistest.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(o *Options) { o.Store = f })
	b.create(`{"id":"first","tenant":"acme","type":"mail"}`)
	// A group without an id is on the shard of its predecessor, one with an id on any.
	for _, header := range []string{"", "Idempotency-Key: again"} {
		w := b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","after":["first"]}`, header)
		want(t, w, 201)
		if id := decoded(t, w)["id"]; !strings.HasPrefix(fmt.Sprint(id), "first::") {
			t.Errorf("id %v", id)
		}
	}
	want(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","after":["first"]}`, "Idempotency-Key: again"), 200)
	var home *store.Store
	for _, s := range f.Shards() {
		if _, err := s.Group(t.Context(), "first"); err == nil {
			home = s
		}
	}
	elsewhere := 0
	for i := range 8 {
		id := fmt.Sprintf("second%d", i)
		w := b.ask("POST", "/v1/groups", fmt.Sprintf(`{"id":%q,"tenant":"acme","type":"mail","after":["first"],"when":"on_failure"}`, id))
		want(t, w, 201)
		if got := decoded(t, w); got["gated_by"] != "after" || fmt.Sprint(got["waits_for"]) != "[first]" {
			t.Errorf("%v", got)
		}
		for _, s := range f.Shards() {
			if _, err := s.Group(t.Context(), id); err == nil && s != home {
				elsewhere++
			}
		}
	}
	if elsewhere == 0 {
		t.Error("no group is on another shard than its predecessor")
	}
	w := b.ask("POST", "/v1/groups", `{"id":"third","tenant":"acme","type":"mail","after":["nothing"]}`)
	wantCode(t, w, 422, "invalid")
	// One job and one group under one key.
	const job = `{"tenant":"acme","type":"mail","payload":1,"unique":{"key":"k","for":"1h"}}`
	want(t, b.ask("POST", "/v1/jobs", job), 202)
	want(t, b.ask("POST", "/v1/jobs", job), 200)
	for i := range 4 {
		w := b.ask("POST", "/v1/groups", fmt.Sprintf(`{"id":"u%d","tenant":"acme","type":"mail","unique":{"key":"k","for":"1h"}}`, i))
		want(t, w, map[bool]int{true: 201, false: 200}[i == 0])
		if id := decoded(t, w)["id"]; id != "u0" {
			t.Errorf("id %v", id)
		}
	}
	want(t, b.ask("POST", "/v1/schedules", `{"id":"s","tenant":"acme","cron":"@daily","job":{"type":"mail","payload":1}}`), 201)
	if w := b.ask("GET", "/v1/schedules", ""); !strings.Contains(w.Body.String(), `"s"`) {
		t.Errorf("schedules: %s", w.Body)
	}
	want(t, b.ask("DELETE", "/v1/schedules/s", ""), 204)
}

// A schedule whose runs the number of shards would refuse is refused as such a group is.
func TestSchedules_RefuseASplitThatNoRunCanHave(t *testing.T) {
	t.Parallel()
	const runs = `"tenant":"acme","cron":"@daily","jobs":[{"payload":1}]`
	for shards, words := range map[int][]string{1: {"one shard", "leave split out"}, 2: {"2 shards are open", "use 1 to 2"}} {
		f, err := store.NewFleet(store.Options{Shards: shards, Prefix: redistest.Prefix(t) + fmt.Sprint(shards), Timeout: 10 * time.Second, Settings: store.Defaults(), Log: slog.New(slog.DiscardHandler)}, redistest.Client(t))
		if err != nil {
			t.Fatal(err)
		}
		b := newBench(t, func(o *Options) { o.Store = f })
		wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","split":3}`), 422, "invalid", append([]string{"split 3"}, words...)...)
		words = append([]string{`"group.split"`, "split 3"}, words...)
		wantCode(t, b.ask("POST", "/v1/schedules", `{"id":"s",`+runs+`,"group":{"type":"mail","split":3}}`), 422, "invalid", words...)
		wantCode(t, b.ask("GET", "/v1/schedules/s", ""), 404, "not_found")
		want(t, b.ask("POST", "/v1/schedules", fmt.Sprintf(`{"id":"s",%s,"group":{"type":"mail","split":%d}}`, runs, shards)), 201)
		wantCode(t, b.ask("PATCH", "/v1/schedules/s", `{"group":{"type":"mail","split":3}}`), 422, "invalid", words...)
		want(t, b.ask("PATCH", "/v1/schedules/s", `{"paused":true}`), 200)
	}
}

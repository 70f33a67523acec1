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
	// A group without an id is beside its predecessor; a chosen id may not be.
	for _, header := range []string{"", "Idempotency-Key: again"} {
		w := b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","after":["first"]}`, header)
		want(t, w, 201)
		if id := decoded(t, w)["id"]; !strings.HasPrefix(fmt.Sprint(id), "first::") {
			t.Errorf("id %v", id)
		}
	}
	want(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","after":["first"]}`, "Idempotency-Key: again"), 200)
	refused := 0
	for i := range 8 {
		w := b.ask("POST", "/v1/groups", fmt.Sprintf(`{"id":"second%d","tenant":"acme","type":"mail","after":["first"]}`, i))
		if w.Code == 201 {
			continue
		}
		refused++
		wantCode(t, w, 422, "invalid")
		if text := w.Body.String(); !strings.Contains(text, "first") || !strings.Contains(text, "shards: 4") {
			t.Errorf("the refusal: %s", text)
		}
	}
	if refused == 0 {
		t.Error("no group of another shard is refused")
	}
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

package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

func TestWorker(t *testing.T) {
	prefix := redistest.Prefix(t)
	env := map[string]string{"ANTEROOM_STORE__URL": "unix://" + redistest.SharedSocket(t), "ANTEROOM_STORE__PREFIX": prefix, "ANTEROOM_WORKER__COUNT": "4"}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, func(name string) string { return env[name] }, slog.New(slog.DiscardHandler))
	}()

	s, err := store.New(store.Options{Client: redistest.Client(t), Prefix: prefix, Settings: store.Defaults()})
	if err != nil {
		t.Fatal(err)
	}
	g, _, err := s.CreateGroup(t.Context(), store.GroupSpec{Tenant: "acme", Type: "invoice", Aggregate: `{"op":"reduce","name":"revenue"}`,
		Tolerance: store.Tolerance{Count: 2}})
	if err != nil {
		t.Fatal(err)
	}
	var jobs []store.Job
	for i := range 100 {
		jobs = append(jobs, store.Job{ID: fmt.Sprint(i), Payload: fmt.Appendf(nil,
			`{"country":%q,"items":[{"cents":%d,"count":2},{"cents":500,"count":1}]}`, []string{"DE", "FR"}[i%2], i)})
	}
	jobs = append(jobs, store.Job{ID: "empty", Payload: []byte(`{"items":[]}`)}, store.Job{ID: "broken", Payload: []byte(`{"items":1}`)})
	if _, err := s.AddJobs(t.Context(), g.ID, store.Chunk{}, jobs); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !g.Status.Ended(); <-tick.C {
		if g, err = s.Group(t.Context(), g.ID); err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", g, err)
		}
	}
	// Of each country 50: 2·(0+2+…+98) + 50·500, 2·(1+3+…+99) + 50·500.
	want := `{"op":"reduce","name":"revenue","value":{"DE":{"invoices":50,"cents":29900},"FR":{"invoices":50,"cents":30000}},` +
		`"succeeded":100,"failed":2,"dead":0,"cancelled":0,"errors":{"bad_order":1,"empty_order":1}}`
	if g.Status != store.Completed || string(g.Result) != want {
		t.Errorf("%s %s\nwant %s", g.Status, g.Result, want)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestEnvironmentThatCannotBe(t *testing.T) {
	for _, row := range []struct{ url, count, says string }{
		{"", "", "ANTEROOM_STORE__URL is empty"},
		{"http://127.0.0.1", "", "ANTEROOM_STORE__URL"},
		{"redis://127.0.0.1:1", "many", `ANTEROOM_WORKER__COUNT "many"`},
		{"redis://127.0.0.1:1", "20000", "worker.count 20000"},
	} {
		env := map[string]string{"ANTEROOM_STORE__URL": row.url, "ANTEROOM_WORKER__COUNT": row.count}
		err := run(t.Context(), func(name string) string { return env[name] }, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%v: %v, want it to say %q", row, err, row.says)
		}
	}
}

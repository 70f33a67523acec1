package client

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestClient_TimesChainsAndSchedules: what a client sends about times, chains and schedules is what the server shows, and runs.
func TestClient_TimesChainsAndSchedules(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	ctx := t.Context()
	far := time.Date(2090, 1, 2, 3, 4, 5, 0, time.UTC)

	first := submit(t, c, GroupSpec{ID: "first", StartAt: far, ExpiresAt: far.Add(time.Hour), Unique: &Unique{Key: "k", For: Span(time.Hour)}}, lines(1))
	if !first.StartAt.Equal(far) || !first.ExpiresAt.Equal(far.Add(time.Hour)) || first.GatedBy != "start_at" {
		t.Errorf("%+v", first)
	}
	if again := create(t, c, GroupSpec{ID: "again", Unique: &Unique{Key: "k", For: Span(time.Hour)}}); again.ID != "first" || !again.Duplicate {
		t.Errorf("%+v", again)
	}
	hours := &QuietHours{From: "22:00", To: "08:00", TimeZone: "Europe/Berlin"}
	spec := GroupSpec{ID: "second", Tenant: "acme", Type: "echo", After: []string{"first"}, When: OnEnd, QuietHours: hours, StartAt: far, Unique: &Unique{Key: "k2", For: Span(time.Minute)}}
	second, err := c.Bulk(ctx, spec, strings.NewReader(lines(2)))
	if err != nil || !slices.Equal(second.WaitsFor, spec.After) || second.When != "on_end" || *second.QuietHours != *hours || !second.StartAt.Equal(far) {
		t.Fatalf("%+v %v", second, err)
	}
	night := time.Now().UTC().Add(12 * time.Hour)
	if _, err := c.Patch(ctx, "second", Patch{StartAt: new(time.Now()), QuietHours: &QuietHours{From: night.Format("15:04"), To: night.Add(time.Hour).Format("15:04")}}); err != nil {
		t.Fatal(err)
	}

	job, err := c.Submit(ctx, SingleJob{Tenant: "acme", Type: "echo", Payload: json.RawMessage(`7`), Priority: High, Unique: &Unique{Key: "k", For: Span(time.Hour)}})
	if err != nil || job.Duplicate {
		t.Fatal(job, err)
	}
	same, err := c.Submit(ctx, SingleJob{Tenant: "acme", Type: "echo", Payload: json.RawMessage(`8`), Delay: Span(time.Hour), Unique: &Unique{Key: "k", For: Span(time.Hour)}})
	if err != nil || !same.Duplicate || same.ID != job.ID || same.Group != job.Group {
		t.Fatal(same, err)
	}

	plan := ScheduleSpec{ID: "nightly", Tenant: "acme", Cron: "30 2 * * *", TimeZone: "Europe/Berlin", Overlap: "queue", CatchUp: "one", ExpiresAfter: Span(time.Hour),
		Template: Template{Job: json.RawMessage(`{"type":"echo","payload":1}`)}}
	made, err := c.CreateSchedule(ctx, plan)
	if err != nil || made.Overlap != "queue" || made.CatchUp != "one" || made.ExpiresAfter != "1h0m0s" || len(made.NextRuns) != 5 || string(made.Job) != `{"type":"echo","payload":1}` {
		t.Fatalf("%+v %v", made, err)
	}
	if made, err = c.PauseSchedule(ctx, "nightly"); err != nil || !made.Paused || len(made.NextRuns) != 0 {
		t.Fatalf("%+v %v", made, err)
	}
	if made, err = c.ResumeSchedule(ctx, "nightly"); err != nil || made.Paused {
		t.Fatalf("%+v %v", made, err)
	}
	if all, err := c.Schedules(ctx, "acme"); err != nil || len(all) != 1 || all[0].ID != "nightly" {
		t.Fatal(all, err)
	}
	if err := c.DeleteSchedule(ctx, "nightly"); err != nil {
		t.Fatal(err)
	}
	if all, err := c.Schedules(ctx, ""); err != nil || len(all) != 0 {
		t.Fatal(all, err)
	}

	s.work(t)
	if _, err := c.Cancel(ctx, "first"); err != nil {
		t.Fatal(err)
	}
	if g := end(t, c, "second"); g.Status != Completed || g.Succeeded != 2 {
		t.Fatalf("%+v", g)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if state, err := c.Job(ctx, job.Group, job.ID); err == nil && state.Status == "succeeded" && string(state.Result) == "7" {
			return
		} else if err != nil || time.Now().After(deadline) {
			t.Fatal(state, err)
		}
	}
}

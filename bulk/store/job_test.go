package store

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestJob_AtEveryStage reads one job in each of its states, with its times.
func TestJob_AtEveryStage(t *testing.T) {
	s, clock := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "mail"})
	if _, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{
		{ID: "a/b", Payload: []byte("{}")},
		{ID: "later", Type: "fax", Payload: []byte("{}"), RunAt: time.UnixMicro(begin).Add(time.Hour)},
		{ID: "bad", Payload: []byte("{}")},
	}); err != nil {
		t.Fatal(err)
	}
	show := func(id string) string {
		t.Helper()
		j, err := s.Job(t.Context(), "g", id)
		if err != nil {
			t.Fatal(err)
		}
		since := func(at time.Time) string {
			if at.IsZero() {
				return "-"
			}
			return at.Sub(time.UnixMicro(begin)).Round(time.Millisecond).String()
		}
		return fmt.Sprintf("%s %s %s %d created %s started %s next %s at %s %s", j.ID, j.Type, j.Status, j.Attempts, since(j.CreatedAt), since(j.StartedAt), since(j.Next), since(j.At), j.Code)
	}
	is := func(id, want string) {
		t.Helper()
		if got := strings.TrimSpace(show(id)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	is("a/b", "a/b mail pending 0 created 0s started - next - at -")
	is("later", "later fax waiting 0 created 0s started - next 1h0m0s at -")
	clock.advance(2 * time.Second)
	jobs := pull(t, s, 2).Jobs
	is("a/b", "a/b mail running 1 created 0s started 2s next - at -")
	if j, err := s.Job(t.Context(), "g", "a/b"); err != nil || j.Process != s.o.Process || j.Payload != nil {
		t.Errorf("%+v, %v", j, err)
	}
	clock.advance(3 * time.Second)
	if _, err := s.Ack(t.Context(), []Ack{
		{Key: jobs[0].Key, Fence: jobs[0].Fence, Verdict: Done, Result: []byte("1"), Took: 2500 * time.Millisecond},
		{Key: jobs[1].Key, Fence: jobs[1].Fence, Verdict: Retry, Retries: 1, Code: "http_500", Took: time.Second},
	}); err != nil {
		t.Fatal(err)
	}
	clean(t, s)
	is("a/b", "a/b mail succeeded 1 created 0s started 2.5s next - at 5s")
	if got := show("bad"); !strings.HasPrefix(got, "bad mail waiting 1 created 0s started - next ") {
		t.Error(got)
	}
	clock.advance(time.Minute)
	dispatch(t, s)
	last := pull(t, s, 1).Jobs[0]
	clock.advance(time.Second)
	if _, err := s.Ack(t.Context(), []Ack{{Key: last.Key, Fence: last.Fence, Verdict: Retry, Retries: 1, Code: "http_500", Took: 500 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	is("bad", "bad mail dead 2 created 0s started 1m5.5s next - at 1m6s http_500")
	if _, err := s.Cancel(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	is("later", "later fax cancelled 0 created 0s started - next - at -")
	for _, miss := range [][2]string{{"g", "nobody"}, {"none", "x"}} {
		_, err := s.Job(t.Context(), miss[0], miss[1])
		refused(t, err, CodeNotFound)
	}
	clean(t, s)
}

// TestResults_CursorOfEachOutcome: reading from the cursor of any outcome returns all later outcomes, also on later pages of the log.
func TestResults_CursorOfEachOutcome(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 230)
	for {
		jobs := pull(t, s, 50).Jobs
		if len(jobs) == 0 {
			break
		}
		ack(t, s, Done, jobs...)
	}
	all, err := s.Results(t.Context(), "g", "", 1000)
	if err != nil || len(all.Outcomes) != 230 {
		t.Fatal(len(all.Outcomes), err)
	}
	for _, i := range []int{0, 98, 99, 100, 150, 228, 229} {
		rest, err := s.Results(t.Context(), "g", all.Outcomes[i].Cursor, 7)
		if err != nil {
			t.Fatal(err)
		}
		want := all.Outcomes[i+1 : min(i+8, 230)]
		if len(rest.Outcomes) != len(want) {
			t.Fatalf("behind %d (%s): %d outcomes, want %d", i, all.Outcomes[i].Cursor, len(rest.Outcomes), len(want))
		}
		for n, o := range rest.Outcomes {
			if o.ID != want[n].ID || o.Cursor != want[n].Cursor {
				t.Errorf("behind %d: %s %s, want %s %s", i, o.ID, o.Cursor, want[n].ID, want[n].Cursor)
			}
		}
	}
}

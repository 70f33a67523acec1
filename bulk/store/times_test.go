package store

import (
	"fmt"
	"testing"
	"time"
)

// tendDue does the housekeeping that is due.
func tendDue(t testing.TB, s *Store) {
	t.Helper()
	for _, id := range dispatch(t, s).Tend {
		for again := true; again; {
			did, err := s.Tend(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			again = did.Again
		}
	}
}

func after(us int64, d time.Duration) time.Time { return micros(us).Add(d) }

// counted is a group whose outcomes are counted on arrival, so that it ends without a reducer.
func counted(id string) GroupSpec {
	return GroupSpec{ID: id, Tenant: "acme", Type: "webhook", Aggregate: `{"op":"count"}`}
}

func TestStartAt_HoldsAllJobsUntilThen(t *testing.T) {
	s, c := open(t, nil)
	spec := counted("later")
	spec.StartAt = after(c.us, time.Hour)
	create(t, s, spec)
	add(t, s, "later", 0, 3)
	create(t, s, counted("now"))
	add(t, s, "now", 0, 1)
	g, err := s.Seal(t.Context(), "later")
	if err != nil || !g.Gated || g.GatedBy != GatedByStart || !g.GatedUntil.Equal(spec.StartAt) || !g.StartAt.Equal(spec.StartAt) || g.Status != Dispatched {
		t.Fatalf("%+v %v", g, err)
	}
	p := pull(t, s, 10)
	if len(p.Jobs) != 1 || p.Jobs[0].Group != "now" || p.Next != time.Hour {
		t.Fatalf("%+v", p)
	}
	clean(t, s)
	// Later, then sooner.
	if _, err := s.Patch(t.Context(), "later", Patch{StartAt: new(after(c.us, 2*time.Hour))}); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Hour)
	if p := pull(t, s, 10); len(p.Jobs) != 0 || p.Next != time.Hour {
		t.Fatalf("%+v", p)
	}
	if _, err := s.Patch(t.Context(), "later", Patch{StartAt: new(after(c.us, time.Minute))}); err != nil {
		t.Fatal(err)
	}
	clean(t, s)
	c.advance(time.Minute)
	if p := pull(t, s, 2); len(p.Jobs) != 2 {
		t.Fatalf("%+v", p)
	}
	// A start that is moved away while jobs run holds the others.
	if g, err := s.Patch(t.Context(), "later", Patch{StartAt: new(after(c.us, time.Minute))}); err != nil || g.GatedBy != GatedByStart {
		t.Fatalf("%+v %v", g, err)
	}
	if p := pull(t, s, 2); len(p.Jobs) != 0 {
		t.Fatalf("%+v", p)
	}
	if g, err := s.Patch(t.Context(), "later", Patch{StartAt: new(time.Time{})}); err != nil || g.Gated || !g.StartAt.IsZero() {
		t.Fatalf("%+v %v", g, err)
	}
	if p := pull(t, s, 2); len(p.Jobs) != 1 {
		t.Fatalf("%+v", p)
	}
	clean(t, s)
}

func TestStartAt_CancelBeforeIt(t *testing.T) {
	s, c := open(t, nil)
	spec := counted("later")
	spec.StartAt = after(c.us, time.Hour)
	create(t, s, spec)
	add(t, s, "later", 0, 700)
	if _, err := s.Seal(t.Context(), "later"); err != nil {
		t.Fatal(err)
	}
	if g, err := s.Cancel(t.Context(), "later"); err != nil || g.Cancelled != 700 {
		t.Fatalf("%+v %v", g, err)
	}
	tendDue(t, s)
	clean(t, s)
	c.advance(2 * time.Hour)
	if p := pull(t, s, 10); len(p.Jobs) != 0 {
		t.Fatalf("%+v", p)
	}
	clean(t, s)
}

// TestExpiresAt_EndsWhatDoesNotRun: jobs in the order, at the front, with a run_at and after a failed try end as dead; a running job finishes;
// the group is sealed and ends.
func TestExpiresAt_EndsWhatDoesNotRun(t *testing.T) {
	for _, gating := range []bool{true, false} {
		t.Run(fmt.Sprint("gating ", gating), func(t *testing.T) {
			s, c := open(t, func(set *Settings) { set.Gating, set.Lease = gating, 10*time.Minute })
			spec := counted("g")
			spec.ExpiresAt, spec.Tolerance, spec.StopAt = after(c.us, time.Minute), Tolerance{Count: 1000}, Tolerance{Count: 2}
			create(t, s, spec)
			add(t, s, "g", 0, 900)
			if _, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "scheduled", Payload: []byte("1"), RunAt: after(c.us, time.Hour)}}); err != nil {
				t.Fatal(err)
			}
			jobs := pull(t, s, 3).Jobs
			ack(t, s, Retry, jobs[0])
			ack(t, s, Returned, jobs[1])
			c.advance(time.Minute)
			if p := pull(t, s, 10); len(p.Jobs) != 0 {
				t.Fatalf("started at its expiry: %+v", p)
			}
			tendDue(t, s)
			clean(t, s)
			g, err := s.Group(t.Context(), "g")
			if err != nil || !g.Sealed || !g.Expired || g.Status != Running || g.Dead != 900 || g.InFlight != 1 || g.Stopped {
				t.Fatalf("%+v %v", g, err)
			}
			_, err = s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "late", Payload: []byte("1")}})
			refused(t, err, CodeSealed)
			_, err = s.Patch(t.Context(), "g", Patch{ExpiresAt: new(time.Time{})})
			refused(t, err, CodeState)
			if j, err := s.Job(t.Context(), "g", "scheduled"); err != nil || j.Status != "dead" || j.Code != "expired" {
				t.Fatalf("%+v %v", j, err)
			}
			if state := ack(t, s, Done, jobs[2]); state[0] != AckDone {
				t.Fatal(state)
			}
			if g, err := s.Group(t.Context(), "g"); err != nil || g.Status != Completed || g.Succeeded != 1 || g.Dead != 900 {
				t.Fatalf("%+v %v", g, err)
			}
			clean(t, s)
			// A redrive is a new attempt: it does not expire.
			as, err := s.RedriveJobs(t.Context(), "g", RedriveOptions{Codes: []string{"expired"}})
			if err != nil || as.Total != 900 || !as.ExpiresAt.IsZero() {
				t.Fatalf("%+v %v", as, err)
			}
			clean(t, s)
		})
	}
}

// TestExpiresAt_RetryAfterIt: a running job that fails after the expiry is not tried again.
func TestExpiresAt_RetryAfterIt(t *testing.T) {
	s, c := open(t, nil)
	spec := counted("g")
	spec.ExpiresAt = after(c.us, time.Minute)
	create(t, s, spec)
	add(t, s, "g", 0, 1)
	job := pull(t, s, 1).Jobs[0]
	c.advance(59 * time.Second)
	if _, err := s.Renew(t.Context(), []Lease{{Key: job.Key, Fence: job.Fence}}); err != nil {
		t.Fatal(err)
	}
	c.advance(2 * time.Second)
	tendDue(t, s)
	ack(t, s, Retry, job)
	c.advance(2 * time.Second)
	tendDue(t, s)
	if g, err := s.Group(t.Context(), "g"); err != nil || g.Status != Failed || g.Dead != 1 {
		t.Fatalf("%+v %v", g, err)
	}
	if j, err := s.Job(t.Context(), "g", "j000000"); err != nil || j.Code != "expired" || j.Attempts != 1 {
		t.Fatalf("%+v %v", j, err)
	}
	clean(t, s)
}

func TestExpiresAt_IsChecked(t *testing.T) {
	s, c := open(t, nil)
	spec := counted("g")
	spec.ExpiresAt = after(c.us, -time.Second)
	_, _, err := s.CreateGroup(t.Context(), spec)
	refused(t, err, CodeInvalid)
	spec.ExpiresAt = time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC) // 0 and less meant never
	_, _, err = s.CreateGroup(t.Context(), spec)
	refused(t, err, CodeInvalid)
	spec.StartAt, spec.ExpiresAt = after(c.us, time.Hour), after(c.us, time.Minute)
	_, _, err = s.CreateGroup(t.Context(), spec)
	refused(t, err, CodeInvalid)
	spec.ExpiresAt = after(c.us, 2*time.Hour)
	create(t, s, spec)
	for _, p := range []Patch{{ExpiresAt: new(after(c.us, -time.Second))}, {ExpiresAt: new(after(c.us, time.Minute))}, {StartAt: new(after(c.us, 3*time.Hour))}} {
		_, err := s.Patch(t.Context(), "g", p)
		refused(t, err, CodeInvalid)
	}
	// The same request again, after the expiry, is the same group.
	c.advance(3 * time.Hour)
	if _, created, err := s.CreateGroup(t.Context(), spec); err != nil || created {
		t.Fatal(created, err)
	}
	clean(t, s)
}

// TestJob_Expires: a job with a time of its own ends as dead at its turn, whether it waits in the order or for its run_at; a running one finishes.
func TestJob_Expires(t *testing.T) {
	for _, gating := range []bool{true, false} {
		t.Run(fmt.Sprint("gating ", gating), func(t *testing.T) {
			s, c := open(t, func(set *Settings) { set.Gating, set.Lease = gating, time.Hour })
			create(t, s, counted("g"))
			soon := after(c.us, time.Minute)
			if _, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{
				{ID: "runs", Payload: []byte("1"), ExpiresAt: soon},
				{ID: "order", Payload: []byte("1"), ExpiresAt: soon},
				{ID: "scheduled", Payload: []byte("1"), RunAt: after(c.us, 50*time.Second), ExpiresAt: soon},
				{ID: "stays", Payload: []byte("1"), ExpiresAt: after(c.us, time.Hour)},
			}); err != nil {
				t.Fatal(err)
			}
			_, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "never", Payload: []byte("1"), RunAt: soon, ExpiresAt: soon}})
			refused(t, err, CodeInvalid)
			if _, err := s.Seal(t.Context(), "g"); err != nil {
				t.Fatal(err)
			}
			running := pull(t, s, 1).Jobs
			c.advance(time.Minute)
			for _, id := range []string{"order", "scheduled"} {
				if j, err := s.Job(t.Context(), "g", id); err != nil || j.Status != "dead" || j.Code != "expired" {
					t.Fatalf("%+v %v", j, err)
				}
			}
			if j, err := s.Job(t.Context(), "g", "stays"); err != nil || j.Status != "pending" || j.ExpiresAt.IsZero() {
				t.Fatalf("%+v %v", j, err)
			}
			p := pull(t, s, 5)
			for range 2 { // due, then its turn, then ended
				dispatch(t, s)
				more := pull(t, s, 5)
				p.Jobs = append(p.Jobs, more.Jobs...)
			}
			dispatch(t, s)
			if len(p.Jobs) != 1 || p.Jobs[0].ID != "stays" {
				t.Fatalf("%+v", p)
			}
			clean(t, s)
			ack(t, s, Done, append(running, p.Jobs...)...)
			if g, err := s.Group(t.Context(), "g"); err != nil || g.Status != Failed || g.Dead != 2 || g.Succeeded != 2 {
				t.Fatalf("%+v %v", g, err)
			}
			clean(t, s)
		})
	}
}

package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// places counts the jobs that have a lease of their own, and the shared leases.
func places(t *testing.T, s *Store) string {
	t.Helper()
	own, err := s.o.Client.ZCard(t.Context(), s.keys[keyLeases]).Result()
	if err != nil {
		t.Fatal(err)
	}
	shared, err := s.o.Client.ZCard(t.Context(), s.keys[keyBatches]).Result()
	if err != nil {
		t.Fatal(err)
	}
	fields, err := s.o.Client.HKeys(t.Context(), s.keys[keyRuns]).Result()
	if err != nil {
		t.Fatal(err)
	}
	records := 0
	for _, f := range fields {
		if strings.Contains(f, "/") {
			records++
		}
	}
	if int64(len(fields)-records) != 2*shared {
		t.Errorf("%d shared leases, the records are %q", shared, fields)
	}
	return fmt.Sprintf("%d own, %d shared, %d records", own, shared, records)
}

func is(t *testing.T, have, want string) {
	t.Helper()
	if have != want {
		t.Errorf("have %s, want %s", have, want)
	}
}

func renew(t *testing.T, s *Store, jobs ...Leased) []LeaseState {
	t.Helper()
	leases := make([]Lease, len(jobs))
	for i, j := range jobs {
		leases[i] = Lease{Key: j.Key, Fence: j.Fence}
	}
	states, err := s.Renew(t.Context(), leases)
	if err != nil {
		t.Fatal(err)
	}
	return states
}

// TestSharedLease_IsRenewedForNamedJobsOnly: a renewal of all running jobs of a pull renews their lease. One of some of them gives these
// leases of their own, with the same fences, and the lease of the others ends.
func TestSharedLease_IsRenewedForNamedJobsOnly(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 6)
	jobs := pull(t, s, 6).Jobs
	is(t, places(t, s), "0 own, 1 shared, 0 records")
	ack(t, s, Done, jobs[0])
	rounds(t, s, c, 20*time.Second)
	is(t, fmt.Sprint(renew(t, s, jobs...)), "[0 1 1 1 1 1]")
	is(t, places(t, s), "0 own, 1 shared, 0 records")
	clean(t, s)
	rounds(t, s, c, 20*time.Second)
	is(t, fmt.Sprint(renew(t, s, jobs[2], jobs[1], jobs[2])), "[1 1 1]")
	is(t, places(t, s), "2 own, 1 shared, 2 records")
	clean(t, s)
	if d := rounds(t, s, c, 12*time.Second); d.Recovered != 3 {
		t.Errorf("%d jobs recovered, want the 3 that were not renewed", d.Recovered)
	}
	is(t, places(t, s), "2 own, 0 shared, 5 records")
	is(t, fmt.Sprint(renew(t, s, jobs...)), "[0 1 1 0 0 0]")
	is(t, fmt.Sprint(ack(t, s, Done, jobs[1:]...)), "[done done stale stale stale]")
	is(t, fmt.Sprint(ack(t, s, Done, jobs[1:3]...)), "[stale stale]")
	again := pull(t, s, 6).Jobs
	if len(again) != 3 {
		t.Fatalf("%d jobs run again, want 3", len(again))
	}
	for _, j := range again {
		if j.Attempt != 1 || j.Crashes != 1 || j.Fence <= jobs[5].Fence {
			t.Errorf("%+v", j)
		}
	}
	is(t, places(t, s), "3 own, 0 shared, 3 records")
	ack(t, s, Done, again...)
	is(t, places(t, s), "0 own, 0 shared, 0 records")
	clean(t, s)
}

// TestSharedLease_IsRecoveredInSteps: a step of the dispatcher recovers as many jobs of a lease as it may, and the others keep their places.
func TestSharedLease_IsRecoveredInSteps(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.DispatchBatch = 4 })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	create(t, s, GroupSpec{ID: "h", Tenant: "beta"})
	add(t, s, "g", 0, 6)
	add(t, s, "h", 0, 5)
	jobs := pull(t, s, 11).Jobs
	ack(t, s, Done, jobs[1])
	if _, err := s.Cancel(t.Context(), "h"); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		dispatch(t, s)
		c.advance(990 * time.Millisecond)
	}
	dispatch(t, s) // 29.7 s after the pull
	is(t, places(t, s), "0 own, 1 shared, 0 records")
	c.advance(time.Second)
	for _, want := range []int64{4, 4, 2} {
		d := dispatch(t, s)
		if d.Recovered != want || d.More != (want == 4) {
			t.Errorf("%+v, want %d", d, want)
		}
		clean(t, s)
	}
	is(t, places(t, s), "0 own, 0 shared, 5 records")
	is(t, fmt.Sprint(ack(t, s, Done, jobs...)), fmt.Sprint(slices.Repeat([]AckState{AckStale}, 11)))
	clean(t, s)
}

// TestSharedLease_ShowsItsJobs: each job of a shared lease can be read, listed and cancelled by itself, and each outcome but a success leaves
// it as it leaves a lease of its own.
func TestSharedLease_ShowsItsJobs(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "mail"})
	if _, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "a"}, {ID: "b", Type: "fax", Cost: 7}, {ID: "c"}, {ID: "d"}, {ID: "e"}}); err != nil {
		t.Fatal(err)
	}
	add(t, s, "g", 0, 1)
	jobs := pull(t, s, 6).Jobs
	is(t, places(t, s), "0 own, 1 shared, 0 records")
	running, n, err := s.Running(t.Context())
	if err != nil || n != 6 || len(running) != 6 {
		t.Fatal(running, n, err)
	}
	for i, r := range running {
		is(t, fmt.Sprintf("%s %s %s %s %s %d", r.Group, r.Tenant, r.ID, r.Type, r.Process, r.Attempts), fmt.Sprintf("g acme %s %s %s 1", jobs[i].ID, jobs[i].Type, s.o.Process))
	}
	j, err := s.Job(t.Context(), "g", "b")
	if err != nil || j.Status != "running" || j.Process != s.o.Process || j.Attempts != 1 || j.Type != "fax" || j.StartedAt.UnixMicro() != jobs[1].Fence {
		t.Errorf("%+v, %v", j, err)
	}
	if running, err := s.CancelJob(t.Context(), "g", "c"); err != nil || !running {
		t.Errorf("running: %t, %v", running, err)
	}
	is(t, fmt.Sprint(renew(t, s, jobs...)), "[1 1 2 1 1 1]")
	if _, err := s.RetryJob(t.Context(), "g", "d", 0); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Errorf("retry of a running job: %v", err)
	}
	// A key with another job's fence is refused.
	is(t, fmt.Sprint(ack(t, s, Done, Leased{Key: jobs[0].Key, Fence: jobs[1].Fence})), "[stale]")
	is(t, fmt.Sprint(renew(t, s, Leased{Key: jobs[0].Key, Fence: jobs[1].Fence}, Leased{Key: jobs[5].Key, Fence: jobs[5].Fence + 1})), "[0 0]")
	clean(t, s)
	is(t, fmt.Sprint(ack(t, s, Returned, jobs[2], jobs[3]), ack(t, s, Retry, jobs[1]), ack(t, s, Throttled, jobs[4]), ack(t, s, Rejected, jobs[5])),
		"[cancelled returned] [retry] [throttled] [failed]")
	is(t, places(t, s), "0 own, 1 shared, 2 records")
	clean(t, s)
	first := pull(t, s, 1).Jobs[0]
	if first.ID != "d" || first.Attempt != 1 {
		t.Errorf("%+v", first)
	}
	is(t, places(t, s), "1 own, 1 shared, 3 records")
	ack(t, s, Done, first, jobs[0])
	is(t, places(t, s), "0 own, 0 shared, 2 records")
	rounds(t, s, c, time.Minute)
	again := pull(t, s, 6).Jobs
	is(t, fmt.Sprint(len(again), again[0].Cost, again[0].Attempt+again[1].Attempt), "2 7 3")
	ack(t, s, Done, again...)
	clean(t, s)
}

// TestSharedLease_CostsNoCommandsForAJob: a pull and an ack of 200 jobs need few commands more than those of two.
func TestSharedLease_CostsNoCommandsForAJob(t *testing.T) {
	server := redistest.Server(t)
	s, _ := openOn(t, server.Client(), func(set *Settings) { set.Global = 1e6 })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 700)
	calls := func(n int) map[string]int64 {
		return commandsOf(t, s, func() {
			jobs := pull(t, s, n).Jobs
			if len(jobs) != n {
				t.Fatalf("%d of %d jobs", len(jobs), n)
			}
			ack(t, s, Done, jobs...)
		})
	}
	calls(2)
	few, many := calls(2), calls(200)
	extra := int64(0)
	for name, n := range many {
		extra += n - few[name]
	}
	if extra > 24 { // three turns, for each of which a page of 100 jobs is read, and pages of outcomes
		t.Errorf("200 jobs need %d commands more than 2: %v, %v", extra, slices.Sorted(maps.Keys(many)), many)
	}
}

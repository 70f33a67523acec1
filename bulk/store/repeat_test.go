package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// dying returns an ended group whose n jobs are all dead.
func dying(t *testing.T, s *Store, c *clock, id string, n int, payload []byte) {
	t.Helper()
	create(t, s, GroupSpec{ID: id, Tenant: "acme", Tolerance: Tolerance{Percent: 100, Share: true}})
	for i := 0; i < n; i += 100 {
		jobs := make([]Job, min(100, n-i))
		for k := range jobs {
			jobs[k] = Job{ID: fmt.Sprintf("j%04d", i+k), Payload: payload}
		}
		if _, err := s.AddJobs(t.Context(), id, Chunk{}, jobs); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Seal(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for left := n; left > 0; c.advance(time.Second) {
		jobs := pull(t, s, 200).Jobs
		left -= len(jobs)
		if len(jobs) > 0 {
			ack(t, s, Buried, jobs...)
		}
	}
	reduce(t, s, id)
}

// TestRedrive_IntoCancelledGroup: an interrupted redrive that was cancelled took dead letters when it was called again. They were swept,
// or stayed in it for ever.
func TestRedrive_IntoCancelledGroup(t *testing.T) {
	s, c := open(t, nil)
	dying(t, s, c, "g", 1200, []byte("1"))
	half(t, s, "g")
	if _, err := s.Cancel(t.Context(), "g-r1"); err != nil {
		t.Fatal(err)
	}
	tendAll(t, s, "g-r1")
	g, err := s.Redrive(t.Context(), "g", 0)
	if err != nil || g.ID != "g-r2" || g.Total != 700 || !g.Sealed {
		t.Fatalf("%+v, %v", g, err)
	}
	if g, _ := s.Group(t.Context(), "g-r1"); g.Total != 500 || g.Cancelled != 500 {
		t.Fatalf("%+v", g)
	}
	clean(t, s)
}

// tendAll does what housekeeping there is at once.
func tendAll(t *testing.T, s *Store, groups ...string) {
	t.Helper()
	for _, id := range groups {
		for again := true; again; {
			tend, err := s.Tend(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			again = tend.Again
		}
	}
}

// half does one step of a redrive, as one that broke off.
func half(t *testing.T, s *Store, group string) {
	t.Helper()
	found, err := s.read(t.Context(), "id", group)
	if err != nil {
		t.Fatal(err)
	}
	spec := found[0].GroupSpec
	spec.ID, spec.RedriveOf = group+"-r1", group
	args, err := createArgs(&spec, s.today())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.redriveStep(t.Context(), &spec, "", args...); err != nil {
		t.Fatal(err)
	}
}

// TestRedrive_KeepsBrokenRedrive: a redrive that no caller continued was removed like a silent submission, together with its dead
// letters.
func TestRedrive_KeepsBrokenRedrive(t *testing.T) {
	s, c := open(t, nil)
	dying(t, s, c, "g", 1200, []byte("1"))
	half(t, s, "g")
	c.advance(25 * time.Hour)
	tendAll(t, s, "g", "g-r1")
	if g, err := s.Group(t.Context(), "g-r1"); err != nil || g.Status != Dispatched || g.Total != 500 {
		t.Fatalf("%+v, %v", g, err)
	}
	clean(t, s)
	if g, err := s.Redrive(t.Context(), "g", 7); err != nil || g.ID != "g-r2" || g.Total != 700 || g.Rate != 7 {
		t.Fatalf("%+v, %v", g, err)
	}
	clean(t, s)
}

// TestRedrive_LastStepSeals: a redrive that broke off between its last dead letter and its seal could not be continued.
func TestRedrive_LastStepSeals(t *testing.T) {
	s, c := open(t, nil)
	dying(t, s, c, "g", 3, []byte("1"))
	half(t, s, "g")
	if g, err := s.Group(t.Context(), "g-r1"); err != nil || g.Status != Dispatched || g.Total != 3 {
		t.Fatalf("%+v, %v", g, err)
	}
	clean(t, s)
}

// TestRedrive_TakesSmallSteps: a step with 500 large payloads blocked Redis.
func TestRedrive_TakesSmallSteps(t *testing.T) {
	s, c := open(t, nil)
	dying(t, s, c, "g", 300, make([]byte, 10_000))
	half(t, s, "g")
	if g, err := s.Group(t.Context(), "g-r1"); err != nil || g.Total == 0 || g.Total > 110 {
		t.Fatalf("%d jobs in one step, %v", g.Total, err)
	}
	if g, err := s.Redrive(t.Context(), "g", 0); err != nil || g.ID != "g-r1" || g.Total != 300 {
		t.Fatalf("%+v, %v", g, err)
	}
	clean(t, s)
}

// TestRedrive_SkipsTakenName: a group of another tenant with the id g-r1 blocked every redrive of g.
func TestRedrive_SkipsTakenName(t *testing.T) {
	s, c := open(t, nil)
	dying(t, s, c, "g", 3, []byte("1"))
	create(t, s, GroupSpec{ID: "g-r1", Tenant: "beta"})
	if g, err := s.Redrive(t.Context(), "g", 0); err != nil || g.ID != "g-r2" || g.Total != 3 {
		t.Fatalf("%+v, %v", g, err)
	}
	clean(t, s)
}

// TestCommitReduce_CountsOnce: a commit whose reply was lost counted its outcomes again, and the group never ended.
func TestCommitReduce_CountsOnce(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 3)
	if _, err := s.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	ack(t, s, Done, pull(t, s, 3).Jobs...)
	r, err := s.BeginReduce(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if ok, err := s.CommitReduce(t.Context(), "g", r.Fence, "0:3", 3, []byte("state")); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if g, ok, err := s.Finish(t.Context(), "g", r.Fence, []byte("{}")); !ok || err != nil || g.Status != Completed {
		t.Fatalf("%+v, %t, %v", g, ok, err)
	}
	clean(t, s)
}

// TestLease_OutlastsHaltedServer: a round that was sent before the server was halted ran when the server continued. It recovered every
// job whose lease had ended meanwhile, although the workers were alive.
func TestLease_OutlastsHaltedServer(t *testing.T) {
	server := redistest.Server(t)
	set := Defaults()
	set.Lease = 900 * time.Millisecond
	s, err := New(Options{Client: server.Client(), Prefix: "wr", Timeout: 10 * time.Second, Settings: set})
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 1)
	id, err := s.runID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dispatch(t, s)
	job := pull(t, s, 1).Jobs[0]
	over := time.NewTimer(time.Second)
	server.Stop()
	s.o.Timeout = 200 * time.Millisecond
	if _, err := s.run(t.Context(), "queue_dispatch", id, Defaults().DispatchBatch); err == nil {
		t.Fatal("a halted server answers")
	}
	<-over.C
	server.Cont()
	s.o.Timeout = 10 * time.Second
	if d := dispatch(t, s); d.Recovered != 0 {
		t.Fatalf("%+v", d)
	}
	if held, err := s.Renew(t.Context(), []Lease{{job.Key, job.Fence}}); err != nil || held[0] != LeaseHeld {
		t.Fatal("its lease is lost", err)
	}
}

// TestKeep_IgnoresProcessThatRestarts: each time one process lost its connection to the store, the orphans of all processes waited
// for another lease.
func TestKeep_IgnoresProcessThatRestarts(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 1)
	dispatch(t, s)
	pull(t, s, 1)
	if d := rounds(t, s, c, 30*time.Second); d.Recovered != 1 {
		t.Fatalf("%+v", d)
	}
	clean(t, s)
}

// After an outage longer than a lease, the first round comes from a process that has just started. It takes no job from a living worker,
// which renews its leases now. So a job of a dead worker is recovered a third of a lease later.
func TestDispatch_ByANewProcessAfterAnOutageEndsNoLease(t *testing.T) {
	client := redistest.Client(t)
	old, c := openOn(t, client, nil)
	lease := Defaults().Lease
	create(t, old, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, old, "g", 0, 2)
	dispatch(t, old)
	jobs := pull(t, old, 2).Jobs
	c.us += (lease + lease/2).Microseconds()
	fresh, err := New(Options{Client: client, Prefix: old.o.Prefix, Timeout: 10 * time.Second, Settings: Defaults(), Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	if d := dispatch(t, fresh); d.Recovered != 0 {
		t.Fatalf("%+v", d)
	}
	c.us += (lease / 12).Microseconds()
	if held, err := old.Renew(t.Context(), []Lease{{jobs[0].Key, jobs[0].Fence}}); err != nil || held[0] != LeaseHeld {
		t.Fatal("its lease is lost", err)
	}
	if d := rounds(t, fresh, c, lease/3); d.Recovered != 1 {
		t.Errorf("recovered %d of one job whose worker is dead", d.Recovered)
	}
	clean(t, fresh)
}

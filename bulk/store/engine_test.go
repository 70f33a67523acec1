package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRetry_ThenDeadThenRedriven(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		s, c := openOn(t, client, nil)
		create(t, s, GroupSpec{ID: "g", Tenant: "acme", Tolerance: Tolerance{Count: 5}})
		add(t, s, "g", 0, 3)
		if _, err := s.Seal(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
		for try := int64(1); try <= 3; try++ {
			jobs := pull(t, s, 10).Jobs
			if len(jobs) != 3 || jobs[0].Attempt != try {
				t.Fatalf("try %d: %+v", try, jobs)
			}
			want := AckRetry
			if try == 3 {
				want = AckDead
			}
			for _, state := range ack(t, s, Retry, jobs...) {
				if state != want {
					t.Fatalf("try %d: %s", try, state)
				}
			}
			clean(t, s)
			if p := pull(t, s, 10); len(p.Jobs) != 0 {
				t.Fatalf("a retried job starts before its backoff: %v", ids(p.Jobs))
			}
			c.advance(time.Second)
			if d := dispatch(t, s); try < 3 && d.Moved != 3 {
				t.Fatalf("%+v", d)
			}
			clean(t, s)
		}
		if g := reduce(t, s, "g"); g.Status != Completed || g.Dead != 3 {
			t.Fatalf("%+v", g)
		}
		dead, err := s.Dead(t.Context(), "g", "", 2)
		if err != nil || len(dead.Outcomes) != 2 || dead.Next == "" {
			t.Fatalf("%+v, %v", dead, err)
		}
		if o := dead.Outcomes[0]; o.ID != "j000000" || string(o.Payload) != "{}" || o.Error != "it went wrong" || o.Code != "boom" || o.Attempts != 3 || o.Status != "dead" {
			t.Fatalf("%+v", o)
		}
		if rest, err := s.Dead(t.Context(), "g", dead.Next, 2); err != nil || len(rest.Outcomes) != 1 || rest.Next != "" {
			t.Fatalf("%+v, %v", rest, err)
		}
		r, err := s.Redrive(t.Context(), "g", 5)
		if err != nil || r.ID != "g-r1" || r.RedriveOf != "g" || r.Total != 3 || r.Rate != 5 || r.Status != Dispatched {
			t.Fatalf("%+v, %v", r, err)
		}
		clean(t, s)
		_, err = s.Redrive(t.Context(), "g", 0)
		refused(t, err, CodeState)
		c.advance(time.Second)
		for range 3 {
			ack(t, s, Done, pull(t, s, 10).Jobs...)
			c.advance(time.Second)
		}
		if r = reduce(t, s, "g-r1"); r.Status != Completed || r.Succeeded != 3 {
			t.Fatalf("%+v", r)
		}
		clean(t, s)
	})
}

// The refusal of one job does not delay other jobs.
func TestRefusal_DelaysItsOwnJob(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	add(t, s, "g", 0, 3)
	jobs := pull(t, s, 1).Jobs
	states, err := s.Ack(t.Context(), []Ack{{Key: jobs[0].Key, Fence: jobs[0].Fence, Verdict: Throttled, After: time.Hour}})
	if err != nil || states[0] != AckThrottled {
		t.Fatal(states, err)
	}
	if p := pull(t, s, 10); len(p.Jobs) != 2 {
		t.Fatalf("%d jobs start beside the one that was refused, want 2", len(p.Jobs))
	}
	c.advance(time.Hour)
	if d := dispatch(t, s); d.Moved == 0 {
		t.Fatalf("%+v: the refused job waits for longer than its Retry-After", d)
	}
	clean(t, s)
}

// A refused job waits for its whole Retry-After, its group for at most a minute.
func TestHeldGroup_GoesOnAfterAMinute(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	add(t, s, "g", 0, 3)
	j := pull(t, s, 1).Jobs[0]
	if _, err := s.Ack(t.Context(), []Ack{{Key: j.Key, Fence: j.Fence, Verdict: Held, After: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	c.advance(59 * time.Second)
	if p := pull(t, s, 10); len(p.Jobs) != 0 {
		t.Fatalf("%v start within the minute", ids(p.Jobs))
	}
	c.advance(time.Second)
	if p := pull(t, s, 10); fmt.Sprint(ids(p.Jobs)) != "[j000001 j000002]" {
		t.Fatalf("%v start after the minute, want the two that were not refused", ids(p.Jobs))
	}
	clean(t, s)
}

func TestHeld_GatesGroup(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "busy", Tenant: "a"})
	create(t, s, GroupSpec{ID: "other", Tenant: "a"})
	add(t, s, "busy", 0, 10)
	p := pull(t, s, 2)
	if len(p.Jobs) != 2 || p.Jobs[0].Group != "busy" {
		t.Fatalf("%+v", p)
	}
	states, err := s.Ack(t.Context(), []Ack{{Key: p.Jobs[0].Key, Fence: p.Jobs[0].Fence, Verdict: Held, After: 7 * time.Second}})
	if err != nil || states[0] != AckThrottled {
		t.Fatal(states, err)
	}
	add(t, s, "other", 0, 1)
	if p := pull(t, s, 10); len(p.Jobs) != 1 || p.Jobs[0].Group != "other" || p.Next != 7*time.Second {
		t.Fatalf("while gated: %+v", p)
	}
	clean(t, s)
	c.advance(7 * time.Second)
	dispatch(t, s)
	jobs := pull(t, s, 10).Jobs
	if len(jobs) != 9 || jobs[0].ID != "j000000" || jobs[0].Attempt != 1 {
		t.Fatalf("%v", ids(jobs))
	}
	if g, _ := s.Group(t.Context(), "busy"); g.Throttles != 1 {
		t.Fatalf("%+v", g)
	}
	clean(t, s)
}

func TestThrottled_DiesAfterMaxAge(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.MaxAge = time.Hour })
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	add(t, s, "g", 0, 1)
	for range 40 {
		ack(t, s, Throttled, pull(t, s, 1).Jobs...)
		c.advance(2 * time.Minute)
		dispatch(t, s)
	}
	if g, _ := s.Group(t.Context(), "g"); g.Dead != 1 {
		t.Fatalf("%+v", g)
	}
	if p, err := s.Dead(t.Context(), "g", "", 1); err != nil || p.Outcomes[0].Code != "refused_too_long" {
		t.Fatalf("%+v %v", p, err)
	}
	clean(t, s)
}

func TestLease_OrphansRunAgain(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		s, c := openOn(t, client, func(set *Settings) { set.MaxCrashes = 2 })
		create(t, s, GroupSpec{ID: "g", Tenant: "a"})
		add(t, s, "g", 0, 2)
		jobs := pull(t, s, 2).Jobs
		c.advance(29 * time.Second)
		if held, err := s.Renew(t.Context(), []Lease{{jobs[1].Key, jobs[1].Fence}, {jobs[1].Key, 99}, {"1/none", 1}}); err != nil || !slices.Equal(held, []LeaseState{LeaseHeld, LeaseLost, LeaseLost}) {
			t.Fatal(held, err)
		}
		c.advance(time.Second)
		if d := dispatch(t, s); d.Recovered != 1 {
			t.Fatalf("%+v", d)
		}
		clean(t, s)
		if state := ack(t, s, Done, jobs[0]); state[0] != AckStale {
			t.Fatalf("an old fence is %s", state)
		}
		c.advance(500 * time.Millisecond)
		if d := dispatch(t, s); d.Moved != 1 {
			t.Fatalf("the first repeat waits longer than half a second: %+v", d)
		}
		again := pull(t, s, 2).Jobs
		if len(again) != 1 || again[0].ID != jobs[0].ID || again[0].Attempt != 1 || again[0].Crashes != 1 || again[0].Fence <= jobs[1].Fence {
			t.Fatalf("%+v", again)
		}
		for range 2 { // two more crashes are one too many
			rounds(t, s, c, 41*time.Second)
			pull(t, s, 2)
		}
		clean(t, s)
		if g, _ := s.Group(t.Context(), "g"); g.Dead == 0 {
			t.Fatalf("%+v", g)
		}
	})
}

func TestLease_OutlastsGap(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	add(t, s, "g", 0, 1)
	dispatch(t, s)
	job := pull(t, s, 1).Jobs[0]
	c.advance(40 * time.Second)
	if d := dispatch(t, s); d.Recovered != 0 {
		t.Fatalf("%+v", d)
	}
	if d := rounds(t, s, c, 29*time.Second); d.Recovered != 0 {
		t.Fatalf("%+v", d)
	}
	if held, _ := s.Renew(t.Context(), []Lease{{job.Key, job.Fence}}); held[0] != LeaseHeld {
		t.Fatal("its worker could not renew it")
	}
	if d := rounds(t, s, c, 31*time.Second); d.Recovered != 1 {
		t.Fatalf("%+v", d)
	}
	clean(t, s)
}

func TestCancel_IsOneStep(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		s, c := openOn(t, client, nil)
		create(t, s, GroupSpec{ID: "g", Tenant: "a"})
		add(t, s, "g", 0, 1300)
		jobs := pull(t, s, 30).Jobs
		ack(t, s, Retry, jobs[:10]...)
		ack(t, s, Returned, jobs[10:20]...)
		g, err := s.Cancel(t.Context(), "g")
		if err != nil || g.Status != Cancelled || g.Cancelled != 1290 || g.InFlight != 10 || g.Pending+g.NonReady+g.Ready != 0 {
			t.Fatalf("%+v, %v", g, err)
		}
		clean(t, s)
		if p := pull(t, s, 10); len(p.Jobs) != 0 {
			t.Fatalf("a cancelled job starts: %v", ids(p.Jobs))
		}
		if _, err := s.Cancel(t.Context(), "g"); err != nil {
			t.Fatal("cancelling again:", err)
		}
		_, err = s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "late", Payload: []byte("1")}})
		refused(t, err, CodeSealed)
		ack(t, s, Done, jobs[20:25]...)
		ack(t, s, Retry, jobs[25:]...)
		for again := true; again; {
			tend, err := s.Tend(t.Context(), "g")
			if err != nil {
				t.Fatal(err)
			}
			again = tend.Again
			clean(t, s)
		}
		c.advance(2 * time.Second)
		if tend, err := s.Tend(t.Context(), "g"); err != nil || !tend.Reduce {
			t.Fatalf("%+v %v", tend, err)
		}
		if g = reduce(t, s, "g"); g.Status != Cancelled || g.Succeeded != 5 || g.Cancelled != 1295 {
			t.Fatalf("%+v", g)
		}
		clean(t, s)
		p, err := s.Results(t.Context(), "g", "", 5000)
		if err != nil || len(p.Outcomes) != 1300 {
			t.Fatalf("%d outcomes, %v", len(p.Outcomes), err)
		}
	})
}

func TestPatch_PausesAndResumes(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	add(t, s, "g", 0, 100)
	yes, no := true, false
	if g, err := s.Patch(t.Context(), "g", Patch{Paused: &yes}); err != nil || !g.Paused {
		t.Fatalf("%+v %v", g, err)
	}
	if p := pull(t, s, 10); len(p.Jobs) != 0 {
		t.Fatal("a paused job starts")
	}
	clean(t, s)
	if _, err := s.Patch(t.Context(), "g", Patch{Paused: &no}); err != nil {
		t.Fatal(err)
	}
	if p := pull(t, s, 10); len(p.Jobs) != 10 {
		t.Fatal("a resumed job does not start")
	}
	clean(t, s)
}

func TestTend_DropsDataPastRetention(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		s, c := openOn(t, client, nil)
		create(t, s, GroupSpec{ID: "g", Tenant: "a", Tolerance: Tolerance{Percent: 100, Share: true}})
		add(t, s, "g", 0, 700)
		create(t, s, GroupSpec{ID: "never", Tenant: "b"})
		add(t, s, "never", 0, 20)
		if _, err := s.Seal(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
		for i := 0; ; i++ {
			jobs := pull(t, s, 400).Jobs
			if len(jobs) == 0 {
				break
			}
			for _, j := range jobs {
				verdict := Done
				if j.ID == "j000007" {
					verdict = Buried
				}
				if j.Group == "g" {
					ack(t, s, verdict, j)
				} else {
					ack(t, s, Returned, j)
				}
			}
			if g, _ := s.Group(t.Context(), "g"); g.Pending == 0 {
				break
			}
			c.advance(time.Second)
		}
		reduce(t, s, "g")
		tendAll := func() {
			t.Helper()
			for again := true; again; {
				again = false
				for _, id := range dispatch(t, s).Tend {
					tend, err := s.Tend(t.Context(), id)
					if err != nil {
						t.Fatal(err)
					}
					if tend.Reduce {
						reduce(t, s, id)
					}
					again = true
				}
			}
			clean(t, s)
		}
		tendAll()
		c.advance(25 * time.Hour)
		tendAll()
		if g, err := s.Group(t.Context(), "never"); err != nil || !g.Sealed || g.Pending != 20 {
			t.Errorf("an unsealed group after a day of silence: %+v, %v", g, err)
		}
		if _, err := s.Cancel(t.Context(), "never"); err != nil {
			t.Fatal(err)
		}
		tendAll()
		if p, err := s.Results(t.Context(), "g", "", 1000); err != nil || len(p.Outcomes) != 0 {
			t.Errorf("%d outcomes after their retention, %v", len(p.Outcomes), err)
		}
		if p, err := s.Dead(t.Context(), "g", "", 10); err != nil || len(p.Outcomes) != 1 {
			t.Errorf("dead letters go before their retention: %+v, %v", p, err)
		}
		c.advance(8 * 24 * time.Hour)
		tendAll()
		if _, err := s.Group(t.Context(), "g"); err != nil {
			t.Errorf("a group with dead letters is kept: %v", err)
		}
		c.advance(30 * 24 * time.Hour)
		tendAll()
		_, err := s.Group(t.Context(), "g")
		refused(t, err, CodeNotFound)
		for i, key := range s.keys {
			if i == keyState || i == keyBell {
				continue
			}
			if n, err := client.Exists(t.Context(), key).Result(); err != nil || n != 0 {
				t.Errorf("%s is left over", key)
			}
		}
	})
}

func TestReclaim_ReturnsLostPull(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		s, _ := openOn(t, client, nil)
		create(t, s, GroupSpec{ID: "g", Tenant: "a"})
		add(t, s, "g", 0, 10)
		known := pull(t, s, 3).Jobs
		pull(t, s, 4) // its answer never came
		other, err := New(Options{Client: client, Prefix: s.o.Prefix, Timeout: s.o.Timeout, Settings: s.Settings(), Now: s.o.Now})
		if err != nil {
			t.Fatal(err)
		}
		theirs := pull(t, other, 1).Jobs
		fences := []int64{known[0].Fence, known[1].Fence, known[2].Fence}
		if n, err := s.Reclaim(t.Context(), fences); n != 4 || err != nil {
			t.Fatalf("%d given back, %v; want the 4 of the lost answer", n, err)
		}
		clean(t, s)
		if n, err := s.Reclaim(t.Context(), fences); n != 0 || err != nil {
			t.Fatalf("%d given back again, %v", n, err)
		}
		again := pull(t, s, 10).Jobs
		if len(again) != 6 || again[0].ID != "j000003" || again[0].Attempt != 1 || again[0].Crashes != 0 {
			t.Fatalf("%+v", again)
		}
		for _, state := range append(ack(t, s, Done, known...), ack(t, other, Done, theirs...)...) {
			if state != AckDone {
				t.Errorf("what was known is %s", state)
			}
		}
		clean(t, s)
	})
}

// TestReclaim_EndsLeasesOfDeadProcess: while no process runs, there are no rounds of Dispatch, and this gap is no outage of the store.
// The jobs of dead processes are recovered a third of a lease after a new process started, not a full lease: after an outage, living
// processes would have renewed their leases by then.
func TestReclaim_EndsLeasesOfDeadProcess(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	add(t, s, "g", 0, 1)
	dispatch(t, s)
	pull(t, s, 1) // and dies
	c.advance(31 * time.Second)
	fresh, err := New(Options{Client: s.o.Client, Prefix: s.o.Prefix, Timeout: s.o.Timeout, Settings: s.Settings(), Now: s.o.Now})
	if err != nil {
		t.Fatal(err)
	}
	dispatch(t, fresh)
	if d := rounds(t, fresh, c, 10*time.Second); d.Recovered != 1 {
		t.Fatalf("%+v", d)
	}
	clean(t, s)
}

// TestAck_RefusesOldFence: a worker that lost its lease ends its run while the job runs again elsewhere. Only the ack of the new run
// counts, and the old worker cannot renew the new lease.
func TestAck_RefusesOldFence(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	add(t, s, "g", 0, 1)
	old := pull(t, s, 1).Jobs[0]
	c.advance(31 * time.Second)
	dispatch(t, s)
	c.advance(time.Second)
	dispatch(t, s)
	now := pull(t, s, 1).Jobs[0]
	for _, verdict := range []Verdict{Done, Rejected, Retry, Throttled, Held, Returned, Buried} {
		if state := ack(t, s, verdict, old); state[0] != AckStale {
			t.Fatalf("%s with the old fence is %s", verdict, state[0])
		}
	}
	if held, err := s.Renew(t.Context(), []Lease{{old.Key, old.Fence}}); err != nil || held[0] != LeaseLost {
		t.Fatalf("the old fence renews the new lease: %v, %v", held, err)
	}
	if g, _ := s.Group(t.Context(), "g"); g.InFlight != 1 || g.Succeeded+g.Failed+g.Dead != 0 {
		t.Fatalf("%+v", g)
	}
	if state := ack(t, s, Done, now); state[0] != AckDone {
		t.Fatalf("the new run's ack is %s", state[0])
	}
	clean(t, s)
}

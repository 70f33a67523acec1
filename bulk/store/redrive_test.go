package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// failing makes a sealed group whose jobs have ended: a0 and a1 failed with http_422, b0 with http_409, d0 and d1 died with http_500.
func failing(t *testing.T, s *Store, id string) {
	t.Helper()
	create(t, s, GroupSpec{ID: id, Tenant: "acme", Tolerance: Tolerance{Count: 9}, CallbackURL: "https://team.example/done"})
	var list []Job
	for _, name := range []string{"a0", "a1", "b0", "d0", "d1"} {
		list = append(list, Job{ID: name, Payload: []byte(`"` + name + `"`), Cost: 2, Type: "mail"})
	}
	if _, err := s.AddJobs(t.Context(), id, Chunk{}, list); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, j := range pull(t, s, 5).Jobs {
		a := map[byte]Ack{'a': {Verdict: Rejected, Code: "http_422"}, 'b': {Verdict: Rejected, Code: "http_409"}, 'd': {Verdict: Buried, Code: "http_500"}}[j.ID[0]]
		a.Key, a.Fence, a.Error = j.Key, j.Fence, "it\nfailed"
		if _, err := s.Ack(t.Context(), []Ack{a}); err != nil {
			t.Fatal(err)
		}
	}
	clean(t, s)
	reduce(t, s, id)
}

// TestRedriveJobs_TakesFailedJobs: the payload of a failed job was deleted, and no redrive took the job.
func TestRedriveJobs_TakesFailedJobs(t *testing.T) {
	for _, row := range []struct {
		options RedriveOptions
		want    string
	}{
		{RedriveOptions{}, "d0 d1"},
		{RedriveOptions{Statuses: []string{"failed"}}, "a0 a1 b0"},
		{RedriveOptions{Statuses: []string{"failed", "dead"}}, "a0 a1 b0 d0 d1"},
		{RedriveOptions{Codes: []string{"http_409", "http_500"}}, "b0 d0 d1"},
		{RedriveOptions{Codes: []string{"http_422"}, Statuses: []string{"failed"}}, "a0 a1"},
	} {
		t.Run(row.want, func(t *testing.T) {
			s, _ := open(t, nil)
			failing(t, s, "g")
			g, err := s.RedriveJobs(t.Context(), "g", row.options)
			if err != nil || g.RedriveOf != "g" || g.CallbackURL != "https://team.example/done" || !g.Sealed {
				t.Fatalf("%+v, %v", g, err)
			}
			clean(t, s)
			jobs := pull(t, s, 9).Jobs
			got := ids(jobs)
			slices.Sort(got)
			if strings.Join(got, " ") != row.want {
				t.Fatalf("%s run again, want %s", got, row.want)
			}
			for _, j := range jobs {
				if string(j.Payload) != `"`+j.ID+`"` || j.Cost != 2 || j.Type != "mail" || j.Root != "g" {
					t.Errorf("%+v", j)
				}
			}
			_, err = s.RedriveJobs(t.Context(), "g", row.options)
			refused(t, err, CodeState)
		})
	}
}

func TestRedriveJobs_RefusesWhatIsNoSelection(t *testing.T) {
	s, _ := open(t, nil)
	failing(t, s, "g")
	for _, o := range []RedriveOptions{{Statuses: []string{"succeeded"}}, {Codes: []string{"HTTP 500"}}, {Codes: []string{""}}, {Codes: make([]string, 101)}} {
		_, err := s.RedriveJobs(t.Context(), "g", o)
		refused(t, err, CodeInvalid)
	}
	_, err := s.RedriveJobs(t.Context(), "g", RedriveOptions{Codes: []string{"http_500"}, Statuses: []string{"failed"}})
	refused(t, err, CodeState)
	if g, err := s.Group(t.Context(), "g-r1"); err == nil {
		t.Errorf("a redrive of no job has made %+v", g)
	}
}

// TestRedrive_NamesTheStatusOfFailedJobs: of a group whose jobs have failed and are no dead letters, the refusal did not say how they
// run again.
func TestRedrive_NamesTheStatusOfFailedJobs(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Tolerance: Tolerance{Count: 9}})
	if _, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "a", Payload: []byte(`1`), Type: "mail"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	j := pull(t, s, 1).Jobs[0]
	if _, err := s.Ack(t.Context(), []Ack{{Key: j.Key, Fence: j.Fence, Verdict: Rejected, Code: "http_422"}}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Redrive(t.Context(), "g", 0)
	refused(t, err, CodeState)
	if want := "but failed jobs (1): ask for the status failed"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, without %q", err, want)
	}
}

// TestRedrive_OfARedrive: each redrive of a redrive made the id longer, until it was too long; and its jobs lost the idempotency key of
// their first run.
func TestRedrive_OfARedrive(t *testing.T) {
	s, c := open(t, nil)
	root := strings.Repeat("g", 128)
	dying(t, s, c, root, 2, []byte("1"))
	last := root
	for n := 1; n <= 12; n++ {
		g, err := s.Redrive(t.Context(), last, 0)
		if err != nil || g.ID != fmt.Sprintf("%s-r%d", root, n) || g.RedriveOf != last {
			t.Fatalf("redrive %d: %q of %q, %v", n, g.ID, g.RedriveOf, err)
		}
		jobs := pull(t, s, 9).Jobs
		if len(jobs) != 2 || jobs[0].Root != root || jobs[0].Group != g.ID {
			t.Fatalf("redrive %d: %+v", n, jobs)
		}
		ack(t, s, Buried, jobs...)
		last = g.ID
		c.advance(time.Second)
	}
	clean(t, s)
}

// TestFailedJobs_AreKeptAsLongAsDeadOnes: then they are deleted in bounded steps.
func TestFailedJobs_AreKeptAsLongAsDeadOnes(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.Global, set.Burst = 1e6, 1e6 })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Tolerance: Tolerance{Count: 1e6}})
	add(t, s, "g", 0, 700)
	if _, err := s.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{500, 200} {
		ack(t, s, Rejected, pull(t, s, n).Jobs...)
	}
	reduce(t, s, "g")
	tendAll(t, s, "g")
	c.advance(s.Settings().KeepGroups + time.Hour)
	tendAll(t, s, "g")
	clean(t, s)
	if g, err := s.RedriveJobs(t.Context(), "g", RedriveOptions{Statuses: []string{"failed"}, Codes: []string{"boom"}}); err != nil || g.Total != 700 {
		t.Fatalf("%d jobs, %v", g.Total, err)
	}
	for len(pull(t, s, 500).Jobs) > 0 {
		c.advance(time.Millisecond)
	}
	create(t, s, GroupSpec{ID: "old", Tenant: "acme", Tolerance: Tolerance{Count: 1e6}})
	add(t, s, "old", 0, 600)
	if _, err := s.Seal(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c.advance(time.Second)
		ack(t, s, Rejected, pull(t, s, 300).Jobs...)
	}
	reduce(t, s, "old")
	c.advance(s.Settings().KeepDead + time.Hour)
	tendAll(t, s, "old")
	if _, err := s.Group(t.Context(), "old"); err == nil {
		t.Error("the group is there after retention.dead")
	}
	if n, err := s.o.Client.ZCard(t.Context(), s.keys[keyDead]).Result(); err != nil || n != 0 {
		t.Errorf("%d jobs are kept, %v", n, err)
	}
}

// TestFailedRecord_OfAnEarlierVersion: the record of a failed job without a payload is shown, and no redrive takes the job.
func TestFailedRecord_OfAnEarlierVersion(t *testing.T) {
	o, err := parseOutcome("j", "F2 1700000000000 http_422\nno such person")
	if err != nil || o.Status != "failed" || o.Code != "http_422" || o.Error != "no such person" || o.Attempts != 2 || o.Payload != nil {
		t.Fatalf("%+v, %v", o, err)
	}
}

// TestRedrive_OfAnOpenGroup: in a group that keeps no outcomes, the id of a redriven job stays known: a repeated submission is a duplicate.
func TestRedrive_OfAnOpenGroup(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Aggregate: `{"op":"concat"}`, Results: NoResults})
	add(t, s, "g", 0, 2)
	jobs := pull(t, s, 2).Jobs
	ack(t, s, Rejected, jobs[0])
	ack(t, s, Buried, jobs[1])
	if again, err := s.RedriveJobs(t.Context(), "g", RedriveOptions{Statuses: []string{"failed", "dead"}}); err != nil || again.Total != 2 {
		t.Fatalf("%+v, %v", again, err)
	}
	clean(t, s)
	added, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "j000000", Payload: []byte("{}")}, {ID: "j000001", Payload: []byte("{}")}})
	if err != nil || added.Accepted != 0 || added.Duplicates != 2 {
		t.Errorf("jobs that were redriven are added again: %+v, %v", added, err)
	}
	clean(t, s)
	if g, err := s.Seal(t.Context(), "g"); err != nil || !g.Status.Ended() || g.Total != 2 {
		t.Errorf("%+v, %v", g, err)
	}
	tendAll(t, s, "g")
	if g, err := s.Group(t.Context(), "g"); err != nil || g.Gone != 2 {
		t.Errorf("%d outcomes are gone, %v; want 2", g.Gone, err)
	}
	clean(t, s)
}

// TestRedrive_AfterOneThatBrokeOff: another redrive left an interrupted one open for a day, with its jobs, and its group could be deleted.
func TestRedrive_AfterOneThatBrokeOff(t *testing.T) {
	var s *Store
	var c *clock
	broken := func(t *testing.T, id string) {
		t.Helper()
		s, c = open(t, nil)
		dying(t, s, c, id, 700, []byte("1"))
		half(t, s, id)
		if g, err := s.Group(t.Context(), id+"-r1"); err != nil || g.Sealed || g.Total != 500 {
			t.Fatalf("%+v, %v", g, err)
		}
		_, err := s.Delete(t.Context(), id, time.Second)
		refused(t, err, CodeState)
		if !strings.Contains(err.Error(), `"`+id+`-r1"`) {
			t.Error(err)
		}
	}
	whole := func(t *testing.T, id string, total int64) {
		t.Helper()
		if g, err := s.Group(t.Context(), id); err != nil || !g.Sealed || g.Total != total {
			t.Errorf("%+v, %v", g, err)
		}
		clean(t, s)
	}
	t.Run("a retry of one of its jobs", func(t *testing.T) {
		broken(t, "a")
		as, err := s.RetryJob(t.Context(), "a", "j0699", 0)
		if err != nil || as == nil || as.ID != "a-r1" || !as.Sealed {
			t.Fatalf("%+v, %v", as, err)
		}
		whole(t, "a-r1", 700)
	})
	t.Run("at another rate", func(t *testing.T) {
		broken(t, "b")
		_, err := s.Redrive(t.Context(), "b", 5)
		refused(t, err, CodeState)
		if !strings.Contains(err.Error(), `"b-r1"`) {
			t.Error(err)
		}
		whole(t, "b-r1", 700)
	})
	t.Run("the same", func(t *testing.T) {
		broken(t, "c")
		if g, err := s.Redrive(t.Context(), "c", 0); err != nil || g.ID != "c-r1" {
			t.Errorf("%+v, %v", g, err)
		}
		whole(t, "c-r1", 700)
	})
	t.Run("of other jobs", func(t *testing.T) {
		broken(t, "d")
		_, err := s.RedriveJobs(t.Context(), "d", RedriveOptions{Statuses: []string{"failed"}})
		refused(t, err, CodeState)
		whole(t, "d-r1", 700)
	})
	t.Run("a retry of a job that it has", func(t *testing.T) {
		broken(t, "e")
		if as, err := s.RetryJob(t.Context(), "e", "j0000", 0); err != nil || as == nil || as.ID != "e-r1" {
			t.Errorf("%+v, %v", as, err)
		}
		whole(t, "e-r1", 700)
	})
	t.Run("nobody goes on", func(t *testing.T) {
		broken(t, "f")
		c.advance(61 * time.Second)
		tendAll(t, s, "f-r1")
		whole(t, "f-r1", 500)
		if g, err := s.Redrive(t.Context(), "f", 0); err != nil || g.ID != "f-r2" || g.Total != 200 {
			t.Errorf("%+v, %v", g, err)
		}
		whole(t, "f-r2", 200)
	})
	t.Run("it was cancelled", func(t *testing.T) {
		broken(t, "g")
		if _, err := s.Cancel(t.Context(), "g-r1"); err != nil {
			t.Fatal(err)
		}
		if g, err := s.Redrive(t.Context(), "g", 0); err != nil || g.ID != "g-r2" || g.Total != 200 {
			t.Errorf("%+v, %v", g, err)
		}
	})
}

// TestRedrive_AtOnce: some of several concurrent redrives created empty groups, each with a callback.
func TestRedrive_AtOnce(t *testing.T) {
	s, c := open(t, nil)
	for round := range 8 {
		id := fmt.Sprint("g", round)
		dying(t, s, c, id, 40, []byte("1"))
		rates := []float64{0, 0, 0, 7} // the same three times, and another
		made, errs := make([]Group, len(rates)), make([]error, len(rates))
		var all sync.WaitGroup
		for i, rate := range rates {
			all.Go(func() { made[i], errs[i] = s.Redrive(t.Context(), id, rate) })
		}
		all.Wait()
		for i := range rates {
			if err := errs[i]; err != nil {
				refused(t, err, CodeState)
				if !strings.Contains(err.Error(), `"`+id+`-r1"`) {
					t.Error(err)
				}
			} else if made[i].ID != id+"-r1" || made[i].Total != 40 || !made[i].Sealed {
				t.Errorf("%+v", made[i])
			}
		}
		if g, err := s.Group(t.Context(), id+"-r2"); err == nil {
			t.Errorf("%+v", g)
		}
		clean(t, s)
	}
}

// TestRedrive_NamesTheOneThatHasThem: a redrive that is repeated after its response was lost is refused, with the id from that response.
func TestRedrive_NamesTheOneThatHasThem(t *testing.T) {
	s, _ := open(t, nil)
	failing(t, s, "g")
	for _, o := range []RedriveOptions{{Codes: []string{"http_422"}}, {Codes: []string{"http_409"}, Rate: 3}, {}} {
		g, err := s.RedriveJobs(t.Context(), "g", o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			_, err := s.RedriveJobs(t.Context(), "g", o)
			refused(t, err, CodeState)
			if !strings.Contains(err.Error(), fmt.Sprintf("redrive %q has them", g.ID)) {
				t.Error(err)
			}
		}()
	}
	_, err := s.RetryJob(t.Context(), "g", "b0", 0)
	refused(t, err, CodeState)
	if !strings.Contains(err.Error(), `redrive "g-r2" has it`) {
		t.Error(err)
	}
}

// TestDelete_NamesTheWayOut: the refusal for a running group read as if the group had ended.
func TestDelete_NamesTheWayOut(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", CallbackURL: "https://team.example/done"})
	add(t, s, "g", 0, 1)
	says := func(want string) {
		t.Helper()
		_, err := s.Delete(t.Context(), "g", time.Second)
		refused(t, err, CodeState)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	says(`group "g" is CREATED: cancel it first, or wait for its end, then delete it`)
	if _, err := s.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	jobs := pull(t, s, 1).Jobs
	says(`group "g" is RUNNING: cancel it first`)
	ack(t, s, Done, jobs...)
	reduce(t, s, "g")
	says("when callback is done or failed")
}

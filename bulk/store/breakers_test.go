package store

import (
	"fmt"
	"testing"
	"time"
)

var downBreaker = Breaker{Ratio: 0.5, Window: 10 * time.Second, Probe: 1}

// failTries acks jobs as failed by what their processor calls, or otherwise.
func failTries(t *testing.T, s *Store, down bool, jobs ...Leased) (states map[AckState]int) {
	t.Helper()
	states = map[AckState]int{}
	acks := make([]Ack, len(jobs))
	for i, j := range jobs {
		acks[i] = Ack{Key: j.Key, Fence: j.Fence, Verdict: Retry, Code: "connection", Error: "refused", Retries: 5, After: time.Second, Down: down, Breaker: downBreaker}
	}
	got, err := s.Ack(t.Context(), acks)
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range got {
		states[state]++
	}
	return states
}

// openBreakers are those that are open, as words.
func openBreakers(t *testing.T, s *Store) string {
	t.Helper()
	list, err := s.Breakers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, b := range list {
		names = append(names, b.Type+"/"+b.Tenant)
	}
	return fmt.Sprint(names)
}

func TestBreaker_SpendsFewTriesAndProbesInRounds(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"fair":    func(*Settings) {},
		"score":   func(set *Settings) { set.Policy = "score" },
		"limited": func(set *Settings) { set.Types = map[string]TypeLimit{"mail": {Rate: 1000, Concurrency: 500}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, now := limited(t, change)
			create(t, s, GroupSpec{ID: "mails", Tenant: "acme", Type: "mail"})
			add(t, s, "mails", 0, 200)
			create(t, s, GroupSpec{ID: "mixed", Tenant: "acme", Type: "fax"})
			mixed(t, s, "mixed", 40, "mail", "fax")
			jobs, _, _ := pulled(t, s, 100)
			var mails, faxes []Leased
			for _, j := range jobs {
				if j.Type == "mail" {
					mails = append(mails, j)
				} else {
					faxes = append(faxes, j)
				}
			}
			states := failTries(t, s, true, mails...)
			if states[AckRetry] != 19 || states[AckThrottled] != len(mails)-19 {
				t.Errorf("of %d failures of one call %v, want 19 tries spent", len(mails), states)
			}
			ack(t, s, Done, faxes...)
			clean(t, s)
			if got := openBreakers(t, s); got != "[mail/]" {
				t.Fatalf("open: %s", got)
			}
			_, got, next := pulled(t, s, 500, "mail")
			if got["mail"] != 0 || next <= 0 || next > time.Second {
				t.Errorf("while it is open %v started, the next pull in %s", got, next)
			}
			clean(t, s)
			// A probe that fails spends no try, and doubles the pause.
			*now += 1_000_000
			probe, got, _ := pulled(t, s, 500, "mail")
			if got["mail"] != 1 {
				t.Fatalf("after the pause %v started, want one probe", got)
			}
			if states := failTries(t, s, true, probe[:1]...); states[AckThrottled] != 1 {
				t.Errorf("a failed probe: %v", states)
			}
			dispatch(t, s)
			*now += 1_999_000
			if _, got, _ = pulled(t, s, 500, "mail"); got["mail"] != 0 {
				t.Errorf("in the second pause %v started", got)
			}
			*now += 1000
			for _, round := range []int{1, 2, 4, 8} {
				dispatch(t, s)
				probe, got, _ = pulled(t, s, 500, "mail")
				if got["mail"] != round {
					t.Fatalf("started %v, want %d probes", got, round)
				}
				if _, got, _ := pulled(t, s, 500, "mail"); got["mail"] != 0 {
					t.Fatalf("beside %d probes %v started", round, got)
				}
				clean(t, s)
				ack(t, s, Done, probe...)
			}
			clean(t, s)
			if got := openBreakers(t, s); got != "[]" {
				t.Errorf("after its probes %s is open", got)
			}
			for range 50 {
				dispatch(t, s)
				jobs, _, _ := pulled(t, s, 500)
				ack(t, s, Done, jobs...)
				*now += 200_000
			}
			dispatch(t, s)
			clean(t, s)
			for id, total := range map[string]int64{"mails": 200, "mixed": 80} {
				if g, _ := s.Group(t.Context(), id); g.Succeeded != total {
					t.Errorf("%s: %d succeeded, %d dead, of %d", id, g.Succeeded, g.Dead, total)
				}
			}
		})
	}
}

// TestBreaker_ClosesBelowItsRatio: a downstream that fails less often than the ratio of its breaker, as it did before the breaker opened, does not
// keep it open: the probes of a round are judged by that ratio, too.
func TestBreaker_ClosesBelowItsRatio(t *testing.T) {
	for name, row := range map[string]struct {
		ratio float64
		bad   []int // failed probes of the rounds of 1, 2, 4 and 8
		open  int   // the round that opens it again; 4: none
	}{
		"no failures":                {0.5, []int{0, 0, 0, 0}, 4},
		"half of each round":         {0.5, []int{0, 1, 2, 4}, 4},
		"the first probe":            {0.5, []int{1}, 0},
		"more than half":             {0.5, []int{0, 1, 3}, 2},
		"all, and the ratio is one":  {1, []int{0, 1, 4}, 2},
		"most, and the ratio is one": {1, []int{0, 1, 3, 7}, 4},
		"one of eight, ratio 0.1":    {0.1, []int{0, 0, 0, 1}, 3},
	} {
		for _, down := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, down %t", name, down), func(t *testing.T) {
				t.Parallel()
				s, now := limited(t, func(*Settings) {})
				create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "mail"})
				add(t, s, "g", 0, 200)
				fail := func(j Leased) AckState {
					t.Helper()
					states, err := s.Ack(t.Context(), []Ack{{Key: j.Key, Fence: j.Fence, Verdict: Retry, Code: "connection", Retries: 5, Down: down,
						Breaker: Breaker{Ratio: row.ratio, Window: 10 * time.Second, Probe: 1}}})
					if err != nil {
						t.Fatal(err)
					}
					return states[0]
				}
				opening, _, _ := pulled(t, s, 3)
				for _, j := range opening {
					fail(j)
					*now += 600_000
				}
				*now += 1_000_000
				for round, bad := range row.bad {
					dispatch(t, s)
					probes, _, _ := pulled(t, s, 100)
					if len(probes) != 1<<round {
						t.Fatalf("round %d: %d probes", round, len(probes))
					}
					for _, j := range probes[:bad] {
						if state := fail(j); state != AckThrottled {
							t.Errorf("round %d: a failed probe is %s, want no try spent", round, state)
						}
					}
					if _, got, _ := pulled(t, s, 100); round == row.open && got["mail"] != 0 {
						t.Errorf("after a failed round %v started", got)
					}
					ack(t, s, Done, probes[bad:]...)
				}
				want := "[]"
				if row.open < 4 {
					want = map[bool]string{true: "[mail/]", false: "[mail/acme]"}[down]
				}
				if got := openBreakers(t, s); got != want {
					t.Errorf("open: %s, want %s", got, want)
				}
				clean(t, s)
			})
		}
	}
}

func TestBreaker_OpensOfThreeFailuresInASecond(t *testing.T) {
	t.Parallel()
	s, now := limited(t, func(*Settings) {})
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "mail"})
	add(t, s, "g", 0, 10)
	jobs, _, _ := pulled(t, s, 10)
	for i, want := range []AckState{AckRetry, AckRetry, AckThrottled} {
		if states := failTries(t, s, true, jobs[i]); states[want] != 1 {
			t.Errorf("failure %d: %v, want %s", i+1, states, want)
		}
		*now += 500_000
	}
	ack(t, s, Done, jobs[3]) // it began before the breaker opened, and shows nothing
	if got := openBreakers(t, s); got != "[mail/]" {
		t.Errorf("open: %s", got)
	}
	clean(t, s)
}

// TestBreaker_OpensBeforeThePullOfTheSameStep: in a step that ends runs and takes jobs, a breaker that the former opens holds back the latter.
func TestBreaker_OpensBeforeThePullOfTheSameStep(t *testing.T) {
	t.Parallel()
	s, now := limited(t, func(*Settings) {})
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "mail"})
	add(t, s, "g", 0, 10)
	jobs, _, _ := pulled(t, s, 3)
	for i, want := range []AckState{AckRetry, AckRetry, AckThrottled} {
		states, p, err := s.AckPull(t.Context(), []Ack{{Key: jobs[i].Key, Fence: jobs[i].Fence, Verdict: Retry, Code: "connection", Retries: 5, Down: true, Breaker: downBreaker}}, 1)
		if err != nil || states[0] != want || len(p.Jobs) != map[AckState]int{AckRetry: 1}[want] {
			t.Errorf("failure %d: %v, want %s; pulled %v, %v", i+1, states, want, p.Jobs, err)
		}
		*now += 500_000
	}
	if got := openBreakers(t, s); got != "[mail/]" {
		t.Errorf("open: %s", got)
	}
	clean(t, s)
}

func TestBreaker_OneJobAloneOpensNone(t *testing.T) {
	t.Parallel()
	s, now := limited(t, func(*Settings) {})
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "mail"})
	add(t, s, "g", 0, 1)
	for try := range 6 {
		jobs, _, _ := pulled(t, s, 10)
		want := map[bool]AckState{true: AckDead, false: AckRetry}[try == 5]
		if states := failTries(t, s, true, jobs...); states[want] != 1 {
			t.Fatalf("try %d: %v", try+1, states)
		}
		*now += 1_000_000
		dispatch(t, s)
	}
	clean(t, s)
}

func TestBreaker_OfOneTenantHoldsItAlone(t *testing.T) {
	for name, down := range map[string]bool{"of the downstream": true, "other failures": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, now := limited(t, func(*Settings) {})
			for _, tenant := range []string{"acme", "beta"} {
				create(t, s, GroupSpec{ID: tenant, Tenant: tenant, Type: "mail"})
				add(t, s, tenant, 0, 100)
				create(t, s, GroupSpec{ID: tenant + "mixed", Tenant: tenant, Type: "mail"})
				mixed(t, s, tenant+"mixed", 20, "mail", "fax")
			}
			spent, served := 0, map[string]int{}
			for range 100 {
				p, err := s.Pull(t.Context(), 50, "mail")
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range p.Jobs {
					served[j.Tenant]++
					if j.Tenant == "acme" {
						spent += failTries(t, s, down, j)[AckRetry]
					} else {
						ack(t, s, Done, j)
					}
				}
				*now += 100_000
				dispatch(t, s)
			}
			if got := openBreakers(t, s); got != "[mail/acme]" {
				t.Errorf("open: %s", got)
			}
			if served["beta"] != 120 || spent > 19 {
				t.Errorf("served %v, of acme's %d spent a try", served, spent)
			}
			clean(t, s)
			if _, err := s.LiftBreaker(t.Context(), "mail", ""); err == nil {
				t.Error("a breaker that is not open was lifted")
			}
			if open, err := s.LiftBreaker(t.Context(), "mail", "acme"); err != nil || len(open) != 0 {
				t.Errorf("lifted: %v, %v", open, err)
			}
			clean(t, s)
			done := 0
			for range 40 {
				p, err := s.Pull(t.Context(), 50, "mail")
				if err != nil {
					t.Fatal(err)
				}
				done += len(p.Jobs)
				ack(t, s, Done, p.Jobs...)
				*now += 100_000
				dispatch(t, s)
			}
			if done != 120 {
				t.Errorf("%d jobs ran after it was lifted", done)
			}
			clean(t, s)
		})
	}
}

// Probes whose worker vanished are repeated after a lease, and jobs that an open breaker delayed are not lost.
func TestBreaker_LostProbesAreRepeated(t *testing.T) {
	t.Parallel()
	s, now := limited(t, func(*Settings) {})
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "mail"})
	add(t, s, "g", 0, 50)
	jobs, _, _ := pulled(t, s, 30)
	failTries(t, s, true, jobs...)
	*now += 2_000_000
	dispatch(t, s)
	if _, got, _ := pulled(t, s, 50); got["mail"] != 1 {
		t.Fatalf("probes: %v", got)
	}
	*now += 1_000_000
	if _, got, _ := pulled(t, s, 50); got["mail"] != 0 {
		t.Fatalf("beside a probe %v started", got)
	}
	for range 40 {
		*now += 1_000_000
		dispatch(t, s)
	}
	probe, got, _ := pulled(t, s, 50)
	if got["mail"] != 1 {
		t.Fatalf("after a lease %v started", got)
	}
	// A probe that was given back is not waited for.
	ack(t, s, Returned, probe...)
	if probe, got, _ = pulled(t, s, 50); got["mail"] != 1 {
		t.Fatalf("after it was given back %v started", got)
	}
	ack(t, s, Done, probe...)
	clean(t, s)
	// One success, and no more jobs asked for: it closes by itself.
	*now += 41_000_000
	dispatch(t, s)
	if got := openBreakers(t, s); got != "[]" {
		t.Errorf("open: %s", got)
	}
	clean(t, s)
}

// Failures of a tenant without others open the breaker of the type. A tenant that arrives later without failures waits briefly only,
// and so does a tenant that had jobs when everything failed.
func TestBreaker_LeavesTheTenantWhoseFailuresItWasNot(t *testing.T) {
	for name, row := range map[string]struct {
		alone, away, back int // tenths of a second that acme is alone, that everything fails, and that follow
		weight            float64
	}{
		"came later":             {40, 40, 100, 1},
		"came later, outweighed": {40, 40, 100, 100},
		"was there in an outage": {0, 40, 300, 1}, // the pauses have become long by then
	} {
		for kind, mix := range map[string]bool{"uniform": false, "mixed": true} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				s, now := limited(t, func(*Settings) {})
				submit := func(tenant string) {
					create(t, s, GroupSpec{ID: tenant, Tenant: tenant, Type: "mail"})
					if mix {
						mixed(t, s, tenant, 50, "mail", "fax")
					} else {
						add(t, s, tenant, 0, 100)
					}
				}
				if _, err := s.SetTenant(t.Context(), Tenant{Name: "acme", Weight: row.weight}); err != nil {
					t.Fatal(err)
				}
				submit("acme")
				if row.alone == 0 {
					submit("beta")
				}
				spent := 0
				for tenth := range row.away + row.back {
					if tenth == row.alone && tenth > 0 {
						submit("beta")
					}
					// Several pulls in a tenth, as where jobs take some milliseconds.
					for range 5 {
						p, err := s.Pull(t.Context(), 10)
						if err != nil {
							t.Fatal(err)
						}
						for _, j := range p.Jobs {
							switch {
							case j.Type == "mail" && (j.Tenant == "acme" || tenth < row.away):
								spent += failTries(t, s, true, j)[AckRetry]
							default:
								ack(t, s, Done, j)
							}
						}
						*now += 20_000
					}
					dispatch(t, s)
				}
				clean(t, s)
				g, err := s.Group(t.Context(), "beta")
				if err != nil {
					t.Fatal(err)
				}
				if g.Succeeded < 100 {
					t.Errorf("%d of beta's 100 jobs succeeded", g.Succeeded)
				}
				if got := openBreakers(t, s); got != "[mail/acme]" {
					t.Errorf("open: %s", got)
				}
				if spent > 2*19 {
					t.Errorf("%d tries were spent", spent)
				}
			})
		}
	}
}

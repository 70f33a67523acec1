package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

// commandsOf returns how often each command ran in Redis during f, those in scripts too.
func commandsOf(t *testing.T, s *Store, f func()) map[string]int64 {
	t.Helper()
	if err := s.o.Client.(*redis.Client).ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	f()
	text, err := s.o.Client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int64{}
	for line := range strings.Lines(text) {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls="); ok {
			count, _, _ := strings.Cut(rest, ",")
			n[name] = asInt(count)
		}
	}
	return n
}

func total(commands map[string]int64) (sum int64) {
	for n := range maps.Values(commands) {
		sum += n
	}
	return sum
}

func pullOf(t *testing.T, s *Store, want int, types ...string) Pulled {
	t.Helper()
	p, err := s.Pull(t.Context(), want, types...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var tenTypes = []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}

// A pull finds the job of a tenant in its first call, however many jobs of other types other tenants have before it.
func TestPull_DoesNotWaitForTheBacklogOfOthers(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"fair":   func(*Settings) {},
		"strict": func(set *Settings) { set.Strict = true },
		"score":  func(set *Settings) { set.Policy = "score" },
	} {
		for _, tenants := range []int{1, 40} {
			t.Run(fmt.Sprintf("%s beside %d", name, tenants), func(t *testing.T) {
				t.Parallel()
				server := redistest.Server(t)
				s, c := openOn(t, server.Client(), func(set *Settings) { set.Global, set.Burst = 1e6, 1e6; change(set) })
				for i := range tenants {
					id := fmt.Sprintf("large%02d", i)
					create(t, s, GroupSpec{ID: id, Tenant: id, Type: "a", BasePriority: 1_000_000})
					mixed(t, s, id, 4000/tenants, tenTypes...)
					c.advance(time.Second)
				}
				create(t, s, GroupSpec{ID: "small", Tenant: "small", Type: "own"})
				add(t, s, "small", 0, 1)
				var p Pulled
				n := total(commandsOf(t, s, func() { p = pullOf(t, s, 1, "own") }))
				if len(p.Jobs) != 1 || n > 1200 {
					t.Fatalf("%d jobs in the first call, which ran %d commands", len(p.Jobs), n)
				}
				ack(t, s, Done, p.Jobs...)
				clean(t, s)
				// Later calls go on, each bounded, until no job of another type is in the queue.
				for i := 0; p.More; i++ {
					n = total(commandsOf(t, s, func() { p = pullOf(t, s, 10, "own") }))
					if n > 3000 || i > 400 {
						t.Fatalf("call %d ran %d commands", i, n)
					}
				}
				clean(t, s)
				left := s.o.Client.ZCard(t.Context(), s.keys[keyLines]).Val() + s.o.Client.ZCard(t.Context(), s.keys[keyNormal]).Val()
				if g, err := s.Group(t.Context(), "large00"); err != nil || left != 0 || g.Pending != int64(40_000/tenants) {
					t.Fatalf("%d groups are left in the queue: %+v, %v", left, g, err)
				}
			})
		}
	}
}

// A tenant whose jobs of other types a pull has passed over keeps its share: it has no credit afterwards.
func TestPull_PassesOverWithoutCredit(t *testing.T) {
	s, _ := open(t, func(set *Settings) { set.Global, set.Burst, set.ByStarts = 1e6, 1e6, true })
	create(t, s, GroupSpec{ID: "mixed", Tenant: "mixed", Type: "own"})
	mixed(t, s, "mixed", 60, tenTypes...)
	add(t, s, "mixed", 1000, 1400)
	create(t, s, GroupSpec{ID: "plain", Tenant: "plain", Type: "own"})
	add(t, s, "plain", 0, 1000)
	served := map[string]int{}
	both := -1 // jobs of the other tenant until the first one of the mixed group
	for served["mixed"] < 200 {
		p := pullOf(t, s, 4, "own")
		for _, j := range p.Jobs {
			if served[j.Tenant]++; j.Tenant == "mixed" && both < 0 {
				both = served["plain"]
			}
		}
		ack(t, s, Done, p.Jobs...)
	}
	if after := served["plain"] - both; both < 4 || after < 180 || after > 220 {
		t.Errorf("the other tenant had %d jobs before, and %d beside 200", both, after)
	}
	clean(t, s)
}

// The jobs of a limited type in a mixed group delay no other tenant either.
func TestPull_DoesNotWaitForTheLimitedTypesOfOthers(t *testing.T) {
	server := redistest.Server(t)
	s, _ := openOn(t, server.Client(), func(set *Settings) {
		set.Global, set.Burst, set.Types = 1e6, 1e6, map[string]TypeLimit{"mail": {Concurrency: 1}}
	})
	create(t, s, GroupSpec{ID: "small", Tenant: "small", Type: "own"})
	add(t, s, "small", 0, 8)
	if p := pull(t, s, 8); len(p.Jobs) != 8 {
		t.Fatalf("%d jobs", len(p.Jobs))
	}
	create(t, s, GroupSpec{ID: "large", Tenant: "large", Type: "fax"})
	add(t, s, "large", 0, 1)
	mixed(t, s, "large", 4000, "mail")
	if p := pull(t, s, 2); len(p.Jobs) != 2 {
		t.Fatalf("%d jobs", len(p.Jobs))
	}
	add(t, s, "small", 8, 1) // after the large tenant's next turn
	var p Pulled
	n := total(commandsOf(t, s, func() { p = pull(t, s, 1) }))
	if len(p.Jobs) != 1 || n > 700 {
		t.Fatalf("%d jobs in the first call, which ran %d commands", len(p.Jobs), n)
	}
	for p.More {
		p = pull(t, s, 1)
	}
	clean(t, s)
}

// Two tenants with jobs that may start have equal shares, also while a pull holds back the jobs of other types between those of one.
func TestPull_SharesEvenlyWhileItHoldsBack(t *testing.T) {
	for name, kinds := range map[string][]string{"every fifth": append([]string{"own"}, tenTypes[:4]...), "every eleventh": append([]string{"own"}, tenTypes...)} {
		for _, want := range []int{4, 50, 100, 200} {
			t.Run(fmt.Sprintf("%s of %d", name, want), func(t *testing.T) {
				t.Parallel()
				server := redistest.Server(t)
				s, _ := openOn(t, server.Client(), func(set *Settings) { set.Global, set.Burst, set.ByStarts = 1e6, 1e6, true })
				create(t, s, GroupSpec{ID: "mixed", Tenant: "mixed", Type: "own"})
				mixed(t, s, "mixed", 400, kinds...)
				create(t, s, GroupSpec{ID: "plain", Tenant: "plain", Type: "own"})
				add(t, s, "plain", 0, 4000)
				served := map[string]int{}
				for calls := 0; served["mixed"] < 200; calls++ {
					var p Pulled
					n := total(commandsOf(t, s, func() { p = pullOf(t, s, want, "own") }))
					if n > 3500 || len(p.Jobs) == 0 || len(p.Jobs) < want && !p.More {
						t.Fatalf("call %d started %d jobs, more %v, and ran %d commands", calls, len(p.Jobs), p.More, n)
					}
					for _, j := range p.Jobs {
						served[j.Tenant]++
					}
					ack(t, s, Done, p.Jobs...)
					// B5, and the jobs of one turn
					if d := served["mixed"] - served["plain"]; max(d, -d) > 2*max(4, want/2) {
						t.Fatalf("after %d calls of %d jobs: %v", calls+1, want, served)
					}
				}
				clean(t, s)
			})
		}
	}
}

// With strict, no job of a lower level starts before those of a higher one, however many jobs of other types are before these.
func TestPull_StrictDrainsTheHigherLevelThatItHoldsBack(t *testing.T) {
	s, _ := open(t, func(set *Settings) { set.Global, set.Burst, set.Strict = 1e6, 1e6, true })
	create(t, s, GroupSpec{ID: "high", Tenant: "mixed", Type: "own", Level: "high"})
	mixed(t, s, "high", 200, tenTypes...)
	add(t, s, "high", 0, 5)
	create(t, s, GroupSpec{ID: "low", Tenant: "plain", Type: "own", Level: "low"})
	add(t, s, "low", 0, 5)
	var order []string
	for calls := 0; len(order) < 10; calls++ {
		p := pullOf(t, s, 2, "own")
		for _, j := range p.Jobs {
			order = append(order, j.Group)
		}
		if ack(t, s, Done, p.Jobs...); calls > 10 {
			t.Fatalf("started in %d calls: %v", calls, order)
		}
	}
	if !slices.IsSortedFunc(order, strings.Compare) {
		t.Errorf("started in the order %v", order)
	}
	clean(t, s)
}

// A pull that has moved deferred jobs to the front of a group whose concurrency, or whose tenant's, is used up has no more to start: the next
// call would start nothing either.
func TestPull_DeferredJobsOfAFullGroupAreNoMoreWork(t *testing.T) {
	for name, full := range map[string]func(t *testing.T, s *Store) GroupSpec{
		"group": func(*testing.T, *Store) GroupSpec {
			return GroupSpec{ID: "g", Tenant: "acme", Type: "other", Concurrency: 1}
		},
		"tenant": func(t *testing.T, s *Store) GroupSpec {
			if _, err := s.SetTenant(t.Context(), Tenant{Name: "acme", Concurrency: 1}); err != nil {
				t.Fatal(err)
			}
			return GroupSpec{ID: "g", Tenant: "acme", Type: "other"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := open(t, func(set *Settings) { set.Global, set.Burst = 1e6, 1e6 })
			create(t, s, full(t, s))
			mixed(t, s, "g", 30, "own")
			for p := pullOf(t, s, 10, "other"); p.More; {
				p = pullOf(t, s, 10, "other")
			}
			for done := range 30 {
				p := pullOf(t, s, 1, "own")
				if len(p.Jobs) != 1 {
					t.Fatalf("%d jobs after %d", len(p.Jobs), done)
				}
				if next := pullOf(t, s, 1, "own"); next.More || len(next.Jobs) > 0 {
					t.Fatalf("after %d: %d jobs and more %v beside the one in flight", done, len(next.Jobs), next.More)
				}
				ack(t, s, Done, p.Jobs...)
			}
			clean(t, s)
		})
	}
}

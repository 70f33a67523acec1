package store_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bulk/congestion"
	"github.com/anteroom/anteroom/bulk/congestion/congestiontest"
	. "github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// TestScripts_ComputeFormulas compares the results of the scripts with package congestion: backoff, rate, level, estimate and mean of
// refused jobs, and the wait after a crash.
func TestScripts_ComputeFormulas(t *testing.T) {
	t.Parallel()
	client, run := redistest.Client(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		set := Defaults()
		set.Burst = 10_000
		set.Global = float64(rapid.IntRange(1, 3_000_000).Draw(rt, "global")) / 1000
		set.PerTenant = float64(rapid.SampledFrom([]int{0, 0, 1, 300, 2500, 40_000}).Draw(rt, "per_tenant")) / 1000
		set.BaseBackoff = time.Duration(rapid.IntRange(1, 3_000_000).Draw(rt, "base")) * time.Microsecond
		set.MaxBackoff = set.BaseBackoff + time.Duration(rapid.IntRange(0, 200_000_000).Draw(rt, "max"))*time.Microsecond
		now := int64(1_780_000_000_000_000)
		s, err := New(Options{Client: client, Prefix: fmt.Sprintf("%s-%d", redistest.Prefix(t), run), Timeout: 10 * time.Second, Settings: set, Now: func() int64 { return now }})
		if err != nil {
			rt.Fatal(err)
		}
		active := rapid.IntRange(1, 5).Draw(rt, "tenants")
		for i := range active {
			submitted(rt, s, fmt.Sprintf("t%d", i), rapid.IntRange(1, 12).Draw(rt, "jobs"))
		}
		p, err := s.Pull(rt.Context(), 500)
		if err != nil {
			rt.Fatal(err)
		}
		waiting := map[string]int64{}
		for _, j := range p.Jobs {
			states, err := s.Ack(rt.Context(), []Ack{{Key: j.Key, Fence: j.Fence, Verdict: Throttled}})
			if err != nil || states[0] != AckThrottled {
				rt.Fatal(states, err)
			}
			rate := congestiontest.TenantRate(set.Global, int64(active), set.PerTenant)
			backoff := congestiontest.Backoff(set.BaseBackoff, set.MaxBackoff, waiting[j.Tenant], rate)
			waiting[j.Tenant]++
			have, err := s.Congestion(rt.Context(), j.Tenant)
			if err != nil {
				rt.Fatal(err)
			}
			want := Congestion{
				Tenant: j.Tenant, NonReady: waiting[j.Tenant], Rate: rate, Backoff: backoff, Level: congestion.Level(backoff, set.BaseBackoff),
				Estimate: congestion.Estimate(waiting[j.Tenant], rate), Pending: have[0].Pending, InFlight: have[0].InFlight, At: have[0].At,
			}
			if have[0] != want {
				rt.Fatalf("after the refusal of %s:\nthe scripts say %+v\nthe formulas say %+v", j.Key, have[0], want)
			}
		}
		crashed(rt, s, set, &now)
	})
}

func submitted(t *rapid.T, s *Store, tenant string, n int) {
	if _, _, err := s.CreateGroup(t.Context(), GroupSpec{ID: tenant, Tenant: tenant, Type: "noop"}); err != nil {
		t.Fatal(err)
	}
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = Job{ID: fmt.Sprintf("j%d", i), Payload: []byte("{}")}
	}
	if _, err := s.AddJobs(t.Context(), tenant, Chunk{}, jobs); err != nil {
		t.Fatal(err)
	}
}

// crashed takes a job whose worker vanishes again and again, until it is dead.
func crashed(t *rapid.T, s *Store, set Settings, now *int64) {
	*now += time.Hour.Microseconds()
	for i := int64(1); ; i++ {
		if _, err := s.Dispatch(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, err := s.Pull(t.Context(), 1)
		if err != nil || len(p.Jobs) != 1 {
			t.Fatal(p, err)
		}
		j := p.Jobs[0]
		if i == 1 {
			// The others have nothing to say here.
			rest, err := s.Pull(t.Context(), 500)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rest.Jobs {
				if _, err := s.Ack(t.Context(), []Ack{{Key: r.Key, Fence: r.Fence, Verdict: Done}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if j.Crashes != i-1 || j.Attempt != 1 {
			t.Fatalf("after %d crashes: %+v", i-1, j)
		}
		end := *now + set.Lease.Microseconds()
		for range 3 { // a dispatcher that is alive
			*now += set.Lease.Microseconds() / 4
			if _, err := s.Dispatch(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		*now = end
		d, err := s.Dispatch(t.Context())
		if err != nil || d.Recovered != 1 {
			t.Fatal(d, err)
		}
		if i > set.MaxCrashes {
			if d.Dead != 1 {
				t.Fatalf("after %d crashes: %+v", i, d)
			}
			return
		}
		if want := congestiontest.Crash(set.MaxBackoff, i, spread(j.Fence)).Truncate(time.Microsecond); d.Next != want {
			t.Fatalf("after crash %d of fence %d: back in %v, want %v", i, j.Fence, d.Next, want)
		}
		*now += d.Next.Microseconds()
	}
}

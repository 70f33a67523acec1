package store

import (
	"slices"
	"testing"
	"time"
)

// TestRefused_IsToldEveryWait: Options.Refused is called for a Retry-After, a gated group, a backoff, and a job refused by a rate in the
// classic pipeline; not for failed tries.
func TestRefused_IsToldEveryWait(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Settings)
		want   []time.Duration
	}{
		"gating":  {nil, []time.Duration{90 * time.Second, time.Hour, time.Second}},
		"classic": {func(set *Settings) { set.Gating, set.Global, set.Burst = false, 4, 4 }, []time.Duration{time.Second, 90 * time.Second, time.Hour, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := open(t, row.change)
			var waits []time.Duration
			s.o.Refused = func(wait time.Duration) { waits = append(waits, wait) }
			create(t, s, GroupSpec{ID: "g", Tenant: "a"})
			add(t, s, "g", 0, len(row.want)+1)
			jobs := pull(t, s, 10).Jobs
			if len(jobs) != 4 {
				t.Fatalf("%d jobs start, want 4", len(jobs))
			}
			acks := []Ack{
				{Verdict: Throttled, After: 90 * time.Second}, {Verdict: Held, After: time.Hour}, {Verdict: Throttled},
				{Verdict: Retry, Retries: 3, After: 7 * time.Second},
			}
			for i := range acks {
				acks[i].Key, acks[i].Fence = jobs[i].Key, jobs[i].Fence
			}
			if states, err := s.Ack(t.Context(), acks); err != nil || !slices.Equal(states, []AckState{AckThrottled, AckThrottled, AckThrottled, AckRetry}) {
				t.Fatal(states, err)
			}
			if !slices.Equal(waits, row.want) {
				t.Errorf("%v, want %v", waits, row.want)
			}
			clean(t, s)
		})
	}
}

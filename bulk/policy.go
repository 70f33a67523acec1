package bulk

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// DefaultRetries is how often a failed job is retried by default. With the default waits, of which at least half is
// fixed, the last retry starts more than 23 minutes after the first failure.
const DefaultRetries = 12

// NoRetries is a Retry.Max: the job is dead after its first failed try.
const NoRetries = -1

// Policy is how the jobs of one type are run.
type Policy struct {
	Timeout time.Duration // of one run; 0: WorkerOptions.JobTimeout
	Retry   Retry
	// Breaker stops the jobs of the type in all processes after failures; the zero value: never.
	Breaker store.Breaker
}

// Failed returns the ack of a failed run, the given attempt of its job. Key, Fence and Took are the caller's.
func (p Policy) Failed(attempt int64, f *Failure) store.Ack {
	a := store.Ack{Code: code(f.Code), Error: brief(f.Err), Down: f.Down, Breaker: p.Breaker}
	switch f.Kind {
	case KindPermanent:
		a.Verdict = store.Rejected
	case KindBusy:
		a.Verdict, a.After = store.Throttled, min(max(0, f.After), MaxAfter)
	case KindBusyGroup:
		a.Verdict, a.After = store.Held, min(max(0, f.After), MaxAfter)
	default:
		a.Verdict, a.After = store.Retry, max(retryAfter(p.Retry, attempt), min(f.After, MaxAfter))
		a.Retries = max(0, p.Retry.Max)
	}
	return a
}

// Retry is how a failed job is retried. The wait before try n+1 is random between half of Base·2^(n−1), at most Most,
// and all of it. A handler may ask for a longer one.
type Retry struct {
	Max        int64 // tries after the first one; NoRetries: none
	Base, Most time.Duration
}

// complete sets zero fields from d and checks the others.
func (r *Retry) complete(d Retry) error {
	r.Max = cmp.Or(r.Max, d.Max)
	if r.Base == 0 {
		r.Base = d.Base
	}
	r.Most = cmp.Or(r.Most, max(d.Most, r.Base))
	switch {
	case r.Max < NoRetries:
		return fmt.Errorf("retry.max %d: use 0 or more (bulk.NoRetries for none)", r.Max)
	case r.Base < 0:
		return fmt.Errorf("retry.base %s: use more than 0", r.Base)
	case r.Most < r.Base:
		return fmt.Errorf("retry.most %s: use at least retry.base, which is %s", r.Most, r.Base)
	}
	return nil
}

// policies holds the policy of each type. Readers take no lock, since every run reads it.
type policies struct {
	without Policy // of types without their own
	mu      sync.Mutex
	byType  atomic.Pointer[map[string]Policy]
}

func newPolicies(without Policy) *policies {
	p := &policies{without: without}
	p.byType.Store(&map[string]Policy{})
	return p
}

func (p *policies) of(jobType string) Policy {
	if found, ok := (*p.byType.Load())[jobType]; ok {
		return found
	}
	return p.without
}

// types returns the types that have a policy of their own, sorted.
func (p *policies) types() []string { return slices.Sorted(maps.Keys(*p.byType.Load())) }

func (p *policies) set(jobType string, policy Policy) error {
	if policy.Timeout < 0 {
		return fmt.Errorf("bulk: type %s: timeout %s: use more than 0", jobType, policy.Timeout)
	}
	policy.Timeout = cmp.Or(policy.Timeout, p.without.Timeout)
	if err := policy.Retry.complete(p.without.Retry); err != nil {
		return fmt.Errorf("bulk: type %s: %w", jobType, err)
	}
	if err := policy.Breaker.Check(); err != nil {
		return fmt.Errorf("bulk: type %s: %w", jobType, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next := maps.Clone(*p.byType.Load())
	next[jobType] = policy
	p.byType.Store(&next)
	return nil
}

package store

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Breaker is when the failures of a processor open its breaker. The zero value never does.
type Breaker struct {
	Ratio  float64       // share of failures, among at least twenty answers, above which it opens; at most 1; 0: no breaker
	Window time.Duration // for how long answers count, and the longest pause between probes
	Probe  int64         // jobs of the first round of probes
}

// Limits of a Breaker.
const (
	MinBreakerWindow = time.Second
	MaxBreakerWindow = time.Hour
	MaxBreakerProbe  = 1000
)

// Check returns an error if b is invalid.
func (b Breaker) Check() error {
	switch {
	case b == Breaker{}:
		return nil
	case !(b.Ratio >= 0 && b.Ratio <= 1):
		return fmt.Errorf("breaker.ratio %v: use 0 (no breaker) to 1", b.Ratio)
	case b.Window < MinBreakerWindow || b.Window > MaxBreakerWindow:
		return fmt.Errorf("breaker.window %s: use %s to %s", b.Window, MinBreakerWindow, MaxBreakerWindow)
	case b.Probe < 1 || b.Probe > MaxBreakerProbe:
		return fmt.Errorf("breaker.probe %d: use 1 to %d", b.Probe, MaxBreakerProbe)
	}
	return nil
}

// breakerWords returns what jobs_ack reads of a failure that counts for a breaker; empty for any other outcome.
func (a *Ack) breakerWords() string {
	class := "try"
	switch b := a.Breaker; {
	case b.Ratio <= 0 || b.Check() != nil:
		return ""
	case a.Down && (a.Verdict == Retry || a.Verdict == Throttled || a.Verdict == Held):
		class = "down"
	case a.Verdict != Retry:
		return ""
	}
	return fmt.Sprintf(" %s %d %d %d", class, int64(math.Ceil(a.Breaker.Ratio*1000)), a.Breaker.Window.Microseconds(), a.Breaker.Probe)
}

// OpenBreaker is a breaker that holds jobs back.
type OpenBreaker struct {
	Type   string
	Tenant string // empty: for the jobs of every tenant
	Opened time.Time
	// Until is when the next probes start; zero: they run or may start now.
	Until    time.Time
	Probes   int64 // jobs of this round of probes
	Started  int64 // jobs of this round that have started
	Failures int64 // since shortly before it opened, of Answers
	Answers  int64
	Failed   time.Time // the last failure
	Code     string    // of it
}

// Breakers returns the open breakers by type and tenant.
func (s rateStore) Breakers(ctx context.Context) ([]OpenBreaker, error) { return s.breakers(ctx, "") }

// LiftBreaker closes the breaker of a type or, with a tenant, of that tenant's jobs of the type, so that they start
// again. It returns the breakers that are still open.
func (s rateStore) LiftBreaker(ctx context.Context, kind, tenant string) ([]OpenBreaker, error) {
	name, what := kind, fmt.Sprintf("processor %q", kind)
	if tenant != "" {
		name, what = kind+"@"+tenant, fmt.Sprintf("processor %q and tenant %q", kind, tenant)
	}
	open, err := s.breakers(ctx, name)
	if err == nil && open == nil {
		return nil, refuse(CodeNotFound, "the breaker of %s is not open", what)
	}
	return open, err
}

// breakers lifts a breaker if lift names one; it returns nil if that is not open.
func (s rateStore) breakers(ctx context.Context, lift string) ([]OpenBreaker, error) {
	r, err := s.run(ctx, "breakers_read", lift)
	if err != nil || r.string(0) == "not_found" && len(r) == 1 {
		return nil, err
	}
	const width = 9
	now := time.Now()
	if s.o.Now != nil {
		now = micros(s.o.Now())
	}
	open := make([]OpenBreaker, 0, len(r)/width)
	for i := 0; i+width <= len(r); i += width {
		b := OpenBreaker{Opened: micros(r.int(i + 1)), Until: micros(r.int(i + 2)), Probes: r.int(i + 3), Started: r.int(i + 4),
			Failures: r.int(i + 5), Answers: r.int(i + 6), Failed: micros(r.int(i + 7)), Code: r.string(i + 8)}
		b.Type, b.Tenant, _ = strings.Cut(r.string(i), "@")
		if b.Started >= b.Probes || !b.Until.After(now) {
			b.Until = time.Time{}
		}
		open = append(open, b)
	}
	slices.SortFunc(open, func(a, b OpenBreaker) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Tenant, b.Tenant))
	})
	return open, nil
}

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anteroom/anteroom/bulk/congestion"
)

// Congestion returns the congestion of the tenants with groups, by name, over all shards; with a name, of that tenant only.
func (f fleetViews) Congestion(ctx context.Context, tenant string) ([]Congestion, Away, error) {
	if len(f.shards) == 1 {
		list, err := f.shards[0].Congestion(ctx, tenant)
		return list, nil, err
	}
	all, away, err := read(ctx, f.allShards, func(ctx context.Context, s *Store) ([]Congestion, error) {
		list, err := s.Congestion(ctx, tenant)
		if isCode(err, CodeNotFound) {
			err = nil
		}
		return list, err
	})
	if err != nil {
		return nil, nil, err
	}
	byName := map[string]Congestion{}
	for _, c := range slices.Concat(all...) {
		sum, there := byName[c.Tenant]
		if !there {
			byName[c.Tenant] = c
			continue
		}
		byName[c.Tenant] = f.addCongestion(sum, c)
	}
	if tenant != "" && len(byName) == 0 {
		return nil, nil, refuse(CodeNotFound, "tenant %q: it has no groups and no settings", tenant)
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b Congestion) int { return cmp.Compare(a.Tenant, b.Tenant) }), away, nil
}

func isCode(err error, code Code) bool {
	refusal, is := errors.AsType[*Refusal](err)
	return is && refusal.Code == code
}

// addCongestion returns the congestion of a tenant in two shards together.
func (f fleetViews) addCongestion(a, b Congestion) Congestion {
	finished := a.Finished + b.Finished
	if finished > 0 {
		a.AvgThrottles = (a.AvgThrottles*float64(a.Finished) + b.AvgThrottles*float64(b.Finished)) / float64(finished)
	}
	a.Finished = finished
	a.NonReady, a.Pending, a.InFlight, a.Rate = a.NonReady+b.NonReady, a.Pending+b.Pending, a.InFlight+b.InFlight, a.Rate+b.Rate
	a.Backoff, a.Concurrency = max(a.Backoff, b.Backoff), max(a.Concurrency, b.Concurrency)
	if b.At.After(a.At) {
		a.At = b.At
	}
	a.Level = congestion.Level(a.Backoff, f.Settings().BaseBackoff)
	a.Estimate = congestion.Estimate(a.NonReady, a.Rate)
	return a
}

// historyHeld is how long the last snapshot of a shard counts if the shard has no newer one.
const historyHeld = 10 * time.Second

// History returns a tenant's snapshots since then, oldest first, one a second: the sums of the shards' latest.
func (f fleetViews) History(ctx context.Context, tenant string, since time.Time) ([]Congestion, Away, error) {
	if len(f.shards) == 1 {
		list, err := f.shards[0].History(ctx, tenant, since)
		return list, nil, err
	}
	type point struct {
		Congestion
		shard int
	}
	all, away, err := read(ctx, f.allShards, func(ctx context.Context, s *Store) (list []point, err error) {
		past, err := s.History(ctx, tenant, since)
		for _, c := range past {
			list = append(list, point{c, s.o.Shard})
		}
		return list, err
	})
	if err != nil {
		return nil, nil, err
	}
	points := slices.Concat(all...)
	slices.SortFunc(points, func(a, b point) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.shard, b.shard)) })
	var out []Congestion
	last := map[int]Congestion{}
	for i, p := range points {
		last[p.shard] = p.Congestion
		if i+1 < len(points) && points[i+1].At.Unix() == p.At.Unix() {
			continue // of this second
		}
		sum, begun := Congestion{}, false
		for _, n := range slices.Sorted(maps.Keys(last)) {
			switch c := last[n]; {
			case p.At.Sub(c.At) > historyHeld:
			case begun:
				sum = f.addCongestion(sum, c)
			default:
				sum, begun = c, true
			}
		}
		out = append(out, sum)
	}
	return out, away, nil
}

// Limits returns the rates in force, and how much of them all shards use.
func (f fleetViews) Limits(ctx context.Context) (Limits, Away, error) {
	all, away, err := read(ctx, f.allShards, func(ctx context.Context, s *Store) (Limits, error) { return s.Limits(ctx) })
	if err != nil {
		return Limits{}, nil, err
	}
	return sumLimits(all), away, nil
}

// sumLimits returns the limits of the first shard, which are those of all, with the runs of all.
func sumLimits(all []Limits) Limits {
	l := all[0]
	for _, other := range all[1:] {
		l.Types = sumTypes(l.Types, other.Types)
	}
	return l
}

func sumTypes(a, b map[string]TypeLimits) map[string]TypeLimits {
	sum := maps.Clone(a)
	for name, of := range b {
		mine, there := sum[name]
		if sum == nil {
			sum = map[string]TypeLimits{}
		}
		if !there {
			mine, mine.Running = of, 0
		}
		mine.Running += of.Running
		sum[name] = mine
	}
	return sum
}

// setAll changes a setting in every shard, first in shard 0. If a shard is away, its error states that the others have the
// change; the same call completes it later.
func setAll[T any](ctx context.Context, f *allShards, do func(ctx context.Context, s *Store) (T, error)) ([]T, error) {
	first, err := do(ctx, f.shards[0])
	if err != nil || len(f.shards) == 1 {
		return []T{first}, err
	}
	all, errs := each(ctx, f, func(ctx context.Context, s *Store) (T, error) {
		if s == f.shards[0] {
			return first, nil
		}
		return do(ctx, s)
	})
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("the other shards have the change; repeat it when this one is back: %w", err)
	}
	return all, nil
}

// SetLimits changes the rates in the patch for every process and shard.
func (f fleetViews) SetLimits(ctx context.Context, p LimitsPatch) (Limits, error) {
	if p.PerTenant != nil {
		set := f.Settings()
		if set.PerTenant = *p.PerTenant; !set.partsOfTenants(len(f.shards)) {
			return Limits{}, refuse(CodeInvalid, "per_tenant %v: %s", *p.PerTenant, perTenantNeeds(len(f.shards)))
		}
	}
	all, err := setAll(ctx, f.allShards, func(ctx context.Context, s *Store) (Limits, error) { return s.SetLimits(ctx, p) })
	if err != nil {
		return Limits{}, err
	}
	return sumLimits(all), nil
}

// Tenant returns a tenant, with its counts over all shards.
func (f fleetViews) Tenant(ctx context.Context, name string) (Tenant, Away, error) {
	var missing error
	all, away, err := read(ctx, f.allShards, func(ctx context.Context, s *Store) (*Tenant, error) {
		t, err := s.Tenant(ctx, name)
		if isCode(err, CodeNotFound) && len(f.shards) > 1 {
			return nil, nil
		}
		return &t, err
	})
	if err != nil {
		return Tenant{}, nil, err
	}
	var sum *Tenant
	for _, t := range all {
		switch {
		case t == nil:
			missing = refuse(CodeNotFound, "tenant %q: it has no groups and no settings", name)
		case sum == nil:
			sum = t
		default:
			sum.add(t)
		}
	}
	if sum == nil {
		return Tenant{}, nil, missing
	}
	return *sum, away, nil
}

func (t *Tenant) add(other *Tenant) {
	t.Groups, t.InFlight, t.Served = t.Groups+other.Groups, t.InFlight+other.InFlight, t.Served+other.Served
}

// SetTenant changes a tenant's weight, rate and concurrency in every shard.
func (f fleetViews) SetTenant(ctx context.Context, t Tenant) (Tenant, error) {
	all, err := setAll(ctx, f.allShards, func(ctx context.Context, s *Store) (Tenant, error) { return s.SetTenant(ctx, t) })
	if err != nil {
		return Tenant{}, err
	}
	sum := all[0]
	for i := range all[1:] {
		sum.add(&all[1+i])
	}
	return sum, nil
}

// Breakers returns the open breakers by type and tenant. Each shard has breakers of its own; of one that is open in
// several shards, the counts are sums, and it is open since the first of them opened.
func (f fleetViews) Breakers(ctx context.Context) ([]OpenBreaker, Away, error) {
	all, away, err := read(ctx, f.allShards, func(ctx context.Context, s *Store) ([]OpenBreaker, error) { return s.Breakers(ctx) })
	return sumBreakers(all), away, err
}

func sumBreakers(all [][]OpenBreaker) []OpenBreaker {
	if len(all) == 1 {
		return all[0]
	}
	type name struct{ kind, tenant string }
	byName := map[name]OpenBreaker{}
	for _, b := range slices.Concat(all...) {
		key := name{b.Type, b.Tenant}
		sum, there := byName[key]
		if !there {
			byName[key] = b
			continue
		}
		if b.Opened.Before(sum.Opened) {
			sum.Opened = b.Opened
		}
		if b.Failed.After(sum.Failed) {
			sum.Failed, sum.Code = b.Failed, b.Code
		}
		if sum.Until.IsZero() || !b.Until.IsZero() && b.Until.Before(sum.Until) {
			sum.Until = b.Until
		}
		sum.Probes, sum.Started = sum.Probes+b.Probes, sum.Started+b.Started
		sum.Failures, sum.Answers = sum.Failures+b.Failures, sum.Answers+b.Answers
		byName[key] = sum
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b OpenBreaker) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Tenant, b.Tenant))
	})
}

// LiftBreaker closes a breaker in every shard in which it is open.
func (f fleetViews) LiftBreaker(ctx context.Context, kind, tenant string) ([]OpenBreaker, Away, error) {
	lifted := false
	var closed error
	all, errs := each(ctx, f.allShards, func(ctx context.Context, s *Store) ([]OpenBreaker, error) { return s.LiftBreaker(ctx, kind, tenant) })
	for n, err := range errs {
		if isCode(err, CodeNotFound) && len(f.shards) > 1 {
			closed = err
			all[n], errs[n] = f.shards[n].Breakers(ctx)
		} else if err == nil {
			lifted = true
		}
	}
	there, away, err := some(all, errs)
	if err == nil && !lifted {
		err = closed
	}
	return sumBreakers(there), away, err
}

// Processes returns the processes by id. Keeper is set for the keeper of any shard.
func (f fleetViews) Processes(ctx context.Context) ([]Process, Away, error) {
	all, away, err := read(ctx, f.allShards, func(ctx context.Context, s *Store) ([]Process, error) { return s.Processes(ctx) })
	if err != nil || len(all) == 1 {
		return slices.Concat(all...), away, err
	}
	byID := map[string]Process{}
	for _, p := range slices.Concat(all...) {
		if was, there := byID[p.ID]; there {
			p.Keeper = p.Keeper || was.Keeper
			if was.SeenAt.After(p.SeenAt) {
				p.SeenAt = was.SeenAt
			}
		}
		byID[p.ID] = p
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b Process) int { return cmp.Compare(a.ID, b.ID) }), away, nil
}

// Pullers returns the pullers by id, of any shard.
func (f fleetViews) Pullers(ctx context.Context) ([]Puller, error) {
	all, _, err := read(ctx, f.allShards, func(ctx context.Context, s *Store) ([]Puller, error) { return s.Pullers(ctx) })
	if err != nil {
		return nil, err
	}
	list := slices.Concat(all...)
	slices.SortStableFunc(list, func(a, b Puller) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(list, func(a, b Puller) bool { return a.ID == b.ID }), nil
}

// Running returns the running jobs of all shards, longest running first, and their number; see Store.Running.
func (f fleetViews) Running(ctx context.Context) (jobs []RunningJob, all int64, away Away, err error) {
	type part struct {
		jobs []RunningJob
		all  int64
	}
	parts, away, err := read(ctx, f.allShards, func(ctx context.Context, s *Store) (p part, err error) {
		p.jobs, p.all, err = s.Running(ctx)
		return p, err
	})
	for _, p := range parts {
		jobs, all = append(jobs, p.jobs...), all+p.all
	}
	if len(parts) > 1 {
		sortRunning(jobs)
	}
	return jobs, all, away, err
}

// SumDepths returns the counts of several shards together. Jain is the smallest, AvgThrottles and RateAccuracy are means.
func SumDepths(all []Depths) Depths {
	sum := all[0]
	if len(all) == 1 {
		return sum
	}
	sum.Groups, sum.Oldest = maps.Clone(sum.Groups), maps.Clone(sum.Oldest)
	throttled, weight := sum.AvgThrottles*float64(sum.InFlight+sum.Pending+sum.NonReady), float64(sum.InFlight+sum.Pending+sum.NonReady)
	var breakers [][]OpenBreaker
	breakers = append(breakers, sum.Breakers)
	for _, d := range all[1:] {
		for level, n := range d.Groups {
			sum.Groups[level] += n
		}
		sum.Pending, sum.Ready, sum.NonReady, sum.InFlight = sum.Pending+d.Pending, sum.Ready+d.Ready, sum.NonReady+d.NonReady, sum.InFlight+d.InFlight
		sum.ActiveTenants = max(sum.ActiveTenants, d.ActiveTenants) // a tenant may be in several shards
		sum.GatedGroups, sum.OpenGroups = sum.GatedGroups+d.GatedGroups, sum.OpenGroups+d.OpenGroups
		sum.Jain = min(sum.Jain, d.Jain)
		sum.RateAccuracy += d.RateAccuracy
		sum.MaxBackoff = max(sum.MaxBackoff, d.MaxBackoff)
		if levelRank(d.MaxCongestion) > levelRank(sum.MaxCongestion) {
			sum.MaxCongestion = d.MaxCongestion
		}
		w := float64(d.InFlight + d.Pending + d.NonReady)
		throttled, weight = throttled+d.AvgThrottles*w, weight+w
		for level, age := range d.Oldest {
			if sum.Oldest == nil {
				sum.Oldest = map[Level]time.Duration{}
			}
			sum.Oldest[level] = max(sum.Oldest[level], age)
		}
		sum.Unserved += d.Unserved
		sum.UnservedTypes = append(slices.Clone(sum.UnservedTypes), d.UnservedTypes...)
		sum.Types = sumTypes(sum.Types, d.Types)
		sum.SavedSpins += d.SavedSpins
		breakers = append(breakers, d.Breakers)
	}
	slices.Sort(sum.UnservedTypes)
	sum.UnservedTypes = slices.Compact(sum.UnservedTypes)
	sum.RateAccuracy /= float64(len(all))
	if weight > 0 {
		sum.AvgThrottles = math.Max(0, throttled/weight)
	}
	sum.Breakers = sumBreakers(breakers)
	return sum
}

func levelRank(level string) int {
	return slices.Index([]string{congestion.None, congestion.Low, congestion.Moderate, congestion.High, congestion.Critical}, level)
}

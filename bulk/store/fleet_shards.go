package store

import (
	"context"
	"fmt"
	"slices"
)

// ShardInfo is the state of a shard.
type ShardInfo struct {
	Number int
	// Use is one of UseOpen, UseDraining and UseUnused.
	Use    string
	Away   error // set if the shard does not reply: its counts are unknown
	Groups int64 // with those that have ended and are still kept
	Depths
}

// How a shard is used.
const (
	UseOpen     = "open"     // for new groups
	UseDraining = "draining" // for the groups that it has
	UseUnused   = "unused"   // for no group yet
)

// ShardList returns the state of every shard.
func (f fleetLayout) ShardList(ctx context.Context) ([]ShardInfo, error) {
	p, err := f.currentPlacements(ctx)
	if err != nil {
		return nil, err
	}
	all, errs := each(ctx, f.allShards, func(ctx context.Context, s *Store) (i ShardInfo, err error) {
		if i.Depths, err = s.Depths(ctx); err != nil {
			return i, err
		}
		i.Groups, err = s.o.Client.ZCard(ctx, s.keys[keyIndex]).Result()
		return i, err
	})
	for n := range all {
		i := &all[n]
		i.Number, i.Away, i.Use = n, errs[n], UseDraining
		switch {
		case slices.Contains(p.placements[len(p.placements)-1].shards, n):
			i.Use = UseOpen
		case n >= p.count():
			i.Use = UseUnused
		}
	}
	return all, nil
}

// currentPlacements reads the placements.
func (f fleetLayout) currentPlacements(ctx context.Context) (*placementReading, error) {
	p, _, err := f.shards[0].readPlacements(ctx, "", nil)
	if err == nil {
		f.placing.last.Store(p)
	}
	return p, err
}

// DrainShard closes a shard for new groups. Its groups stay and end there. changed is false if it is closed already.
func (f fleetLayout) DrainShard(ctx context.Context, n int) (changed bool, err error) {
	return f.place(ctx, n, func(open []int) ([]int, error) {
		if len(open) == 1 && open[0] == n {
			return nil, refuse(CodeState, "shard %d is the only one for new groups: add or open another one first", n)
		}
		return slices.DeleteFunc(open, func(o int) bool { return o == n }), nil
	})
}

// OpenShard opens a shard for new groups: one that was drained, or one that is not used yet. Every process must have it
// in its configuration.
func (f fleetLayout) OpenShard(ctx context.Context, n int) (changed bool, err error) {
	if err := f.prepareOpening(ctx, n); err != nil {
		return false, err
	}
	return f.place(ctx, n, func(open []int) ([]int, error) {
		if !slices.Contains(open, n) {
			open = append(open, n)
			slices.Sort(open)
		}
		return open, nil
	})
}

// prepareOpening checks that a shard can be opened, and copies live changes of operators to it.
func (f fleetLayout) prepareOpening(ctx context.Context, n int) error {
	if n < 0 || n >= len(f.shards) {
		return refuse(CodeInvalid, "shard %d: the configuration has shards: %d", n, len(f.shards))
	}
	p, err := f.currentPlacements(ctx)
	if err != nil {
		return err
	}
	if n > p.count() {
		return refuse(CodeState, "shard %d: open shard %d first", n, p.count())
	}
	processes, away, err := f.Processes(ctx)
	if err != nil {
		return err
	}
	if len(away) > 0 {
		return fmt.Errorf("%w: shards %v are away; open a shard when all reply", ErrStore, []int(away))
	}
	for _, process := range processes {
		if process.Shards <= n {
			return refuse(CodeState, "process %s on %s has shards: %d: restart every process with shards: %d and the server of shard %d first", process.ID, process.Host, max(1, process.Shards), n+1, n)
		}
	}
	return f.copySettings(ctx, f.shards[n])
}

// copySettings copies live limits and the settings of tenants from shard 0.
func (f fleetLayout) copySettings(ctx context.Context, to *Store) error {
	from := f.shards[0]
	if to == from {
		return nil
	}
	l, err := from.Limits(ctx)
	if err != nil {
		return err
	}
	if l.Live {
		live, err := from.liveRates(ctx)
		if err != nil {
			return err
		}
		if _, err := to.SetLimits(ctx, live); err != nil {
			return err
		}
	}
	types := LimitsPatch{Types: map[string]TypeLimitPatch{}}
	for name, t := range l.Types {
		if t.Live {
			types.Types[name] = TypeLimitPatch{Rate: &t.Rate, Concurrency: &t.Concurrency, RateGiven: true, ConcurrencyGiven: true}
		}
	}
	if len(types.Types) > 0 {
		if _, err := to.SetLimits(ctx, types); err != nil {
			return err
		}
	}
	return f.copyTenants(ctx)
}

// copyTenants sets the settings that tenants have in shard 0 in every shard.
func (f fleetLayout) copyTenants(ctx context.Context) error {
	from := f.shards[0]
	names, err := from.tenantNames(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		t, err := from.Tenant(ctx, name)
		if isCode(err, CodeNotFound) || err == nil && t.Weight == 1 && t.Rate == 0 && t.Concurrency == 0 {
			continue
		}
		if err == nil {
			_, err = f.SetTenant(ctx, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// adoptTenants copies to all shards the settings of tenants that were set while there was one shard, once. Then the lender
// divides their limits; before, each shard has a fixed part of them.
func (f fleetLayout) adoptTenants(ctx context.Context) error {
	s := f.shards[0]
	call, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	done, err := s.o.Client.HExists(call, s.keys[keyState], "limited").Result()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	if done {
		return nil
	}
	if err := f.copyTenants(ctx); err != nil {
		return err
	}
	if err := s.o.Client.HSetNX(call, s.keys[keyState], "limited", "").Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return nil
}

// liveRates returns the rates that operators have set.
func (s rateStore) liveRates(ctx context.Context) (p LimitsPatch, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	got, err := s.o.Client.HMGet(ctx, s.keys[keyState], "live_global", "live_tenant").Result()
	if err != nil {
		return p, fmt.Errorf("%w: %w", ErrStore, err)
	}
	for i, to := range []**float64{&p.Global, &p.PerTenant} {
		if text, there := got[i].(string); there {
			*to = new(float64(asInt(text)) / 1000)
		}
	}
	p.GlobalGiven, p.PerTenantGiven = p.Global != nil, p.PerTenant != nil
	return p, nil
}

// place adds a placement with the shards that change returns for those of the last placement. It repeats this if another
// operator adds a placement at the same time.
func (f fleetLayout) place(ctx context.Context, n int, change func(open []int) ([]int, error)) (changed bool, err error) {
	if n < 0 || n >= len(f.shards) {
		return false, refuse(CodeInvalid, "shard %d: the configuration has shards: %d", n, len(f.shards))
	}
	for {
		p, err := f.currentPlacements(ctx)
		if err != nil {
			return false, err
		}
		was := p.placements[len(p.placements)-1].shards
		open, err := change(slices.Clone(was))
		if err != nil || slices.Equal(open, was) {
			return false, err
		}
		if len(p.placements) >= mostPlacements {
			return false, refuse(CodeState, "the installation has %d placements, the largest possible number: each drained or opened shard adds one, and none can be removed", len(p.placements))
		}
		next, added, err := f.shards[0].readPlacements(ctx, p.text, open)
		if err != nil {
			return false, err
		}
		if added {
			f.placing.last.Store(next)
			return true, nil
		}
	}
}

// mostPlacements bounds the placements, all of which a search for a group may have to try.
const mostPlacements = 64

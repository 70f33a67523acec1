package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sharded is data in one or more shards: a Store or a Fleet.
type Sharded interface{ Shards() []*Store }

var _, _ Sharded = (*Store)(nil), (*Fleet)(nil)

// Shards returns the store itself.
func (s *Store) Shards() []*Store { return []*Store{s} }

// allShards is the state that all methods of a Fleet share.
type allShards struct {
	shards  []*Store
	servers []*server // of NewFleet
	placing placementCache

	unreached unreached

	mu      sync.Mutex
	known   map[string]*Store // homes of groups whose id has several possible homes
	started map[int]int64     // jobs that each shard had started when it last replied
}

// Fleet is the bulk engine's data in several shards, each in a slot of its own, on one Redis or on several. A group is
// on one shard, its home. Methods that list or count read all shards. A Fleet starts nothing and may be used concurrently.
type Fleet struct {
	*allShards
	fleetJobs
	fleetLayout
	fleetSchedules
}

// The methods of a Fleet, by what they concern.
type (
	fleetChains    struct{ *allShards }  // groups that wait for groups of other shards
	fleetSplits    struct{ fleetChains } // changes of split groups
	fleetGroups    struct{ fleetSplits }
	fleetJoins     struct{ fleetGroups } // ends of split groups
	fleetJobs      struct{ fleetJoins }
	fleetViews     struct{ *allShards }
	fleetLayout    struct{ fleetViews }
	fleetSchedules struct{ *allShards }
)

func newFleet(all []*Store) *Fleet {
	s := &allShards{shards: all}
	return &Fleet{s, fleetJobs{fleetJoins{fleetGroups{fleetSplits{fleetChains{s}}}}}, fleetLayout{fleetViews{s}}, fleetSchedules{s}}
}

// NewFleet returns a Fleet of o.Shards shards. Shard n is on client n mod the number of clients. It does not connect yet.
func NewFleet(o Options, clients ...redis.UniversalClient) (*Fleet, error) {
	if len(clients) == 0 {
		return nil, errors.New("bulk/store: NewFleet needs a client")
	}
	o.Shards = max(1, o.Shards)
	if o.Shards > MaxShards {
		return nil, fmt.Errorf("shards %d: use 1 to %d", o.Shards, MaxShards)
	}
	if o.Process == "" {
		o.Process = newProcess() // one name in all shards
	}
	var all []*Store
	for n := range o.Shards {
		o.Shard, o.Client = n, clients[n%len(clients)]
		s, err := New(o)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	f := newFleet(all)
	f.servers = serversOf(all)
	return f, nil
}

// FleetOf returns s as a Fleet.
func FleetOf(s Sharded) *Fleet {
	if f, ok := s.(*Fleet); ok {
		return f
	}
	return newFleet(s.Shards())
}

// Shards returns the shards by number.
func (f *allShards) Shards() []*Store { return f.shards }

// Settings returns the settings in force in this process.
func (f *allShards) Settings() Settings { return f.shards[0].Settings() }

// Configure changes the settings of all shards from the next call on.
func (f *allShards) Configure(c Settings) error {
	for _, s := range f.shards {
		if err := s.Configure(c); err != nil {
			return err // the first shard returns it: all check the same settings
		}
	}
	return nil
}

// checkShards returns an error for settings that several shards cannot hold together.
func (s *shard) checkShards(c *Settings) error {
	n := s.o.Shards
	switch {
	case n == 1:
		return nil
	case c.Limiter != "gcra":
		return fmt.Errorf("limiter %s: needs shards: 1, because its windows cannot be divided while they run; use gcra", c.Limiter)
	case c.Policy != "fair":
		return fmt.Errorf("fair_queue.policy %s: needs shards: 1, because the order is over all groups; use fair", c.Policy)
	case c.Strict:
		return errors.New("fair_queue.strict: needs shards: 1, because a shard does not see the jobs of high priority in the others; use false")
	case !c.Gating:
		return errors.New("fair_queue.gating: false needs shards: 1; use true")
	case !c.partsOfTenants(n):
		return fmt.Errorf("rate.per_tenant %v: %s", c.PerTenant, perTenantNeeds(n))
	}
	return nil
}

// partsOfTenants reports whether the burst of per_tenant has at least one job for each of n shards, which have fixed parts.
func (c *Settings) partsOfTenants(n int) bool {
	return c.PerTenant == 0 || n == 1 || cmp.Or(c.Burst, c.PerTenant/10) >= float64(n)
}

func perTenantNeeds(n int) string {
	return fmt.Sprintf("its burst is divided among %d shards, and each needs a burst of at least one job: use at least %d, or a rate.burst of %d", n, 10*n, n)
}

// Prepare checks the number of shards and the layout of shard 0 and loads its scripts. The first call of each other shard
// does the same there.
func (f *Fleet) Prepare(ctx context.Context) error {
	if err := f.Check(ctx); err != nil {
		return err
	}
	if err := f.shards[0].Prepare(ctx); err != nil {
		return err
	}
	if err := f.RefreshPlacements(ctx); err != nil || len(f.shards) == 1 {
		return err
	}
	if err := f.adoptTenants(ctx); err != nil {
		f.shards[0].o.Log.Warn("cannot divide the limits of tenants that were set before there were several shards; each shard has a fixed part of them until the next start", "error", err)
	}
	return nil
}

// Unused returns the shards that no placement has: they hold no group until OpenShard.
func (f *allShards) Unused() []int {
	p := f.placing.last.Load()
	if p == nil {
		return nil
	}
	var unused []int
	for n := p.count(); n < len(f.shards); n++ {
		unused = append(unused, n)
	}
	return unused
}

// Ping returns an error unless every shard replies and its layout fits.
func (f *allShards) Ping(ctx context.Context) error {
	_, errs := each(ctx, f, func(ctx context.Context, s *Store) (struct{}, error) { return struct{}{}, s.Ping(ctx) })
	return errors.Join(errs...)
}

// RefreshPlacements reads the placements again. Processes must call it every PlaceEvery.
func (f *allShards) RefreshPlacements(ctx context.Context) error {
	if len(f.shards) == 1 {
		return nil
	}
	f.placing.mu.Lock()
	defer f.placing.mu.Unlock()
	p, _, err := f.shards[0].readPlacements(ctx, "", nil)
	if err != nil {
		return err
	}
	f.placing.last.Store(p)
	return nil
}

// placements returns the placements, which it reads if the last reading is old. While shard 0 is away it returns the
// last reading.
func (f *allShards) placements(ctx context.Context) (*placementReading, error) {
	p := f.placing.last.Load()
	now := time.Since(f.shards[0].start).Nanoseconds()
	if p != nil && (time.Since(p.at) < placeStale || now < f.placing.next.Load()) {
		return p, nil
	}
	if p != nil {
		f.placing.next.Store(now + int64(time.Second))
	}
	err := f.RefreshPlacements(ctx)
	if again := f.placing.last.Load(); again != nil {
		return again, nil
	}
	return nil, err
}

// homes returns the shards that may have the group of an id, first the one for a new group.
func (f *allShards) homes(ctx context.Context, id string) ([]*Store, error) {
	if len(f.shards) == 1 {
		return f.shards, nil
	}
	p, err := f.placements(ctx)
	if err != nil {
		return nil, err
	}
	numbers := p.homes(id, p.clock())
	homes := make([]*Store, 0, len(numbers))
	for _, n := range numbers {
		if n >= len(f.shards) {
			return nil, fmt.Errorf("%w: shard %d was added; restart this process with shards: %d", ErrStore, n, p.count())
		}
		homes = append(homes, f.shards[n])
	}
	return homes, nil
}

// FixedHome returns the shard of a key that concerns several groups: that of the first placement, which never changes.
func (f *allShards) FixedHome(ctx context.Context, key string) (*Store, error) {
	if len(f.shards) == 1 {
		return f.shards[0], nil
	}
	p, err := f.placements(ctx)
	if err != nil {
		return nil, err
	}
	return f.shards[p.placements[0].home(key)], nil
}

// mostKnown bounds Fleet.known.
const mostKnown = 10_000

// shardOf returns the shard that has the group, or the one for a new group if none has it.
func (f *allShards) shardOf(ctx context.Context, id string) (*Store, error) {
	homes, err := f.homes(ctx, id)
	if err != nil || len(homes) == 1 {
		return first(homes), err
	}
	f.mu.Lock()
	known := f.known[id]
	f.mu.Unlock()
	if known != nil {
		homes = append([]*Store{known}, homes...) // read again: the group may have been deleted
	}
	var away error
	for _, s := range homes {
		_, err := s.short(ctx, id)
		if err == nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.known == nil || len(f.known) >= mostKnown {
				f.known = map[string]*Store{}
			}
			f.known[id] = s
			return s, nil
		}
		if _, refused := errors.AsType[*Refusal](err); !refused {
			away = errors.Join(away, fmt.Errorf("the group may be on a shard that is away: %w", shardError(s.o.Shard, err)))
		}
	}
	return first(homes), away
}

func first(homes []*Store) *Store {
	if len(homes) == 0 {
		return nil
	}
	return homes[0]
}

// on calls do with the shard of a group.
func on[T any](ctx context.Context, f *allShards, id string, do func(s *Store) (T, error)) (v T, err error) {
	s, err := f.shardOf(ctx, id)
	if err != nil {
		return v, err
	}
	return do(s)
}

// each calls do for all shards at once and returns the results by shard.
func each[T any](ctx context.Context, f *allShards, do func(ctx context.Context, s *Store) (T, error)) ([]T, []error) {
	all, errs := make([]T, len(f.shards)), make([]error, len(f.shards))
	if len(f.shards) == 1 {
		all[0], errs[0] = do(ctx, f.shards[0])
		return all, errs
	}
	var wg sync.WaitGroup
	for n, s := range f.shards {
		wg.Go(func() {
			var err error
			all[n], err = do(ctx, s)
			errs[n] = shardError(n, err)
		})
	}
	wg.Wait()
	return all, errs
}

// ShardError is the error of a call that one of several shards failed, by an outage in most cases.
type ShardError struct {
	Shard int
	Err   error
}

func (e *ShardError) Error() string { return fmt.Sprintf("shard %d: %v", e.Shard, e.Err) }

func (e *ShardError) Unwrap() error { return e.Err }

// shardError names the shard of an error, if that is not a refusal and names none.
func shardError(n int, err error) error {
	if err == nil {
		return nil
	}
	if _, refused := errors.AsType[*Refusal](err); refused {
		return err
	}
	if _, named := errors.AsType[*ShardError](err); named {
		return err
	}
	return &ShardError{Shard: n, Err: err}
}

// Away lists the shards that did not reply when all were read. The result is then that of the other shards.
type Away []int

// some returns the results of the shards that replied. err is not nil if none did, or if a shard's error is not an
// outage.
func some[T any](all []T, errs []error) (replied []T, away Away, err error) {
	for n, v := range all {
		switch {
		case errs[n] == nil:
			replied = append(replied, v)
		case errors.Is(errs[n], ErrStore):
			away = append(away, n)
		default:
			return nil, nil, errs[n]
		}
	}
	if len(replied) == 0 {
		return nil, nil, errs[0]
	}
	return replied, away, nil
}

// read calls do for all shards at once and returns the results of those that replied.
func read[T any](ctx context.Context, f *allShards, do func(ctx context.Context, s *Store) (T, error)) ([]T, Away, error) {
	return some(each(ctx, f, do))
}

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// longestID leaves room for the numbers of redrives.
const longestID = 128

// IDBeside returns an id for a new group whose id no client has chosen. It leads to the shard of the first predecessor, which saves calls
// to other shards, and is the random id itself without predecessors or with one shard.
func (f fleetGroups) IDBeside(after, random string) string {
	first, _, _ := strings.Cut(after, " ")
	if len(f.shards) == 1 || first == "" {
		return random
	}
	if id := homeKey(first) + together + random; len(id) <= longestID {
		return id
	}
	return random
}

// named calls do under the lock of a name that one submission over all shards may use, so that no other process submits
// anything under that name meanwhile.
func (f fleetGroups) named(ctx context.Context, name string, do func(ctx context.Context) error) error {
	return f.locked(ctx, "name/"+name, "the key "+strconv.Quote(name), do)
}

// locked calls do under a lock of a key that concerns several shards.
func (f fleetGroups) locked(ctx context.Context, key, what string, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, countFor)
	defer cancel()
	home, err := f.FixedHome(ctx, key)
	if err != nil {
		return err
	}
	for {
		unlock, ok, err := home.Lock(ctx, key, countLock)
		if err != nil {
			return fmt.Errorf("cannot check %s: %w", what, err)
		}
		if ok {
			defer unlock()
			return do(ctx)
		}
		select {
		case <-time.After(countWait):
		case <-ctx.Done():
			return fmt.Errorf("%w: cannot check %s: other requests hold the lock; try again", ErrStore, what)
		}
	}
}

// createNamed creates a group with a unique key. If the key is in use in any shard, it returns the group that was created
// with it. The step that creates a group also records its key.
func (f fleetGroups) createNamed(ctx context.Context, s *Store, g GroupSpec) (group Group, created bool, err error) {
	name := "g" + g.Tenant + "/" + g.Unique.Key
	err = f.named(ctx, name, func(ctx context.Context) error {
		if _, err := s.short(ctx, g.ID); isCode(err, CodeNotFound) {
			all, errs := each(ctx, f.allShards, func(ctx context.Context, other *Store) (string, error) {
				if other == s && g.Split < 2 {
					return "", nil // group_create checks this shard
				}
				return other.submittedUnder(ctx, name)
			})
			if err := errors.Join(errs...); err != nil {
				return fmt.Errorf("cannot check unique.key %q: %w", g.Unique.Key, err)
			}
			if first := cmp.Or(all...); first != "" && first != g.ID {
				group, err = f.Group(ctx, first)
				group.Duplicate = err == nil
				if isCode(err, CodeNotFound) {
					err = usedBefore(&g, first)
				}
				return err
			}
		} else if err != nil {
			return err
		}
		group, created, err = f.createOn(ctx, s, g)
		return err
	})
	return group, created, err
}

// usedBefore returns the refusal of a unique key whose group has been deleted.
func usedBefore(g *GroupSpec, first string) *Refusal {
	err := refuse(CodeExists, "unique.key %q: group %q was created with it and has been deleted; the key is free again when its unique.for has passed", g.Unique.Key, first)
	err.Deleting = true
	return err
}

// submittedUnder returns the group or job that was submitted in this shard under the first of the names that is in use (see
// lua/lib/bulkunique.lua), "" if none is.
func (s *shard) submittedUnder(ctx context.Context, names ...string) (string, error) {
	if err := s.Prepare(ctx); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	now, err := s.storeTime(ctx)
	if err != nil {
		return "", shardError(s.o.Shard, err)
	}
	held, err := s.o.Client.HMGet(ctx, s.keys[keyUniques], names...).Result()
	if err != nil {
		return "", shardError(s.o.Shard, fmt.Errorf("%w: %w", ErrStore, err))
	}
	for _, v := range held {
		text, _ := v.(string)
		till, first, _ := strings.Cut(text, " ")
		if asInt(till) > now.UnixMicro() {
			return first, nil
		}
	}
	return "", nil
}

// Submit adds a single job, as Store.Submit does. With several shards, jobs without an id and without a unique key are spread
// over all. A tenant's jobs with one are on one shard, which records these names.
func (f fleetJobs) Submit(ctx context.Context, in Single) (Submitted, error) {
	if len(f.shards) == 1 {
		return f.shards[0].Submit(ctx, in)
	}
	var names []string
	if in.Unique.Key != "" {
		names = append(names, "j"+in.Tenant+"/"+in.Unique.Key)
	}
	if in.ID != "" {
		names = append(names, "i"+in.Tenant+"/"+in.ID)
	}
	in.group = singlesID("")
	if len(names) > 0 {
		in.group = singlesID(in.Tenant)
	}
	homes, err := f.homes(ctx, in.group)
	if err != nil {
		return Submitted{}, err
	}
	submit := func(ctx context.Context) (Submitted, error) { return f.submitCounted(ctx, homes[0], in) }
	if len(names) == 0 || len(homes) == 1 {
		return submit(ctx)
	}
	// Under earlier placements, other shards recorded the names of the tenant.
	var done Submitted
	err = f.named(ctx, "s"+in.Tenant, func(ctx context.Context) (err error) {
		for _, other := range homes[1:] {
			first, err := other.submittedUnder(ctx, names...)
			if err != nil {
				return fmt.Errorf("cannot check whether the job was submitted before: %w", err)
			}
			if first != "" {
				done = duplicateOf(first)
				return nil
			}
		}
		done, err = submit(ctx)
		return err
	})
	return done, err
}

// submitCounted is Store.Submit; a quota of the tenant counts the jobs in all shards.
func (f fleetJobs) submitCounted(ctx context.Context, s *Store, in Single) (done Submitted, err error) {
	if in.MaxPending == 0 && f.Settings().PendingPerTenant == 0 {
		return s.Submit(ctx, in)
	}
	err = f.counting(ctx, in.Tenant, []*Store{s}, tenantUse{groups: 1, open: 1}, func(ctx context.Context, elsewhere tenantUse) (err error) {
		in.elsewhere = elsewhere.open
		done, err = s.Submit(ctx, in)
		return err
	})
	return done, err
}

// Schedules are on shard 0, whose clock determines when they run.

// WriteSchedule creates, changes or deletes a schedule.
func (f fleetSchedules) WriteSchedule(ctx context.Context, r ScheduleRecord, next time.Time) (now ScheduleRecord, changed bool, err error) {
	return f.shards[0].WriteSchedule(ctx, r, next)
}

// DueSchedules returns schedules that are due, and the store's time.
func (f fleetSchedules) DueSchedules(ctx context.Context) (now time.Time, due []ScheduleRecord, err error) {
	return f.shards[0].DueSchedules(ctx)
}

// Time returns the store's time.
func (f fleetSchedules) Time(ctx context.Context) (time.Time, error) { return f.shards[0].Time(ctx) }

// Schedule returns one schedule.
func (f fleetSchedules) Schedule(ctx context.Context, id string) (ScheduleRecord, error) {
	return f.shards[0].Schedule(ctx, id)
}

// ScheduleCount returns the number of all schedules.
func (f fleetSchedules) ScheduleCount(ctx context.Context) (int64, error) {
	return f.shards[0].ScheduleCount(ctx)
}

// Schedules returns all schedules in no order.
func (f fleetSchedules) Schedules(ctx context.Context) ([]ScheduleRecord, error) {
	return f.shards[0].Schedules(ctx)
}

// SchedulesOf returns the schedules of a tenant by id, and whether the index of tenants is complete.
func (f fleetSchedules) SchedulesOf(ctx context.Context, tenant string) (list []ScheduleRecord, indexed bool, err error) {
	return f.shards[0].SchedulesOf(ctx, tenant)
}

// IndexSchedules completes the index of tenants.
func (f fleetSchedules) IndexSchedules(ctx context.Context, tenant func(ScheduleRecord) string) error {
	return f.shards[0].IndexSchedules(ctx, tenant)
}

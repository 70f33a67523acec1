package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// CreateGroup creates a group on its home, as Store.CreateGroup does.
func (f fleetGroups) CreateGroup(ctx context.Context, g GroupSpec) (group Group, created bool, err error) {
	if err := g.Validate(); err != nil {
		return Group{}, false, err
	}
	s, err := f.shardOf(ctx, g.ID)
	if err != nil {
		return Group{}, false, err
	}
	if len(f.shards) == 1 {
		if err := f.CheckSplit(ctx, g.Split); err != nil {
			return Group{}, false, err
		}
		return s.CreateGroup(ctx, g)
	}
	if err := f.splitExpected(ctx, s, &g); err != nil {
		return Group{}, false, err
	}
	create := func(g GroupSpec) (Group, bool, error) {
		if g.Unique.Key != "" {
			return f.createNamed(ctx, s, g)
		}
		return f.createOn(ctx, s, g)
	}
	if g.After != "" {
		return f.createChained(ctx, s, g, create)
	}
	return create(g)
}

// createOn creates a group on a shard, or with its first part there.
func (f fleetGroups) createOn(ctx context.Context, s *Store, g GroupSpec) (group Group, created bool, err error) {
	if g.Split > 1 {
		return f.createParts(ctx, s, g)
	}
	return f.createCounted(ctx, s, g)
}

// createCounted creates a group on a shard. A quota of its tenant counts the groups in all shards.
func (f fleetGroups) createCounted(ctx context.Context, s *Store, g GroupSpec) (group Group, created bool, err error) {
	if g.MaxGroups == 0 {
		return s.CreateGroup(ctx, g)
	}
	err = f.counting(ctx, g.Tenant, []*Store{s}, tenantUse{groups: 1}, func(ctx context.Context, elsewhere tenantUse) error {
		left := g
		if left.MaxGroups -= elsewhere.groups; left.MaxGroups < 1 {
			switch _, err := s.Group(ctx, g.ID); {
			case isCode(err, CodeNotFound):
				return tooManyGroups(&g, elsewhere.groups)
			case err != nil:
				return err
			}
			left.MaxGroups = 1 // it exists, so nothing is counted
		}
		group, created, err = s.CreateGroup(ctx, left)
		if isCode(err, CodeQuota) {
			return tooManyGroups(&g, g.MaxGroups)
		}
		return err
	})
	return group, created, err
}

// AddJobs adds jobs to a group, as Store.AddJobs does. A quota of its tenant counts the jobs in all shards.
func (f fleetGroups) AddJobs(ctx context.Context, group string, c Chunk, jobs []Job) (added Added, err error) {
	p, err := f.parts(ctx, group)
	if err != nil {
		return Added{}, err
	}
	if len(p) > 1 {
		return f.addParts(ctx, p, group, c, jobs)
	}
	s := p[0]
	if len(f.shards) == 1 || c.MaxPending == 0 && f.Settings().PendingPerTenant == 0 {
		return s.AddJobs(ctx, group, c, jobs)
	}
	tenant, err := s.TenantOf(ctx, group)
	if err != nil {
		return Added{}, err
	}
	err = f.counting(ctx, tenant, []*Store{s}, tenantUse{open: int64(len(jobs))}, func(ctx context.Context, elsewhere tenantUse) (err error) {
		c.elsewhere = elsewhere.open
		added, err = s.AddJobs(ctx, group, c, jobs)
		return err
	})
	return added, err
}

// tenantUse is how many groups and unfinished jobs a tenant has in a shard, for its quotas.
type tenantUse struct{ groups, open int64 }

const (
	countLock = 10 * time.Second     // after which a lock expires
	countFor  = 5 * time.Second      // for taking a lock and for the work under it
	countWait = 5 * time.Millisecond // between two attempts to take the lock
)

// counting calls do with the tenant's use of all shards, except for that of a single shard to which do adds. It holds a lock of the
// tenant, so that no other process adds to the tenant meanwhile. do adds at most the given number to each shard of to. A shard that
// is away counts as it was last recorded, since nothing is added to it.
func (f fleetGroups) counting(ctx context.Context, tenant string, to []*Store, adds tenantUse, do func(ctx context.Context, elsewhere tenantUse) error) error {
	key := "tenant/" + tenant
	return f.locked(ctx, key, fmt.Sprintf("the quotas of tenant %q", tenant), func(ctx context.Context) error {
		home, err := f.FixedHome(ctx, key)
		if err != nil {
			return err
		}
		all, err := f.countUse(ctx, home, tenant, to, adds)
		if err != nil {
			return fmt.Errorf("cannot check the quotas of tenant %q: %w", tenant, err)
		}
		var elsewhere tenantUse
		for n, c := range all {
			if len(to) > 1 || f.shards[n] != to[0] {
				elsewhere.groups += c.groups
				elsewhere.open += c.open
			}
		}
		err = do(ctx, elsewhere)
		if _, refused := errors.AsType[*Refusal](err); refused { // what was recorded has not been added
			if _, failed := f.countUse(ctx, home, tenant, nil, tenantUse{}); failed != nil {
				home.o.Log.Debug("a tenant's use of a shard stays recorded too high until its next request", "tenant", tenant, "error", failed)
			}
		}
		return err
	})
}

// quotaKept is how long the records of a tenant's use stay without a request that counts them.
const quotaKept = 30 * 24 * time.Hour

// countUse returns the tenant's use of each shard. It records on home what the shards have and will have with the jobs to be added;
// of a shard that is away it returns the record.
func (f fleetGroups) countUse(ctx context.Context, home *Store, tenant string, to []*Store, adds tenantUse) ([]tenantUse, error) {
	all, errs := each(ctx, f.allShards, func(ctx context.Context, s *Store) (tenantUse, error) { return s.counts(ctx, tenant) })
	line := []any{home.now(), quotaKept.Microseconds()}
	for n, c := range all {
		adding := slices.Contains(to, f.shards[n])
		switch {
		case errs[n] == nil && adding:
			line = append(line, n, tenantUse{c.groups + adds.groups, c.open + adds.open}.record())
		case errs[n] == nil:
			line = append(line, n, c.record())
		case adding:
			return nil, errs[n]
		}
	}
	call, cancel := context.WithTimeout(ctx, home.o.Timeout)
	defer cancel()
	r, err := home.scripts.Run(call, "quota_count", []string{quotaKey(home.o.Prefix, home.o.Shard, tenant)}, line...)
	if err != nil {
		return nil, shardError(home.o.Shard, err)
	}
	for n := range all {
		if errs[n] == nil {
			continue
		}
		known := false
		for i := 0; i+1 < len(r); i += 2 {
			if reply(r).string(i) == strconv.Itoa(n) {
				all[n], known = parseUse(reply(r).string(i+1)), true
			}
		}
		if !known {
			return nil, fmt.Errorf("what it has of the tenant was never recorded: %w", errs[n])
		}
	}
	return all, nil
}

// record returns the text of a use in the store: groups and unfinished jobs.
func (t tenantUse) record() string {
	return strconv.FormatInt(t.groups, 10) + " " + strconv.FormatInt(t.open, 10)
}

func parseUse(text string) tenantUse {
	groups, open, _ := strings.Cut(text, " ")
	return tenantUse{groups: asInt(groups), open: asInt(open)}
}

// counts returns a tenant's use of this shard.
func (s rateStore) counts(ctx context.Context, tenant string) (tenantUse, error) {
	r, err := s.run(ctx, "tenant_read", tenant)
	if err != nil {
		return tenantUse{}, err
	}
	t := list(r.at(0)) // empty without the tenant
	return tenantUse{groups: t.int(2) - t.int(19), open: t.int(6)}, nil
}

// The following methods call that of Store with the same name, on the shard of the group.

// Group returns one group.
func (f fleetGroups) Group(ctx context.Context, group string) (Group, error) {
	return on(ctx, f.allShards, group, func(s *Store) (Group, error) {
		g, err := s.Group(ctx, group)
		if err != nil {
			return g, err
		}
		return f.merged(ctx, s, g)
	})
}

// TenantOf returns the tenant of a group.
func (f fleetGroups) TenantOf(ctx context.Context, group string) (string, error) {
	return on(ctx, f.allShards, group, func(s *Store) (string, error) { return s.TenantOf(ctx, group) })
}

// Seal ends the submission of jobs.
func (f fleetGroups) Seal(ctx context.Context, group string) (Group, error) {
	return f.sealParts(ctx, group, false)
}

// SealAbandoning is Seal for a group with incomplete chunks.
func (f fleetGroups) SealAbandoning(ctx context.Context, group string) (Group, error) {
	return f.sealParts(ctx, group, true)
}

// Patch changes a group's live fields.
func (f fleetGroups) Patch(ctx context.Context, group string, p Patch) (Group, error) {
	return f.patchParts(ctx, group, p)
}

// Cancel ends a group.
func (f fleetGroups) Cancel(ctx context.Context, group string) (Group, error) {
	return f.changeParts(ctx, group, func(_ int, s *Store) (Group, error) { return s.Cancel(ctx, group) })
}

// Release lifts the delays that a group's downstream asked for.
func (f fleetGroups) Release(ctx context.Context, group string) (g Group, jobs int64, err error) {
	var moved atomic.Int64
	g, err = f.changeParts(ctx, group, func(_ int, s *Store) (Group, error) {
		g, n, err := s.Release(ctx, group)
		moved.Add(n)
		return g, err
	})
	return g, moved.Load(), err
}

// Delete deletes an ended group.
func (f fleetGroups) Delete(ctx context.Context, group string, patience time.Duration) (gone bool, err error) {
	p, err := f.parts(ctx, group)
	if err != nil {
		return false, err
	}
	if len(p) > 1 {
		return f.deleteParts(ctx, p, group, patience)
	}
	return f.deleteWhole(ctx, p[0], group, patience)
}

// RedriveJobs creates a redrive of a group, on its shard.
func (f fleetJobs) RedriveJobs(ctx context.Context, group string, o RedriveOptions) (g Group, err error) {
	p, err := f.parts(ctx, group)
	if err != nil {
		return Group{}, err
	}
	if len(p) > 1 {
		return f.redriveParts(ctx, p, group, o)
	}
	err = f.redriving(ctx, group, o.MaxGroups, func(ctx context.Context, s *Store, left int64) (err error) {
		o.MaxGroups = left
		g, err = s.RedriveJobs(ctx, group, o)
		return err
	})
	return g, err
}

// RetryJob starts a job that waits, or redrives one.
func (f fleetJobs) RetryJob(ctx context.Context, group, job string, maxGroups int64) (as *Group, err error) {
	p, err := f.parts(ctx, group)
	if err != nil {
		return nil, err
	}
	if len(p) > 1 {
		return f.retryInPart(ctx, p, group, job, maxGroups)
	}
	err = f.redriving(ctx, group, maxGroups, func(ctx context.Context, s *Store, left int64) (err error) {
		as, err = s.RetryJob(ctx, group, job, left)
		return err
	})
	return as, err
}

// redriving calls do with the shard of a group and the number of groups that its tenant may have there.
func (f fleetJobs) redriving(ctx context.Context, group string, maxGroups int64, do func(ctx context.Context, s *Store, left int64) error) error {
	s, err := f.shardOf(ctx, group)
	if err != nil {
		return err
	}
	if maxGroups == 0 || len(f.shards) == 1 {
		return do(ctx, s, maxGroups)
	}
	tenant, err := s.TenantOf(ctx, group)
	if err != nil {
		return err
	}
	return f.counting(ctx, tenant, []*Store{s}, tenantUse{groups: 1}, func(ctx context.Context, elsewhere tenantUse) error {
		if maxGroups <= elsewhere.groups {
			return tooManyGroups(&GroupSpec{Tenant: tenant, MaxGroups: maxGroups}, elsewhere.groups)
		}
		return do(ctx, s, maxGroups-elsewhere.groups)
	})
}

// ChunkState returns the state of a chunk.
func (f fleetJobs) ChunkState(ctx context.Context, group, key string) (ChunkState, error) {
	return on(ctx, f.allShards, group, func(s *Store) (ChunkState, error) { return s.ChunkState(ctx, group, key) })
}

// Results returns outcomes of a group.
func (f fleetJobs) Results(ctx context.Context, group, cursor string, limit int) (Page, error) {
	p, err := f.parts(ctx, group)
	if err != nil {
		return Page{}, err
	}
	if len(p) > 1 {
		return p.results(ctx, group, cursor, limit)
	}
	return p[0].Results(ctx, group, cursor, limit)
}

// Dead returns the dead letters of a group.
func (f fleetJobs) Dead(ctx context.Context, group, cursor string, limit int) (Page, error) {
	p, err := f.parts(ctx, group)
	if err != nil {
		return Page{}, err
	}
	if len(p) > 1 {
		return p.dead(ctx, group, cursor, limit)
	}
	return p[0].Dead(ctx, group, cursor, limit)
}

// Job returns one job of a group.
func (f fleetJobs) Job(ctx context.Context, group, job string) (JobState, error) {
	return onJob(ctx, f.allShards, group, job, func(s *Store) (JobState, error) { return s.Job(ctx, group, job) })
}

// CancelJob cancels one job of a group.
func (f fleetJobs) CancelJob(ctx context.Context, group, job string) (running bool, err error) {
	return onJob(ctx, f.allShards, group, job, func(s *Store) (bool, error) { return s.CancelJob(ctx, group, job) })
}

// Groups lists the groups of all shards, newest first, as Store.Groups does.
func (f fleetGroups) Groups(ctx context.Context, filter Filter) (groups []Group, next string, away Away, err error) {
	if len(f.shards) == 1 {
		groups, next, err = f.shards[0].Groups(ctx, filter)
		return groups, next, nil, err
	}
	filter.split = true
	number, text, _ := strings.Cut(filter.Cursor, ".")
	from, bad := strconv.Atoi(number)
	if filter.Cursor != "" && (bad != nil || from < 0 || from >= len(f.shards) || text == "") {
		return nil, "", nil, refuse(CodeInvalid, "cursor %q: use next of the previous page", filter.Cursor)
	}
	place, err := decodePlace(text, filter.Cursor)
	if err != nil {
		return nil, "", nil, err
	}
	all, away, err := read(ctx, f.allShards, func(ctx context.Context, s *Store) (list []shardGroup, err error) {
		found, end, err := s.listed(ctx, filter, placeBefore(place, from, s.o.Shard))
		for _, g := range found {
			list = append(list, shardGroup{g, s.o.Shard})
		}
		if end != "" { // groups after it are unknown: the page ends there
			list = append(list, shardGroup{listedGroup{place: end}, s.o.Shard})
		}
		return list, err
	})
	if err != nil {
		return nil, "", nil, err
	}
	list := slices.Concat(all...)
	slices.SortFunc(list, byPlace)
	for _, g := range list {
		if ends := g.ID == ""; !ends {
			groups = append(groups, g.Group)
		}
		if g.ID == "" || len(groups) == filter.limit() {
			next = strconv.Itoa(g.shard) + "." + encodePlace(g.place)
			break
		}
	}
	if groups, err = f.mergeListed(ctx, groups, filter.Status); err != nil {
		return nil, "", nil, err
	}
	return groups, next, away, nil
}

// shardGroup is a group of a shard in a list, or, without an ID, the place up to which the groups of the shard are known.
type shardGroup struct {
	listedGroup
	shard int
}

// byPlace orders by time, then shard, then short name: placeBefore continues in this order. A group comes before the end at its place,
// because a page after that end would not have it.
func byPlace(a, b shardGroup) int {
	return cmp.Or(cmp.Compare(b.place[:timeBytes], a.place[:timeBytes]), cmp.Compare(a.shard, b.shard), cmp.Compare(b.place, a.place),
		cmp.Compare(min(1, len(b.ID)), min(1, len(a.ID))))
}

// placeBefore returns where the list of a shard goes on after a place of the shard from.
func placeBefore(place string, from, shard int) string {
	switch {
	case place == "" || shard == from:
		return place
	case shard < from:
		return place[:timeBytes] // its groups of that microsecond were listed
	}
	return place[:timeBytes] + "\xff" // none of them was
}

package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// parts has the shards of the parts of a group; of a whole group, its shard alone.
type parts []*Store

// of returns the part that has a job.
func (p parts) of(job string) *Store { return p[partOf(job, len(p))] }

// parts returns the shards of a group. Those of a group that does not exist are the one for a new group.
func (f *allShards) parts(ctx context.Context, group string) (parts, error) {
	s, err := f.shardOf(ctx, group)
	if err != nil || len(f.shards) == 1 {
		return parts{s}, err
	}
	spec, err := s.specOf(ctx, group)
	if isCode(err, CodeNotFound) {
		return parts{s}, nil
	}
	if err != nil {
		return nil, err
	}
	return f.partsOf(s, spec)
}

// partsOf returns the shards of a group whose first part is on s.
func (f *allShards) partsOf(s *Store, g *GroupSpec) (parts, error) {
	shards, err := g.shardsOf()
	if err != nil || len(shards) == 0 {
		return parts{s}, err
	}
	all := make(parts, len(shards))
	for i, n := range shards {
		if n >= len(f.shards) {
			return nil, fmt.Errorf("%w: shard %d was added; restart this process with shards: %d", ErrStore, n, n+1)
		}
		all[i] = f.shards[n]
	}
	return all, nil
}

// specOf returns the spec of a group, with two commands and no script.
func (s *shard) specOf(ctx context.Context, group string) (*GroupSpec, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	short, err := groupStore{s}.short(ctx, group)
	if err != nil {
		return nil, err
	}
	text, err := s.o.Client.HGet(ctx, s.keys[keyGroups], short).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, groupRefusal("not_found", group, nil)
	}
	spec := &GroupSpec{}
	if err == nil {
		err = json.Unmarshal(text, spec)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	return spec, nil
}

// all calls do for all parts at once.
func (p parts) all(do func(i int, s *Store) error) (errs []error) {
	errs = make([]error, len(p))
	var wg sync.WaitGroup
	for i, s := range p {
		wg.Go(func() {
			if errs[i] = do(i, s); len(p) > 1 {
				errs[i] = shardError(s.o.Shard, errs[i])
			}
		})
	}
	wg.Wait()
	return errs
}

// others calls do for all parts but the first, at once.
func (p parts) others(do func(i int, s *Store) error) []error {
	return p.all(func(i int, s *Store) error {
		if i == 0 {
			return nil
		}
		return do(i, s)
	})
}

// lostPart is the refusal of jobs of a part that a shard has lost.
func lostPart(group string, shard int) error {
	return refuse(CodeNotFound, "group %q: the part with this job was on shard %d, which has lost its data; the other parts go on, and the group ends as FAILED", group, shard)
}

// onJob calls do with the shard that has a job of a group.
func onJob[T any](ctx context.Context, f *allShards, group, job string, do func(s *Store) (T, error)) (v T, err error) {
	p, err := f.parts(ctx, group)
	if err != nil {
		return v, err
	}
	s := p.of(job)
	v, err = do(s)
	if len(p) > 1 && s != p[0] && isCode(err, CodeNotFound) {
		if _, gone := s.short(ctx, group); isCode(gone, CodeNotFound) {
			err = lostPart(group, s.o.Shard)
		}
	}
	return v, err
}

// createParts creates a split group: the other parts first, so that a part that is missing later was lost. It does so under a lock,
// so that two specs of one id do not mix.
func (f fleetGroups) createParts(ctx context.Context, s *Store, g GroupSpec) (group Group, created bool, err error) {
	what := fmt.Sprintf("the parts of group %q", g.ID)
	var others parts // that were created
	err = f.locked(ctx, "group/"+g.ID, what, func(ctx context.Context) error {
		there, err := s.specOf(ctx, g.ID)
		switch {
		case err == nil:
			g.Parts = cmp.Or(there.Parts, g.Parts) // of an earlier placement
		case !isCode(err, CodeNotFound):
			return err
		}
		if g.Parts == "" { // else it exists, or is a redrive, on the shards of its source
			if err := f.choose(ctx, s, &g); err != nil {
				return err
			}
		}
		if there == nil {
			p, err := f.partsOf(s, &g)
			if err != nil {
				return err
			}
			if err := f.freeParts(ctx, p, &g); err != nil {
				return err
			}
			errs := p.others(func(i int, s *Store) error {
				part, _, err := s.CreateGroup(ctx, g.ofPart(i))
				refusal, refused := errors.AsType[*Refusal](err)
				if err == nil && part.Status.Ended() || refused && refusal.Code == CodeExists && !refusal.Deleting {
					err = refuse(CodeExists, "id %q: shard %d has a part of an earlier group with this id, whose first part was lost or refused; choose a new id", g.ID, s.o.Shard)
				}
				return err
			})
			if err := errors.Join(errs...); err != nil {
				return firstRefusal(errs, err)
			}
			others = p
		}
		group, created, err = f.createCounted(ctx, s, g.ofPart(0))
		if _, refused := errors.AsType[*Refusal](err); others != nil && (refused || group.Duplicate) {
			f.discard(ctx, others, g.ID) // under the lock, so that the parts are not those of a request that follows
		}
		return err
	})
	if created && g.After != "" && !group.waits {
		others.others(func(_ int, s *Store) error { return s.begin(ctx, g.ID) }) // or else their housekeeping does so
	}
	if err == nil && !created {
		group, err = f.merged(ctx, s, group)
	}
	return group, created, err
}

// discard deletes the other parts of a group whose first part was refused. A part that it cannot delete holds the id until its retention.
func (f fleetGroups) discard(ctx context.Context, p parts, group string) {
	errs := p.others(func(_ int, s *Store) error { return s.discard(ctx, group) })
	if err := errors.Join(errs...); err != nil {
		p[0].o.Log.Debug("parts of a group whose first part was refused stay until their retention", "group", group, "error", err)
	}
}

// discard cancels and deletes a part.
func (s partStore) discard(ctx context.Context, group string) error {
	_, err := s.Cancel(ctx, group)
	if err == nil {
		_, err = s.Tend(ctx, group)
	}
	if err == nil {
		_, _, err = s.join(ctx, group, 0, Cancelled, "", nil)
	}
	if err == nil || isCode(err, CodeState) { // it has ended
		_, err = s.Delete(ctx, group, 100*time.Millisecond)
	}
	return err
}

// freeParts deletes the parts of an earlier group with the id of a new one, if they have no job: their process was killed after their first
// part was refused, or that one was lost. Parts of the same group stay.
func (f fleetGroups) freeParts(ctx context.Context, p parts, g *GroupSpec) error {
	var mu sync.Mutex
	var earlier []*Store
	errs := p.others(func(i int, s *Store) error {
		spec, err := s.specOf(ctx, g.ID)
		var part Group
		if err == nil {
			part, err = s.Group(ctx, g.ID)
		}
		switch {
		case isCode(err, CodeNotFound):
			return nil
		case err != nil:
			return err
		case !part.Status.Ended() && spec.same(g.ofPart(i)):
			return nil // its process was killed before it created the rest
		case part.Total > 0:
			return refuse(CodeExists, "id %q: shard %d has jobs of an earlier group with this id, whose first part was lost; choose a new id", g.ID, s.o.Shard)
		}
		mu.Lock()
		defer mu.Unlock()
		earlier = append(earlier, s)
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		return firstRefusal(errs, err)
	}
	for _, s := range earlier {
		if err := s.discard(ctx, g.ID); err != nil && !isCode(err, CodeNotFound) {
			return err
		}
	}
	return nil
}

// splitExpected splits a new group of which many jobs are expected. A group that exists stays as it is, so that its creation can be
// repeated after shards were added.
func (f fleetGroups) splitExpected(ctx context.Context, s *Store, g *GroupSpec) error {
	if g.Split > 0 || g.ExpectedJobs <= splitAbove {
		return nil
	}
	there, err := s.specOf(ctx, g.ID)
	if err == nil {
		g.Split = there.Split
		return nil
	}
	if !isCode(err, CodeNotFound) {
		return err
	}
	if g.After != "" && f.allChain(ctx, s, &GroupSpec{Split: 2}) != nil {
		return nil // as long as a process of an earlier version works on a shard
	}
	p, err := f.placements(ctx)
	if err != nil {
		return err
	}
	g.Split = g.splitFor(len(p.open()))
	return nil
}

// firstRefusal returns the first refusal among errors, err if there is none.
func firstRefusal(errs []error, err error) error {
	for _, one := range errs {
		if _, refused := errors.AsType[*Refusal](one); refused {
			return one
		}
	}
	return err
}

// CheckSplit returns the refusal of a group with so many parts, if there are fewer shards for them.
func (f *allShards) CheckSplit(ctx context.Context, parts int) error {
	if parts < 2 {
		return nil
	}
	if len(f.shards) == 1 {
		return refuse(CodeInvalid, "split %d: the installation has one shard; leave split out, or set shards (docs/bulk-operations.md)", parts)
	}
	p, err := f.placements(ctx)
	if err != nil {
		return err
	}
	return checkOpen(parts, p.open())
}

// checkOpen returns the refusal of a group with more parts than shards are open.
func checkOpen(parts int, open []int) error {
	if parts <= len(open) {
		return nil
	}
	if len(open) == 1 {
		return refuse(CodeInvalid, "split %d: one shard is open for new groups; leave split out, or add or open shards (docs/bulk-operations.md)", parts)
	}
	return refuse(CodeInvalid, "split %d: %d shards are open for new groups; use 1 to %d, or add or open shards (docs/bulk-operations.md)", parts, len(open), len(open))
}

// choose sets the shards of a new split group: its home, and others that are open for new groups.
func (f *allShards) choose(ctx context.Context, s *Store, g *GroupSpec) error {
	p, err := f.placements(ctx)
	if err != nil {
		return err
	}
	open, key := slices.Clone(p.open()), homeKey(g.ID)
	if err := checkOpen(g.Split, open); err != nil {
		return err
	}
	slices.SortFunc(open, func(a, b int) int { return cmp.Compare(rendezvous(key, b), rendezvous(key, a)) })
	all := []string{strconv.Itoa(s.o.Shard)}
	for _, n := range open {
		if n != s.o.Shard && len(all) < g.Split {
			all = append(all, strconv.Itoa(n))
		}
	}
	if len(all) < g.Split {
		return refuse(CodeInvalid, "split %d: %d shards are open for new groups", g.Split, len(open))
	}
	g.Parts = strings.Join(all, " ")
	return nil
}

// changeParts changes the first part of a group, and then the others. If the shard of one is away, the error says so, and Join, or
// the same call again, completes the change.
func (f fleetSplits) changeParts(ctx context.Context, group string, change func(i int, s *Store) (Group, error)) (Group, error) {
	p, err := f.parts(ctx, group)
	if err != nil {
		return Group{}, err
	}
	g, err := change(0, p[0])
	if err != nil || len(p) == 1 {
		return g, err
	}
	errs := p.others(func(i int, s *Store) error {
		_, err := change(i, s)
		if isCode(err, CodeNotFound) || isCode(err, CodeState) {
			return nil // it was lost, or has ended since
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return Group{}, fmt.Errorf("the other parts of group %q have the change, and this one follows when its shard is back: %w", group, err)
	}
	return f.merged(ctx, p[0], g)
}

// sealParts seals a group: its first part decides. Incomplete chunks of any part are an error, unless they are abandoned.
func (f fleetSplits) sealParts(ctx context.Context, group string, abandon bool) (Group, error) {
	p, err := f.parts(ctx, group)
	if err != nil {
		return Group{}, err
	}
	seal := func(s *Store, abandon bool) (Group, error) {
		if abandon {
			return s.SealAbandoning(ctx, group)
		}
		return s.Seal(ctx, group)
	}
	if len(p) > 1 && !abandon {
		open := make([]int64, len(p))
		errs := p.all(func(i int, s *Store) (err error) {
			open[i], err = s.chunksOpen(ctx, group)
			if i > 0 && isCode(err, CodeNotFound) {
				err = nil
			}
			return err
		})
		if err := errors.Join(errs...); err != nil {
			return Group{}, firstRefusal(errs, err)
		}
		if most := slices.Max(open); most > 0 {
			if g, err := p[0].Group(ctx, group); err == nil && !g.Sealed {
				return Group{}, groupRefusal("chunk_open", group, reply{"chunk_open", most})
			}
		}
	}
	if err := f.callBack(ctx, p, group); err != nil {
		return Group{}, err
	}
	// From the first step on the group is sealed: a chunk that begins in another part meanwhile stays incomplete.
	return f.changeParts(ctx, group, func(i int, s *Store) (Group, error) { return seal(s, abandon || i > 0) })
}

// callBack gives a redrive that has jobs its callback, before it is sealed.
func (f fleetSplits) callBack(ctx context.Context, p parts, group string) error {
	if len(p) < 2 {
		return nil
	}
	first, err := p[0].one(ctx, group)
	if err != nil || first == nil || !first.waitsForJobs() || first.CallbackURL == "" || first.Sealed {
		return err
	}
	g, err := f.merged(ctx, p[0], first.Group)
	if err != nil || g.Total == 0 {
		return err
	}
	_, err = p[0].change(ctx, group, "group_patch", group, 0, "callback", 1)
	return err
}

// chunksOpen returns how many chunks of a group are incomplete in this shard.
func (s partStore) chunksOpen(ctx context.Context, group string) (int64, error) {
	r, err := s.run(ctx, "group_read", "id", group)
	if err != nil {
		return 0, err
	}
	line := list(r.at(0))
	if len(line) == 0 {
		return 0, groupRefusal("not_found", group, nil)
	}
	for i := 1; i+1 < len(line); i += 2 {
		if line.string(i) == "chunks_open" {
			return line.int(i + 1), nil
		}
	}
	return 0, nil
}

// deleteParts deletes a group: the other parts first, so that the same call completes a deletion that was interrupted.
func (f fleetSplits) deleteParts(ctx context.Context, p parts, group string, patience time.Duration) (gone bool, err error) {
	if err := p[0].markDeleted(ctx, group, true); err != nil {
		return false, err
	}
	all := make([]bool, len(p))
	errs := p.others(func(i int, s *Store) error {
		gone, err := s.Delete(ctx, group, patience)
		all[i] = gone || isCode(err, CodeNotFound)
		if isCode(err, CodeNotFound) {
			return nil
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return false, firstRefusal(errs, err)
	}
	all[0], err = f.deleteWhole(ctx, p[0], group, patience)
	return !slices.Contains(all, false), err
}

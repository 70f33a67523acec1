package store

import (
	"context"
	"fmt"
	"slices"
)

// Audit checks every invariant in all shards, and that each group is on a shard that its id leads to, and each part where its group has it.
func (f fleetViews) Audit(ctx context.Context) ([]Violation, error) {
	if err := f.Check(ctx); err != nil {
		return nil, err
	}
	if len(f.shards) == 1 {
		return f.shards[0].Audit(ctx)
	}
	placed, err := f.placements(ctx)
	if err != nil {
		return nil, err
	}
	var all []Violation
	for n, s := range f.shards {
		broken, err := s.Audit(ctx)
		if err != nil {
			return nil, shardError(n, err)
		}
		for _, v := range broken {
			v.What = fmt.Sprintf("shard %d: %s", n, v.What)
			all = append(all, v)
		}
		ids, err := s.fields(ctx, keyNames_)
		if err != nil {
			return nil, shardError(n, err)
		}
		for _, id := range ids {
			spec, err := s.specOf(ctx, id)
			if isCode(err, CodeNotFound) {
				continue // deleted since
			}
			if err != nil {
				return nil, shardError(n, err)
			}
			if spec.Split > 1 && spec.Part > 0 {
				if shards, err := spec.shardsOf(); err != nil || spec.Part >= len(shards) || shards[spec.Part] != n {
					all = append(all, Violation{Invariant: "home", What: fmt.Sprintf("shard %d has part %d of group %s, whose parts are on %q", n, spec.Part, id, spec.Parts)})
				}
				continue
			}
			if homes := placed.homes(id, placed.clock()); !slices.Contains(homes, n) {
				all = append(all, Violation{Invariant: "home", What: fmt.Sprintf("shard %d has group %s, whose id leads to shards %v", n, id, homes)})
			}
		}
	}
	return all, nil
}

// Repair restores what Store.Repair restores, in all shards.
func (f fleetViews) Repair(ctx context.Context) ([]Repaired, error) {
	if err := f.Check(ctx); err != nil {
		return nil, err
	}
	var all []Repaired
	for n, s := range f.shards {
		mended, err := s.Repair(ctx)
		for _, r := range mended {
			if len(f.shards) > 1 {
				r.Name = fmt.Sprintf("%s of shard %d", r.Name, n)
			}
			all = append(all, r)
		}
		if err != nil {
			return all, shardError(n, err)
		}
	}
	return all, nil
}

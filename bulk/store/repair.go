package store

import (
	"context"
	"slices"
)

// repairBatch is how many records one call of queue_repair checks.
const repairBatch = 100

// Repaired is an entry that Repair restored.
type Repaired struct {
	Kind string // group, tenant; line, flow: an orphaned place in the fair queue
	Name string
	What string // gate, queue, turn, line, busy, agenda or list
}

// Repair restores wake times, places in the fair queue and in the lists, and housekeeping times that contradict the
// records of groups and tenants. It changes neither jobs nor their counts. Each check and its repair are one step,
// and it may run while the engine runs. It returns what it restored.
func (s upkeepStore) Repair(ctx context.Context) ([]Repaired, error) {
	groups, err := s.groupKeys(ctx)
	if err != nil {
		return nil, err
	}
	tenants, err := s.tenantNames(ctx)
	if err != nil {
		return nil, err
	}
	var out []Repaired
	lines, err := s.members(ctx, keyLines)
	if err != nil {
		return nil, err
	}
	flows, err := s.members(ctx, keyHigh, keyNormal, keyLow)
	if err != nil {
		return nil, err
	}
	// Groups first: the number of a tenant's queued groups depends on them.
	for _, list := range []struct {
		kind  string
		names []string
	}{{"group", groups}, {"line", lines}, {"flow", flows}, {"tenant", tenants}} {
		mended, err := s.repair(ctx, list.kind, list.names)
		if out = append(out, mended...); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (s *shard) repair(ctx context.Context, kind string, names []string) (out []Repaired, err error) {
	for part := range slices.Chunk(names, repairBatch) {
		args := []any{kind}
		for _, name := range part {
			args = append(args, name)
		}
		r, err := s.run(ctx, "queue_repair", args...)
		if err != nil {
			return out, err
		}
		for i := 0; i+1 < len(r); i += 2 {
			out = append(out, Repaired{Kind: kind, Name: r.string(i), What: r.string(i + 1)})
		}
	}
	return out, nil
}

// groupKeys returns the short names of all groups, sorted.
func (s *shard) groupKeys(ctx context.Context) ([]string, error) { return s.fields(ctx, keyFlow) }

// fields returns the fields of a hash, sorted.
func (s *shard) fields(ctx context.Context, key int) (names []string, err error) {
	err = scan(ctx, func(cursor uint64) ([]string, uint64, error) {
		return s.o.Client.HScan(ctx, s.keys[key], cursor, "", scanStep).Result()
	}, func(name, _ string) { names = append(names, name) })
	slices.Sort(names)
	return slices.Compact(names), err
}

// members returns the members of sorted sets.
func (s *shard) members(ctx context.Context, keys ...int) (all []string, err error) {
	for _, key := range keys {
		err := scan(ctx, func(cursor uint64) ([]string, uint64, error) {
			return s.o.Client.ZScan(ctx, s.keys[key], cursor, "", scanStep).Result()
		}, func(member, _ string) { all = append(all, member) })
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

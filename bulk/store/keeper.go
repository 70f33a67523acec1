package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// keeperFor is how long a process stays the keeper without calling Keep: less than a third of a lease, so that
// another takes over before the silence counts as an outage of the store.
func (s processStore) keeperFor() time.Duration { return min(time.Second, s.conf.Load().Lease/6) }

// KeepEvery returns how often to call Keep.
func (s processStore) KeepEvery() time.Duration { return s.keeperFor() / 3 }

// Kept is the result of Keep.
type Kept struct {
	// Keeper reports whether the caller is the process that returns due jobs to their groups and does the
	// housekeeping for all. For a moment two processes may be the keeper; its work is safe in any number of processes.
	Keeper    bool
	Processes int      // that call Keep
	Groups    []string // offered by others, and now the caller's
}

// Keep counts this process among those of the store. It becomes the keeper when the last one has been silent for a
// second. status is shown by Processes; groups offered for needs are taken.
func (s processStore) Keep(ctx context.Context, status ProcessStatus, needs ...string) (Kept, error) {
	s.rounds.alive(s.clock())
	if err := s.Prepare(ctx); err != nil {
		s.rounds.ended(err)
		return Kept{}, err
	}
	text, err := json.Marshal(status)
	if err != nil {
		return Kept{}, fmt.Errorf("cannot encode the status of this process: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	args := []any{s.now(), s.o.Process, s.keeperFor().Microseconds(), text}
	for _, need := range needs {
		args = append(args, need)
	}
	res, err := s.scripts.Run(ctx, "queue_keep", append(keeperKeys(s.o.Prefix, s.o.Shard), offerKeys(s.o.Prefix, s.o.Shard)...), args...)
	if err != nil {
		s.rounds.ended(err)
		return Kept{}, err
	}
	r := reply(res)
	k := Kept{Keeper: r.int(0) == 1, Processes: int(r.int(1))}
	s.follows.Store(!k.Keeper)
	for i := 2; i < len(r); i++ {
		k.Groups = append(k.Groups, r.string(i))
	}
	return k, nil
}

// Process returns the name of this process.
func (s processStore) Process() string { return s.o.Process }

// Peers returns the names of the processes that call Keep, this one included once it does.
func (s processStore) Peers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	names, err := s.o.Client.ZRange(ctx, keeperKeys(s.o.Prefix, s.o.Shard)[1], 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	return names, nil
}

// offerFor is how long a group stays on offer after the last Offer: longer than the agenda takes to name a group
// again.
const offerFor = 15 * time.Second

// Offer offers a group for a while to processes that can serve a need; the next of them that calls Keep takes it.
// waits reports that the group was on offer already, so that no process has taken it.
func (s processStore) Offer(ctx context.Context, group, need string) (waits bool, err error) {
	if err := s.Prepare(ctx); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	res, err := s.scripts.Run(ctx, "queue_offer", offerKeys(s.o.Prefix, s.o.Shard), s.now(), need, group, offerFor.Microseconds())
	if err != nil {
		return false, err
	}
	return res.Int(0) == 1, nil
}

// Unkeep removes this process, so that another becomes the keeper immediately.
func (s processStore) Unkeep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	keys, pipe := keeperKeys(s.o.Prefix, s.o.Shard), s.o.Client.Pipeline()
	pipe.ZRem(ctx, keys[1], s.o.Process)
	pipe.HDel(ctx, keys[2], s.o.Process)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%w: keeper: %w", ErrStore, err)
	}
	return nil
}

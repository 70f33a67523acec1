package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// keeperFor is for how long a process stays the keeper without a word: less than a third of a lease, so that another takes over before
// the silence counts as one of the store.
func (s *Store) keeperFor() time.Duration { return min(time.Second, s.conf.Load().Lease/6) }

// KeepEvery is how often Keep is to be called.
func (s *Store) KeepEvery() time.Duration { return s.keeperFor() / 3 }

// Keep reports whether this process is the keeper: the one that returns due jobs to their groups and does the housekeeping for all
// processes of the store; and how many processes call Keep. It becomes the keeper where the last one has been silent for a second. Two
// may think so for a moment; what they do is safe by any number of processes. status is what Processes tells of this one.
func (s *Store) Keep(ctx context.Context, status ProcessStatus) (keeper bool, processes int, err error) {
	s.rounds.alive(s.clock())
	if err := s.Prepare(ctx); err != nil {
		s.rounds.ended(err)
		return false, 0, err
	}
	text, err := json.Marshal(status)
	if err != nil {
		return false, 0, fmt.Errorf("status of this process: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	res, err := s.runner.Run(ctx, s.scripts.Script("queue_keep"), keeperKeys(s.o.Prefix), s.now(), s.o.Process, s.keeperFor().Microseconds(), text)
	if err != nil {
		s.rounds.ended(err)
		return false, 0, fmt.Errorf("%w: %w", ErrStore, err)
	}
	r := list(res)
	return asInt(r.at(0)) == 1, int(asInt(r.at(1))), nil
}

// Unkeep says that this process ends: another is the keeper at once.
func (s *Store) Unkeep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	keys, pipe := keeperKeys(s.o.Prefix), s.o.Client.Pipeline()
	pipe.ZRem(ctx, keys[1], s.o.Process)
	pipe.HDel(ctx, keys[2], s.o.Process)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%w: keeper: %w", ErrStore, err)
	}
	return nil
}

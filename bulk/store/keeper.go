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

// Kept is the answer to Keep.
type Kept struct {
	// Keeper reports whether the caller is the process that returns due jobs to their groups and does the housekeeping for all
	// processes of the store. Two may think so for a moment; what they do is safe by any number of processes.
	Keeper    bool
	Processes int      // that call Keep
	Groups    []string // that others have offered and that are the caller's now
}

// Keep counts this process among those of the store. It becomes the keeper where the last one has been silent for a second. status is
// what Processes tells of this one; needs are those that it meets: it takes groups that were offered for them.
func (s *Store) Keep(ctx context.Context, status ProcessStatus, needs ...string) (Kept, error) {
	s.rounds.alive(s.clock())
	if err := s.Prepare(ctx); err != nil {
		s.rounds.ended(err)
		return Kept{}, err
	}
	text, err := json.Marshal(status)
	if err != nil {
		return Kept{}, fmt.Errorf("status of this process: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	args := []any{s.now(), s.o.Process, s.keeperFor().Microseconds(), text}
	for _, need := range needs {
		args = append(args, need)
	}
	res, err := s.scripts.Run(ctx, "queue_keep", append(keeperKeys(s.o.Prefix), offerKeys(s.o.Prefix)...), args...)
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

// offerFor is for how long a group stays on offer after the last Offer: longer than the agenda takes to name a group again.
const offerFor = 15 * time.Second

// Offer offers a group, for a while, to the processes that meet a need: the next of them that calls Keep gets it. waits reports that
// the group was on offer already, so that no process has taken it since.
func (s *Store) Offer(ctx context.Context, group, need string) (waits bool, err error) {
	if err := s.Prepare(ctx); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	res, err := s.scripts.Run(ctx, "queue_offer", offerKeys(s.o.Prefix), s.now(), need, group, offerFor.Microseconds())
	if err != nil {
		return false, err
	}
	return res.Int(0) == 1, nil
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

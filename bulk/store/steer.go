package store

import (
	"context"
	"fmt"
)

// Steering is the shared state of rate control.
type Steering struct {
	Fence   int64    // of this process as the leader; 0: another process leads
	Found   int64    // the last rate that a leader set, thousandths of a job a second; 0: none yet
	Control string   // the last leader's state, for a new leader
	Pinned  bool     // an operator has set the rate, which overrides Found
	Queued  int64    // groups with jobs to start
	Starts  int64    // jobs started so far
	Now     int64    // of the store's clock, µs
	Reports []string // of all processes that reported recently
}

// Steer is Store.Steer for the rate of all shards: shard 0 has the state of rate control, and the others get the rate that
// was found, of which they have a part while no lease tells otherwise.
func (f *allShards) Steer(ctx context.Context, report string, fence, rate int64, control string) (Steering, error) {
	st, err := f.shards[0].Steer(ctx, report, fence, rate, control)
	if err != nil || len(f.shards) == 1 {
		return st, err
	}
	type use struct{ queued, starts int64 }
	uses, errs := each(ctx, f, func(ctx context.Context, s *Store) (u use, err error) {
		if s == f.shards[0] {
			return use{}, nil
		}
		ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
		defer cancel()
		if rate > 0 && st.Fence == fence {
			if err := s.o.Client.HSet(ctx, s.keys[keyState], "found_global", rate).Err(); err != nil {
				return u, fmt.Errorf("%w: %w", ErrStore, err)
			}
		}
		got, err := s.o.Client.HMGet(ctx, s.keys[keyState], "queued", "starts").Result()
		if err != nil {
			return u, fmt.Errorf("%w: %w", ErrStore, err)
		}
		return use{asInt(got[0]), asInt(got[1])}, nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for n, u := range uses {
		if errs[n] != nil { // the shard is away: its last count stands
			st.Starts += f.started[n]
			continue
		}
		if f.started == nil {
			f.started = map[int]int64{}
		}
		f.started[n] = u.starts
		st.Queued, st.Starts = st.Queued+u.queued, st.Starts+u.starts
	}
	return st, nil
}

// Steer shares a report ("": none) and tries to become or stay the leader; fence is the leader's, 0 for none. The
// leader sets a rate (thousandths, 0: unchanged) and its state.
func (s processStore) Steer(ctx context.Context, report string, fence, rate int64, control string) (Steering, error) {
	if err := s.Prepare(ctx); err != nil {
		return Steering{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	res, err := s.scripts.Run(ctx, "rates_steer", []string{steerKey(s.o.Prefix, s.o.Shard), s.keys[keyState]},
		s.now(), s.o.Process, report, fence, rate, control)
	if err != nil {
		return Steering{}, err
	}
	r := reply(res)
	if len(r) < 7 {
		return Steering{}, fmt.Errorf("unexpected reply of rates_steer: %v", res)
	}
	st := Steering{Fence: r.int(0), Found: r.int(1), Control: r.string(2), Pinned: r.int(3) == 1, Queued: r.int(4), Starts: r.int(5), Now: r.int(6)}
	for i := range r[7:] {
		st.Reports = append(st.Reports, r.string(7+i))
	}
	return st, nil
}

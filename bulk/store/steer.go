package store

import (
	"context"
	"fmt"
)

// Steering is what a process learns about the search for the global rate.
type Steering struct {
	Fence   int64    // that this process leads with; 0: another one does
	Found   int64    // the rate that a leader found last, thousandths of a job a second; 0: none yet
	Control string   // where the last leader stood; for one who has just become it
	Pinned  bool     // operators set the rate, which holds over the one that is found
	Queued  int64    // groups that have jobs to start
	Starts  int64    // jobs that were started so far
	Now     int64    // of the store's clock, µs
	Reports []string // of all processes that were heard lately
}

// Steer tells the others a report ("": none), and tries to become or stay the leader; fence is what it leads with, 0 for none.
// With a rate (thousandths, 0: as it is) the leader sets what it has found, and where it stands.
func (s *Store) Steer(ctx context.Context, report string, fence, rate int64, control string) (Steering, error) {
	if err := s.Prepare(ctx); err != nil {
		return Steering{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	res, err := s.scripts.Run(ctx, "rates_steer", []string{steerKey(s.o.Prefix, 0), s.keys[keyState]},
		s.now(), s.o.Process, report, fence, rate, control)
	if err != nil {
		return Steering{}, err
	}
	r := reply(res)
	if len(r) < 7 {
		return Steering{}, fmt.Errorf("rates_steer answered %v", res)
	}
	st := Steering{Fence: r.int(0), Found: r.int(1), Control: r.string(2), Pinned: r.int(3) == 1, Queued: r.int(4), Starts: r.int(5), Now: r.int(6)}
	for i := range r[7:] {
		st.Reports = append(st.Reports, r.string(7+i))
	}
	return st, nil
}

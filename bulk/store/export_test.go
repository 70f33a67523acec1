package store

import "context"

// Old makes a store count as one that has dispatched for a long time.
func (s *Store) Old() { s.rounds.first = 1 }

// Redrive redrives the dead jobs of a group.
func (s jobStore) Redrive(ctx context.Context, group string, rate float64) (Group, error) {
	return s.RedriveJobs(ctx, group, RedriveOptions{Rate: rate})
}

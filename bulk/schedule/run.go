package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// groups is the part of the store in which runs create groups.
type groups interface {
	CreateGroup(ctx context.Context, g store.GroupSpec) (group store.Group, created bool, err error)
	Cancel(ctx context.Context, group string) (store.Group, error)
	Group(ctx context.Context, group string) (store.Group, error)
}

// jobs is the part of the store in which runs add the jobs of their groups.
type jobs interface {
	AddJobs(ctx context.Context, group string, c store.Chunk, jobs []store.Job) (store.Added, error)
	Seal(ctx context.Context, group string) (store.Group, error)
}

// due finds the schedules that are due.
type due interface {
	DueSchedules(ctx context.Context) (now time.Time, due []store.ScheduleRecord, err error)
	WriteSchedule(ctx context.Context, r store.ScheduleRecord, next time.Time) (now store.ScheduleRecord, changed bool, err error)
}

// Runner makes the due runs of schedules.
type Runner struct {
	groups groups
	jobs   jobs
	due    due
}

// NewRunner returns a Runner over a store.
func NewRunner(s interface {
	groups
	jobs
	due
}) *Runner {
	return &Runner{groups: s, jobs: s, due: s}
}

// Round makes the due runs and counts them. Its error joins those of the schedules whose runs failed; these runs are due again
// in the next round. A run that the store refuses counts as failed, and its schedule is due again at its next time.
func (r *Runner) Round(ctx context.Context) (did Counts, err error) {
	now, list, err := r.due.DueSchedules(ctx)
	if err != nil {
		return did, err
	}
	var faults []error
	for _, record := range list {
		s, err := read(record)
		if err == nil {
			err = r.run(ctx, s, now, &did)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("schedule %q: %w", record.ID, err))
		}
	}
	return did, errors.Join(faults...)
}

// run makes the due runs of a schedule, and records them unless another process has.
func (r *Runner) run(ctx context.Context, s *Schedule, now time.Time, did *Counts) error {
	runs, missed, next, err := s.due(now)
	if err != nil {
		return err
	}
	was := s.Counts
	s.Counts.Missed += missed
	for _, at := range runs {
		if err := r.start(ctx, s, at, now); err != nil {
			return err
		}
	}
	s.Next = next
	record, err := s.record()
	if err != nil {
		return err
	}
	_, changed, err := r.due.WriteSchedule(ctx, record, next)
	if err != nil || changed {
		return err
	}
	did.Started += s.Counts.Started - was.Started
	did.Skipped += s.Counts.Skipped - was.Skipped
	did.Missed += s.Counts.Missed - was.Missed
	did.Failed += s.Counts.Failed - was.Failed
	return nil
}

// start makes one run. It completes a run that was begun before.
func (r *Runner) start(ctx context.Context, s *Schedule, at, now time.Time) error {
	spec := s.spec(at)
	if !spec.ExpiresAt.IsZero() && !spec.ExpiresAt.After(now) {
		s.Counts.Missed++ // its jobs could no longer start
		return nil
	}
	running, err := r.running(ctx, s, spec.ID)
	switch {
	case err != nil:
		return err
	case running && s.Overlap == Skip:
		s.Counts.Skipped++
		return nil
	case running && s.Overlap == Queue:
		spec.After, spec.When = s.Last.Group, store.OnEnd
	}
	if err := r.create(ctx, s, spec); err != nil {
		var refusal *store.Refusal
		if !errors.As(err, &refusal) {
			return err // the store is away or full: the next round tries again
		}
		s.Counts.Failed++
		s.Counts.Error = at.Format(time.RFC3339) + ": " + refusal.Detail
		return nil
	}
	s.Counts.Started++
	s.Last = Run{At: at, Group: spec.ID}
	return nil
}

// running reports whether the group of the last run has not ended; false if that is the group of the run that is made now.
func (r *Runner) running(ctx context.Context, s *Schedule, group string) (bool, error) {
	if s.Overlap == Allow || s.Last.Group == "" || s.Last.Group == group {
		return false, nil
	}
	g, err := r.groups.Group(ctx, s.Last.Group)
	if refused(err, store.CodeNotFound) {
		return false, nil
	}
	return err == nil && !g.Status.Ended(), err
}

// create creates the group of a run with its jobs, and seals it. Each step can be repeated.
func (r *Runner) create(ctx context.Context, s *Schedule, spec store.GroupSpec) error {
	_, _, err := r.groups.CreateGroup(ctx, spec)
	if spec.After != "" && refused(err, store.CodeInvalid) {
		if _, gone := r.groups.Group(ctx, spec.After); refused(gone, store.CodeNotFound) { // the run before was deleted just now
			spec.After, spec.When = "", ""
			_, _, err = r.groups.CreateGroup(ctx, spec)
		}
	}
	// The group exists with other content: the run was begun before the template changed, or with another predecessor.
	if err != nil && !refused(err, store.CodeExists) {
		return err
	}
	chunk, jobs := store.Chunk{Key: "schedule", Last: true, Answer: []byte("{}"), MaxPending: s.MaxPending}, s.jobs()
	added, err := r.jobs.AddJobs(ctx, spec.ID, chunk, jobs)
	if err == nil && !added.Done { // a chunk of a split group ends with a call without jobs
		chunk.Offset = int64(len(jobs))
		_, err = r.jobs.AddJobs(ctx, spec.ID, chunk, nil)
	}
	var done *store.ChunkDone
	if err != nil && !errors.As(err, &done) && !refused(err, store.CodeSealed) {
		if refused(err, store.CodeQuota) {
			if _, err := r.groups.Cancel(ctx, spec.ID); err != nil && !refused(err, store.CodeState) {
				return err
			}
		}
		return err
	}
	_, err = r.jobs.Seal(ctx, spec.ID)
	if refused(err, store.CodeState) || refused(err, store.CodeNotFound) {
		return nil // it was cancelled, or deleted, meanwhile
	}
	return err
}

func refused(err error, code store.Code) bool {
	var refusal *store.Refusal
	return errors.As(err, &refusal) && refusal.Code == code
}

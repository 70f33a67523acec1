package store

import (
	"context"
	"fmt"
	"strings"
)

// Job reads one job of a group: where it is, or its outcome.
func (s *Store) Job(ctx context.Context, group, job string) (JobState, error) {
	r, err := s.run(ctx, "job_read", group, job)
	if err != nil {
		return JobState{}, err
	}
	if r.refusal() == "no_job" {
		return JobState{}, refuse(CodeNotFound, "group %q has no job %q (or its retention has passed)", group, job)
	}
	if r.refusal() == "not_kept" {
		return JobState{}, s.notKept(ctx, group, job, r.int(1) == 1)
	}
	if err := groupRefusal(r.refusal(), group, r); err != nil {
		return JobState{}, err
	}
	record := r.string(1)
	var j JobState
	if words := strings.Fields(record); strings.HasPrefix(record, "P") {
		j.Status, j.Attempts = "pending", r.int(5)
		if len(words) > 1 {
			j.Type = strings.TrimPrefix(words[1], "-")
		}
		if len(words) > 2 {
			j.CreatedAt = micros(asInt(words[2]) * 1000)
		}
		switch where := r.string(2); where {
		case "":
		case "running":
			// A fence is the time of its start in µs, or hardly more.
			j.Status, j.Process, j.StartedAt, j.Attempts = where, r.string(6), micros(r.int(4)), j.Attempts+1
		case "waiting":
			j.Status, j.Next = where, micros(r.int(3))
		default:
			j.Status = where
		}
	} else if j.Outcome, err = parseOutcome(job, record); err != nil {
		return JobState{}, fmt.Errorf("group %q: %w", group, err)
	}
	j.ID = job
	if j.Type == "" {
		j.Type = r.string(7)
	}
	return j, nil
}

// notKept returns what is known of a job whose outcome went because of its group's Results; ended says that it was there.
func (s *Store) notKept(ctx context.Context, group, job string, ended bool) error {
	g, err := s.Group(ctx, group)
	if err != nil {
		return err
	}
	if ended {
		return refuse(CodeNotKept, "job %q of group %q has ended, and the group does not keep its outcome (results: %s)", job, group, g.Results)
	}
	return refuse(CodeNotKept, "group %q does not keep the outcomes of all its jobs (results: %s): job %q has ended and its outcome went, or there was none of this id", group, g.Results, job)
}

package store

import (
	"context"
	"fmt"
	"strings"
)

// Job returns one job of a group: its place or its outcome.
func (s jobStore) Job(ctx context.Context, group, job string) (JobState, error) {
	r, err := s.run(ctx, "job_read", group, job)
	if err != nil {
		return JobState{}, err
	}
	if err := s.jobRefusal(ctx, group, job, r); err != nil {
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
		if len(words) > 3 {
			j.ExpiresAt = micros(asInt(words[3]) * 1000)
		}
		switch where := r.string(2); where {
		case "":
		case "running":
			// A fence is at least the time of its start in µs, and hardly more.
			j.Status, j.Process, j.StartedAt, j.Attempts = where, ownerName(r.string(6)), micros(r.int(4)), j.Attempts+1
			j.Cancelling = r.int(8) == 1
		case "waiting":
			j.Status, j.Next = where, micros(r.int(3))
		case "expired":
			j.Status, j.Code = "dead", where
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

// notKept returns the refusal for a job whose outcome was dropped because of its group's Results; ended reports that
// the job existed.
func (s jobStore) notKept(ctx context.Context, group, job string, ended bool) error {
	g, err := s.Group(ctx, group)
	if err != nil {
		return err
	}
	if ended {
		return refuse(CodeNotKept, "job %q of group %q has ended, and the group does not keep its outcome (results: %s)", job, group, g.Results)
	}
	if g.Results == AllResults {
		return refuse(CodeNotKept, "the outcomes of group %q are past retention.jobs: job %q has ended, or no job had this id", group, job)
	}
	return refuse(CodeNotKept, "group %q does not keep the outcomes of all its jobs (results: %s): job %q has ended and its outcome was dropped, or no job had this id", group, g.Results, job)
}

// cancelPages is how many pages of a hundred jobs one step of CancelJob searches.
const cancelPages = 500

// CancelJob cancels one job of a group: immediately if it waits, and when its process learns of it if it runs
// (running is true). Cancelling again is no error; a job that has ended otherwise is refused.
func (s jobStore) CancelJob(ctx context.Context, group, job string) (running bool, err error) {
	// A job that moves during the search is found by the next one.
	for range 5 {
		for from := ""; ; {
			r, err := s.write(ctx, "job_cancel", group, job, from, cancelPages)
			if err == nil {
				err = s.jobRefusal(ctx, group, job, r)
			}
			if err != nil {
				return false, err
			}
			s.concluded(r, 2)
			if code := r.int(0); code != replyNotFound {
				return code == replyRunning, nil
			}
			if from = r.string(1); from == "" {
				break
			}
		}
	}
	return false, refuse(CodeState, "job %q of group %q was moving between two places: repeat the request", job, group)
}

// startNow starts a job that waits, and reports whether it has failed or died instead.
func (s jobStore) startNow(ctx context.Context, group, job string) (ended bool, err error) {
	r, err := s.write(ctx, "job_retry", group, job)
	if err != nil {
		return false, err
	}
	if r.refusal() == "ended" && strings.Contains("FDR", r.string(1)) {
		return true, nil
	}
	return false, s.jobRefusal(ctx, group, job, r)
}

// RetryJob starts a job that waits for a retry or its run_at; as is then nil. A job that has failed or died is redriven, and as
// is its new group.
func (s jobStore) RetryJob(ctx context.Context, group, job string, maxGroups int64) (as *Group, err error) {
	ended, err := s.startNow(ctx, group, job)
	if err != nil || !ended {
		return nil, err
	}
	g, err := s.RedriveJobs(ctx, group, RedriveOptions{Job: job, MaxGroups: maxGroups})
	return &g, err
}

// jobRefusal is groupRefusal for scripts about one job.
func (s jobStore) jobRefusal(ctx context.Context, group, job string, r reply) error {
	switch reason := r.refusal(); reason {
	case "no_job":
		return refuse(CodeNotFound, "group %q has no job %q (or its retention has passed)", group, job)
	case "ended":
		what := map[string]string{"S": "has succeeded", "F": "has failed", "D": "is dead", "R": "is dead, and a redrive has it", "C": "is cancelled"}[r.string(1)]
		return refuse(CodeState, "job %q of group %q %s: this action is no longer possible", job, group, what)
	case "not_kept":
		return s.notKept(ctx, group, job, r.int(1) == 1)
	case "no_delay":
		return refuse(CodeState, "job %q of group %q is %s: it does not wait for a time", job, group, r.string(1))
	default:
		return groupRefusal(reason, group, r)
	}
}

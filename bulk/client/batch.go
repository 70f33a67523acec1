package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
)

// MaxBatch is the most jobs of one AddBatch. The response lists the rejected jobs of as many.
const MaxBatch = 1000

// AddBatch adds up to MaxBatch jobs, each with an ID, in one request. A job that the group has already is a duplicate, in whatever
// batch it was sent, so a batch may be repeated with other jobs in it. AddLines and AddJobs are for jobs without ids and for longer
// uploads. Lines of rejections count the jobs from 1. A *Problem with Accepted > 0 means that the group has some of the jobs.
//
// created is the group's CreatedAt; zero: any. With it, a group that was deleted and created again does not accept the jobs
// (not_found), however late the request arrives.
func (c uploads) AddBatch(ctx context.Context, group string, created time.Time, jobs []Job) (Uploaded, error) {
	if len(jobs) > MaxBatch {
		return Uploaded{}, fmt.Errorf("a batch has at most %d jobs, got %d", MaxBatch, len(jobs))
	}
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	lines.SetEscapeHTML(false)
	for i := range jobs {
		if jobs[i].ID == "" {
			return Uploaded{}, fmt.Errorf("job %d of the batch has no ID; without one a repetition would add the job twice", i+1)
		}
		if err := lines.Encode(&jobs[i]); err != nil {
			return Uploaded{}, fmt.Errorf("job %q: %w", jobs[i].ID, err)
		}
	}
	k := post("v1", "groups", group, "jobs")
	k.body, k.ndjson = body.Bytes(), true
	if !created.IsZero() {
		k.query = url.Values{"created_at": {created.UTC().Format(time.RFC3339Nano)}}
	}
	var answer bulktype.Tally
	if err := c.do(ctx, k, &answer); err != nil {
		return Uploaded{}, err
	}
	return Uploaded{
		Lines: int64(len(jobs)), Bytes: int64(body.Len()), Accepted: answer.Accepted, Duplicates: answer.Duplicates,
		Rejected: max(answer.RejectedTotal, int64(len(answer.Rejected))), Rejections: answer.Rejected,
	}, nil
}

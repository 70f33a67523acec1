package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"
)

// Single is a job that is submitted by itself, without a group. Type and Tenant are required.
type Single struct {
	Job    // without an ID it gets a random one, with an ID it is accepted once in 24 h
	Tenant string
	Level  Level
	Weight float64       // of the group that takes it, as GroupSpec.Weight
	Delay  time.Duration // start after this time, by the store's clock; instead of RunAt
	Unique Unique
	Own    bool // as GroupSpec.Own
	// MaxPending is how many unfinished jobs the tenant may have, this one included; 0: as the settings allow.
	MaxPending int64
	Trace      Trace // of the submission

	group     string // id of the group if one is created; empty: random
	elsewhere int64  // unfinished jobs of the tenant in other shards
}

// Submitted is the result of Submit.
type Submitted struct {
	Group, ID string
	StartAt   time.Time // zero: when limits allow
	// Duplicate is set if the job's ID or Unique key was used before: Group and ID are those of the first job.
	Duplicate bool
}

// SinglesPrefix begins the ids of groups of single jobs.
const SinglesPrefix = "jobs:"

// Submit adds a single job to the group that takes those of its tenant, type and level at this time. Such a group is
// sealed after an hour, or with 100,000 jobs; jobs that are due later share one group a day.
func (s groupStore) Submit(ctx context.Context, in Single) (Submitted, error) {
	own := in.ID != ""
	if !own {
		in.ID = strings.ToLower(rand.Text())
	}
	if err := in.check(); err != nil {
		return Submitted{}, err
	}
	spec := GroupSpec{ID: cmp.Or(in.group, singlesID("")), Tenant: in.Tenant, Type: in.Type, Level: in.Level, Weight: in.Weight, Own: in.Own,
		Tolerance: Tolerance{Share: true, Percent: 100}}
	group, err := createArgs(&spec, s.today())
	if err != nil {
		return Submitted{}, err
	}
	series := fmt.Sprintf("%s/%s/%d/%d/%s", in.Tenant, spec.Level, flag(in.Own), thousandths(spec.Weight), in.Type)
	args := append([]any{
		series, in.MaxPending, in.ID, flag(own), in.Unique.Key, in.Unique.Within.Microseconds(), in.Cost, sinceEpoch(in.RunAt), in.Delay.Microseconds(),
		sinceEpoch(in.ExpiresAt), in.Payload, in.elsewhere, in.Trace.word(),
	}, group...)
	r, err := s.write(ctx, "job_submit", args...)
	if err != nil {
		return Submitted{}, err
	}
	switch r.refusal() {
	case "":
		return Submitted{Group: r.string(1), ID: in.ID, StartAt: micros(r.int(2))}, nil
	case "duplicate":
		return duplicateOf(r.string(1)), nil
	case "past":
		return Submitted{}, refuse(CodeInvalid, "expires_at %s: has passed, or is not later than the job's start; the store's time is %s", in.ExpiresAt.Format(time.RFC3339), micros(r.int(1)).Format(time.RFC3339))
	}
	return Submitted{}, groupRefusal(r.refusal(), in.ID, r)
}

// duplicateOf returns the first job that was submitted under a name.
func duplicateOf(first string) Submitted {
	group, id, _ := strings.Cut(first, " ")
	return Submitted{Group: group, ID: id, Duplicate: true}
}

// singlesID returns an id for a group of single jobs. Groups with the same part are on one shard; without a part, they are
// spread.
func singlesID(part string) string {
	if part != "" {
		part += together
	}
	return SinglesPrefix + part + strings.ToLower(rand.Text())
}

func (in *Single) check() error {
	switch {
	case in.Type == "":
		return refuse(CodeInvalid, "type is missing: a single job has no group whose type it could take")
	case in.Delay < 0 || in.Delay > 0 && !in.RunAt.IsZero():
		return refuse(CodeInvalid, "delay %s: use a positive duration, and no start_at with it", in.Delay)
	}
	if err := in.Job.Validate(); err != nil {
		return err
	}
	return in.Unique.check()
}

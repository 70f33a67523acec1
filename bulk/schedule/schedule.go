package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/anteroom/anteroom/bulk/calendar"
	"github.com/anteroom/anteroom/bulk/store"
)

// Overlap determines what happens when a run is due and the group of the run before has not ended.
type Overlap string

// The overlaps.
const (
	Allow Overlap = "allow" // the new group runs at the same time
	Skip  Overlap = "skip"  // no group is created
	Queue Overlap = "queue" // the new group waits for the end of that group
)

// CatchUp determines which missed runs are made later.
type CatchUp string

// The choices. A run is missed when it is more than a minute late.
const (
	None CatchUp = "none"
	One  CatchUp = "one" // the last one
	All  CatchUp = "all" // the last hundred
)

// Schedule creates groups from a template at the times of a cron expression.
type Schedule struct {
	ID      string
	Tenant  string
	Cron    string
	Zone    string
	Overlap Overlap
	CatchUp CatchUp
	Paused  bool
	// Expire is how long after the time of a run its jobs may start; 0: without end.
	Expire time.Duration
	// Group is the template of the group, without an id; Jobs are its jobs.
	Group      store.GroupSpec
	Jobs       []Job
	MaxGroups  int64 // of the token that created the schedule, as GroupSpec.MaxGroups
	MaxPending int64 // as Chunk.MaxPending
	// Given is the template as the client sent it, for display.
	Given json.RawMessage

	CreatedAt time.Time
	Next      time.Time // zero while paused
	Last      Run
	Counts    Counts

	version int64
}

// Job is a job of the template.
type Job struct {
	ID      string          `json:",omitempty"` // empty: its number, from 1
	Type    string          `json:",omitempty"`
	Payload json.RawMessage `json:""`
	Cost    int64           `json:",omitempty"`
}

// Run is the last run of a schedule that created a group.
type Run struct {
	At    time.Time // planned
	Group string
}

// Counts count the runs of a schedule.
type Counts struct {
	Started int64  // groups created
	Skipped int64  // because of Overlap
	Missed  int64  // too late, and not made because of CatchUp or Expire
	Failed  int64  // refused by the store; Error has the last reason
	Error   string `json:",omitempty"`
}

// Prefix begins the ids of groups that schedules create.
const Prefix = store.RunsPrefix

var idForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// MaxJobs is the most jobs of a template.
const MaxJobs = store.MaxAdd

// Check sets defaults and returns an error that names the field of an invalid value.
func (s *Schedule) Check() error {
	if s.Overlap == "" {
		s.Overlap = Allow
	}
	if s.CatchUp == "" {
		s.CatchUp = None
	}
	if _, err := calendar.ParseCron(s.Cron, s.Zone); err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	spec := s.spec(s.CreatedAt)
	switch {
	case !idForm.MatchString(s.ID):
		return fmt.Errorf("id %q: use 1 to 64 letters, digits and . _ -", s.ID)
	case s.Overlap != Allow && s.Overlap != Skip && s.Overlap != Queue:
		return fmt.Errorf("overlap %q: use allow, skip or queue", s.Overlap)
	case s.CatchUp != None && s.CatchUp != One && s.CatchUp != All:
		return fmt.Errorf("catch_up %q: use none, one or all", s.CatchUp)
	case s.Expire < 0:
		return fmt.Errorf("expires_after %s: use more than 0", s.Expire)
	case len(s.Jobs) == 0 || len(s.Jobs) > MaxJobs:
		return fmt.Errorf("jobs: %d jobs; use 1 to %d", len(s.Jobs), MaxJobs)
	}
	var refusal *store.Refusal
	if err := spec.Validate(); errors.As(err, &refusal) {
		return errors.New(refusal.Detail)
	}
	seen := map[string]bool{}
	for _, j := range s.jobs() {
		if err := j.Validate(); errors.As(err, &refusal) {
			return fmt.Errorf("jobs: %s", refusal.Detail)
		}
		if seen[j.ID] {
			return fmt.Errorf("jobs: id %q is given twice", j.ID)
		}
		seen[j.ID] = true
	}
	return nil
}

// GroupID returns the id of the group of a run.
func GroupID(schedule string, at time.Time) string {
	return Prefix + schedule + ":" + at.UTC().Format("20060102T150405Z")
}

// spec returns the group of a run.
func (s *Schedule) spec(at time.Time) store.GroupSpec {
	g := s.Group
	g.ID, g.Tenant, g.MaxGroups = GroupID(s.ID, at), s.Tenant, s.MaxGroups
	if s.Expire > 0 {
		g.ExpiresAt = at.Add(s.Expire)
	}
	return g
}

func (s *Schedule) jobs() []store.Job {
	list := make([]store.Job, len(s.Jobs))
	for i, j := range s.Jobs {
		list[i] = store.Job{ID: j.ID, Type: j.Type, Payload: j.Payload, Cost: j.Cost}
		if j.ID == "" {
			list[i].ID = fmt.Sprint(i + 1)
		}
	}
	return list
}

// Plan sets Next to the first time of the schedule after a time, to the zero time while the schedule is paused.
func (s *Schedule) Plan(after time.Time) error {
	s.Next = time.Time{}
	if s.Paused {
		return nil
	}
	c, err := calendar.ParseCron(s.Cron, s.Zone)
	if err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	s.Next = c.Next(after)
	return nil
}

// Upcoming returns the next n runs.
func (s *Schedule) Upcoming(n int) []time.Time {
	c, err := calendar.ParseCron(s.Cron, s.Zone)
	if err != nil || s.Next.IsZero() {
		return nil
	}
	list := []time.Time{s.Next}
	for at := s.Next; len(list) < n; {
		if at = c.Next(at); at.IsZero() {
			break
		}
		list = append(list, at)
	}
	return list
}

// onTime is how late a run may be without being missed. Another process becomes the keeper in less time.
const onTime = time.Minute

// most bounds the late runs that All makes.
const most = 100

// due returns the times of the runs to make at now, the earliest first, the number of missed ones, and the next time.
func (s *Schedule) due(now time.Time) (runs []time.Time, missed int64, next time.Time, err error) {
	c, err := calendar.ParseCron(s.Cron, s.Zone)
	if err != nil {
		return nil, 0, time.Time{}, err //nolint:wrapcheck // it names the field
	}
	keep := map[CatchUp]int{None: 1, One: 1, All: most}[s.CatchUp]
	for next = s.Next; !next.IsZero() && !next.After(now); next = c.Next(next) {
		if runs = append(runs, next); len(runs) > keep {
			runs = runs[1:]
			missed++
		}
	}
	if s.CatchUp == None && len(runs) > 0 && now.Sub(runs[0]) > onTime {
		runs, missed = nil, missed+1
	}
	return runs, missed, next, nil
}

// record returns the schedule as the store keeps it.
func (s *Schedule) record() (store.ScheduleRecord, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return store.ScheduleRecord{}, fmt.Errorf("cannot encode schedule %q: %w", s.ID, err)
	}
	return store.ScheduleRecord{ID: s.ID, Version: s.version, Body: body, Tenant: s.Tenant}, nil
}

// read returns the schedule of a record.
func read(r store.ScheduleRecord) (*Schedule, error) {
	s := new(Schedule)
	if err := json.Unmarshal(r.Body, s); err != nil {
		return nil, fmt.Errorf("cannot read schedule %q: %w", r.ID, err)
	}
	s.version = r.Version
	return s, nil
}

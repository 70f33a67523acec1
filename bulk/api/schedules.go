package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/calendar"
	"github.com/anteroom/anteroom/bulk/schedule"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// scheduleRoutes serves schedules.
type scheduleRoutes struct {
	*Server
	book     schedule.Book
	creating *sync.Mutex // orders creations by tenants' tokens, whose schedules are counted
}

// shownRuns is how many of its next runs a schedule is shown with.
const shownRuns = 5

// scheduleBody is a schedule as a request describes it: either a group with its jobs, or one job.
type scheduleBody struct {
	s                schedule.Schedule
	group, jobs, job json.RawMessage
}

const ruleSchedule = "1 to 64 of A-Z a-z 0-9 . _ -"

var scheduleFields = []field[scheduleBody]{
	{"id", ruleSchedule, func(b *scheduleBody, raw []byte) string { return setWord(&b.s.ID, raw, 64, "") }, true},
	{"tenant", ruleWord, func(b *scheduleBody, raw []byte) string { return setWord(&b.s.Tenant, raw, maxTenant, "") }, true},
}

var scheduleChanges = []field[scheduleBody]{
	{"cron", "minute, hour, day of month, month and day of week (0 to 6), such as 30 9 * * mon-fri; or @hourly, @daily, @weekly, @monthly, @yearly", func(b *scheduleBody, raw []byte) string {
		return setText(&b.s.Cron, raw)
	}, true},
	{"time_zone", "an IANA name such as Europe/Berlin", func(b *scheduleBody, raw []byte) string {
		if wrong := setText(&b.s.Zone, raw); wrong != "" {
			return wrong
		}
		if _, err := calendar.Zone(b.s.Zone); err != nil {
			return "is not a time zone"
		}
		return ""
	}, true},
	{"overlap", "allow, skip or queue", func(b *scheduleBody, raw []byte) string { return setText((*string)(&b.s.Overlap), raw) }, true},
	{"catch_up", "none, one or all", func(b *scheduleBody, raw []byte) string { return setText((*string)(&b.s.CatchUp), raw) }, true},
	{"paused", "true or false", func(b *scheduleBody, raw []byte) string {
		if json.Unmarshal(raw, &b.s.Paused) != nil {
			return "is not true or false"
		}
		return ""
	}, false},
	{"expires_after", "1s to 10000h, such as 30m; null: never", func(b *scheduleBody, raw []byte) string {
		if b.s.Expire = 0; ophttp.IsNull(raw) {
			return ""
		}
		return setSpan(&b.s.Expire, raw, time.Second, maxDelay)
	}, true},
	{"group", "an object with the fields of a group: type, priority, rate, …", func(b *scheduleBody, raw []byte) string { return setObject(&b.group, raw) }, false},
	{"jobs", "a list of 1 to 500 jobs, each with payload", func(b *scheduleBody, raw []byte) string {
		b.jobs = slices.Clone(raw)
		return ""
	}, false},
	{"job", "an object with type and payload, instead of group and jobs", func(b *scheduleBody, raw []byte) string { return setObject(&b.job, raw) }, false},
}

func setObject(to *json.RawMessage, raw []byte) string {
	o, err := ophttp.Object(raw)
	if err != nil {
		return "is not an object"
	}
	*to = slices.Clone(o)
	return ""
}

// templateFields are the fields of a group that a schedule may set: what belongs to one run is not among them.
func (s *Server) templateFields() []field[store.GroupSpec] {
	return slices.DeleteFunc(s.specFields(), func(f field[store.GroupSpec]) bool {
		return slices.Contains([]string{"id", "tenant", "start", "start_at", "expires_at", "unique", "after", "when"}, f.name)
	})
}

// template sets the group and the jobs of a schedule from a request.
func (s *Server) template(b *scheduleBody, who identity) (faults []ophttp.Fault) {
	below := func(at string, more []ophttp.Fault) {
		for _, f := range more {
			f.Path = at + "." + f.Path
			faults = append(faults, f)
		}
	}
	if b.job != nil {
		if b.group != nil || b.jobs != nil {
			return []ophttp.Fault{{Path: "job", Problem: "is given with group or jobs", Allowed: "job alone, or group with jobs"}}
		}
		var one store.Single
		fields := slices.DeleteFunc(s.singleFields(), func(f field[store.Single]) bool {
			return !slices.Contains([]string{"type", "payload", "cost", "priority"}, f.name)
		})
		below("job", decode(fields, b.job, &one))
		b.s.Group = store.GroupSpec{Type: one.Type, Level: one.Level}
		b.s.Jobs = []schedule.Job{{Payload: one.Payload, Cost: one.Cost}}
		if one.Payload == nil {
			faults = append(faults, ophttp.Fault{Path: "job.payload", Problem: "is missing", Allowed: "any JSON, if only null"})
		}
		if one.Type == "" && len(faults) == 0 {
			faults = append(faults, ophttp.Fault{Path: "job.type", Problem: "is missing", Allowed: ruleType})
		}
		b.s.Given = ophttp.Marshal(map[string]json.RawMessage{"job": compacted(b.job)})
	} else {
		if b.group == nil {
			return []ophttp.Fault{{Path: "group", Problem: "is missing", Allowed: "group with jobs, or job"}}
		}
		b.s.Group = store.GroupSpec{}
		below("group", decode(s.templateFields(), b.group, &b.s.Group))
		if b.s.Group.Type == "" && len(faults) == 0 {
			faults = append(faults, ophttp.Fault{Path: "group.type", Problem: "is missing", Allowed: ruleType})
		}
		faults = append(faults, s.templateJobs(b)...)
		b.s.Given = ophttp.Marshal(map[string]json.RawMessage{"group": compacted(b.group), "jobs": compacted(b.jobs)})
	}
	below("group", who.bound(&b.s.Group, nil))
	b.s.MaxGroups, b.s.MaxPending = who.most.Groups, who.most.Pending
	return faults
}

// templateJobs sets the jobs of a schedule.
func (s *Server) templateJobs(b *scheduleBody) (faults []ophttp.Fault) {
	var list []json.RawMessage
	if b.jobs == nil || json.Unmarshal(b.jobs, &list) != nil || len(list) == 0 || len(list) > schedule.MaxJobs {
		return []ophttp.Fault{{Path: "jobs", Problem: "is not a list of jobs", Allowed: "1 to 500 jobs, each with payload"}}
	}
	b.s.Jobs = make([]schedule.Job, len(list))
	for i, line := range list {
		var j store.Job
		wrong := parseJob(line, &j)
		switch {
		case wrong != "":
		case !j.RunAt.IsZero() || !j.ExpiresAt.IsZero():
			wrong = "run_at and expires_at are fixed times: leave them out, or use expires_after of the schedule"
		case j.Type != "" && s.o.AllowType != nil && !s.o.AllowType(j.Type):
			wrong = fmt.Sprintf("type %q has no handler here", j.Type)
		case len(line) > s.o.Limits.Line:
			wrong = fmt.Sprintf("it is longer than limits.line, %d bytes", s.o.Limits.Line)
		}
		if wrong != "" {
			return []ophttp.Fault{{Path: fmt.Sprintf("jobs[%d]", i), Problem: wrong, Allowed: "a job with payload, id, type and cost"}}
		}
		b.s.Jobs[i] = schedule.Job{ID: j.ID, Type: j.Type, Payload: slices.Clone(j.Payload), Cost: j.Cost}
	}
	return nil
}

func compacted(raw []byte) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func (s scheduleRoutes) createSchedule(w http.ResponseWriter, r *http.Request, who identity) error {
	key, body, err := creation(r)
	if err != nil {
		return err
	}
	var b scheduleBody
	faults := decode(slices.Concat(scheduleFields, scheduleChanges), body, &b)
	faults = append(faults, s.template(&b, who)...)
	for name, there := range map[string]bool{"tenant": b.s.Tenant != "", "cron": b.s.Cron != ""} {
		if !there && !slices.ContainsFunc(faults, func(f ophttp.Fault) bool { return f.Path == name }) {
			faults = append(faults, ophttp.Fault{Path: name, Problem: "is missing", Allowed: "every schedule has one"})
		}
	}
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	if err := who.forTenant(b.s.Tenant); err != nil {
		return err
	}
	switch {
	case b.s.ID == "" && key != "":
		b.s.ID = derivedID("schedule", b.s.Tenant, key)
	case b.s.ID == "":
		b.s.ID = drawID()
	}
	if err := b.s.Check(); err != nil {
		return scheduleFault(err)
	}
	if err := s.checkSplit(r.Context(), &b.s); err != nil {
		if _, missing := s.book.Get(r.Context(), b.s.ID); missing != nil { // else the request is repeated, and its shards were drained since
			return err
		}
	}
	if !who.admin {
		s.creating.Lock()
		defer s.creating.Unlock()
		if err := s.checkNumber(r.Context(), who, b.s.ID); err != nil {
			return err
		}
	}
	asked := b.s
	there, created, err := s.book.Create(r.Context(), &b.s)
	if err != nil {
		return err
	}
	if !created && !sameSchedule(&asked, there) {
		return ophttp.NewProblem(http.StatusConflict, string(store.CodeExists), "another schedule has the id %q: choose a new id, change it with PATCH, or repeat the exact request that created it", asked.ID)
	}
	s.log.InfoContext(r.Context(), "schedule created", "who", who.name, "schedule", there.ID, "tenant", there.Tenant, "again", !created)
	w.Header().Set("Location", "/v1/schedules/"+there.ID)
	status := http.StatusCreated
	if !created {
		status = http.StatusOK
	}
	ophttp.WriteJSON(w, status, "application/json", scheduleView(there))
	return nil
}

// checkNumber refuses another schedule of a token whose tenants have so many that others could be left with none. It
// reads the schedules only when a store has many.
func (s scheduleRoutes) checkNumber(ctx context.Context, who identity, id string) error {
	count, err := s.store.ScheduleCount(ctx)
	if err != nil || count < 2*int64(s.o.Limits.Schedules) {
		return err
	}
	all, err := s.book.ListOf(ctx, who.tenants...)
	if err != nil {
		return err
	}
	if n := len(all); n >= s.o.Limits.Schedules {
		if _, missing := s.book.Get(ctx, id); missing == nil {
			return nil // the request is repeated
		}
		return ophttp.NewProblem(http.StatusTooManyRequests, string(store.CodeQuota), "the tenants of the token %q have %d schedules, and of the %d schedules of all they can have %d: delete some, or use the operators' token", who.name, n, count, s.o.Limits.Schedules)
	}
	return nil
}

// scheduleFault returns the problem of an invalid schedule. The text of the error begins with the field.
func scheduleFault(err error) error {
	name, _, _ := strings.Cut(err.Error(), " ")
	return ophttp.Invalid(ophttp.Fault{Path: strings.TrimSuffix(name, ":"), Problem: "is not valid: " + err.Error(), Allowed: "see docs/bulk.md"})
}

// checkSplit returns the problem of a schedule whose runs would be refused because there are fewer shards than parts.
func (s scheduleRoutes) checkSplit(ctx context.Context, sch *schedule.Schedule) error {
	err := s.store.CheckSplit(ctx, sch.Group.Split)
	if refusal, is := errors.AsType[*store.Refusal](err); is {
		return ophttp.Invalid(ophttp.Fault{Path: "group.split", Value: ophttp.Marshal(sch.Group.Split), Problem: refusal.Detail, Allowed: "1 to the number of shards that are open for new groups"})
	}
	return err
}

// sameSchedule reports whether a schedule is the one that a request describes. It may be paused meanwhile.
func sameSchedule(asked, there *schedule.Schedule) bool {
	return asked.Tenant == there.Tenant && asked.Cron == there.Cron && asked.Zone == there.Zone && asked.Overlap == there.Overlap &&
		asked.CatchUp == there.CatchUp && asked.Expire == there.Expire && bytes.Equal(asked.Given, there.Given)
}

type scheduleFilter struct{ tenant string }

var scheduleQuery = []field[scheduleFilter]{
	{"tenant", ruleWord, func(f *scheduleFilter, raw []byte) string { return setWord(&f.tenant, raw, maxTenant, "") }, true},
}

func (s scheduleRoutes) listSchedules(w http.ResponseWriter, r *http.Request, who identity) error {
	var f scheduleFilter
	if err := readQuery(r, scheduleQuery, &f); err != nil {
		return err
	}
	if f.tenant != "" {
		if err := who.forTenant(f.tenant); err != nil {
			return err
		}
	}
	var all []*schedule.Schedule
	var err error
	switch {
	case f.tenant != "":
		all, err = s.book.ListOf(r.Context(), f.tenant)
	case who.admin:
		all, err = s.book.List(r.Context())
	default:
		all, err = s.book.ListOf(r.Context(), who.tenants...)
	}
	if err != nil {
		return err
	}
	page := bulktype.Schedules[timestamp]{Schedules: []*bulktype.Schedule[timestamp]{}}
	for _, sch := range all {
		page.Schedules = append(page.Schedules, scheduleView(sch))
	}
	return ophttp.OK(w, page)
}

// get reads the schedule in the path. One of another tenant is not found.
func (s scheduleRoutes) get(ctx context.Context, r *http.Request, who identity) (*schedule.Schedule, error) {
	id := r.PathValue("schedule")
	missing := ophttp.NewProblem(http.StatusNotFound, string(store.CodeNotFound), "there is no schedule %q; GET /v1/schedules lists the existing ones", ophttp.Shorten(id))
	if !isWord(id, 64, "") {
		return nil, missing
	}
	sch, err := s.book.Get(ctx, id)
	if refusedWith(err, store.CodeNotFound) || err == nil && !who.sees(sch.Tenant) {
		return nil, missing
	}
	return sch, err
}

func (s scheduleRoutes) showSchedule(w http.ResponseWriter, r *http.Request, who identity) error {
	sch, err := s.get(r.Context(), r, who)
	if err != nil {
		return err
	}
	if err := noQuery(r); err != nil {
		return err
	}
	return ophttp.OK(w, scheduleView(sch))
}

func (s scheduleRoutes) patchSchedule(w http.ResponseWriter, r *http.Request, who identity) error {
	sch, err := s.get(r.Context(), r, who)
	if err != nil {
		return err
	}
	body, err := readObject(r, false)
	if err != nil {
		return err
	}
	sch, err = s.book.Change(r.Context(), sch.ID, func(now *schedule.Schedule) error {
		b := scheduleBody{s: *now}
		faults := decode(scheduleChanges, body, &b)
		regrouped := b.group != nil
		if len(faults) == 0 && (b.group != nil || b.jobs != nil || b.job != nil) {
			b.keep(now)
			faults = s.template(&b, who)
			if who.admin { // what a tenant's token may not do, its schedule still may not
				b.s.Group.Own, b.s.MaxGroups, b.s.MaxPending = now.Group.Own, now.MaxGroups, now.MaxPending
			}
		}
		if len(faults) > 0 {
			return ophttp.Invalid(faults...)
		}
		if err := b.s.Check(); err != nil {
			return scheduleFault(err)
		}
		if regrouped {
			if err := s.checkSplit(r.Context(), &b.s); err != nil {
				return err
			}
		}
		*now = b.s
		return nil
	})
	if err != nil {
		return err
	}
	s.log.InfoContext(r.Context(), "schedule changed", "who", who.name, "schedule", sch.ID)
	return ophttp.OK(w, scheduleView(sch))
}

// keep fills in the part of the template that a change leaves as it is.
func (b *scheduleBody) keep(now *schedule.Schedule) {
	var was struct{ Group, Jobs json.RawMessage }
	if b.job == nil && json.Unmarshal(now.Given, &was) == nil {
		if b.group == nil {
			b.group = was.Group
		}
		if b.jobs == nil {
			b.jobs = was.Jobs
		}
	}
}

func (s scheduleRoutes) deleteSchedule(w http.ResponseWriter, r *http.Request, who identity) error {
	sch, err := s.get(r.Context(), r, who)
	if err != nil {
		return err
	}
	if err := noQuery(r); err != nil {
		return err
	}
	if err := s.book.Delete(r.Context(), sch.ID); err != nil && !refusedWith(err, store.CodeNotFound) {
		return err
	}
	s.log.InfoContext(r.Context(), "schedule deleted", "who", who.name, "schedule", sch.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func scheduleView(s *schedule.Schedule) *bulktype.Schedule[timestamp] {
	v := &bulktype.Schedule[timestamp]{
		ID: s.ID, Tenant: s.Tenant, Cron: s.Cron, TimeZone: s.Zone, Overlap: string(s.Overlap), CatchUp: string(s.CatchUp), Paused: s.Paused,
		NextRuns: []timestamp{}, Started: s.Counts.Started, Skipped: s.Counts.Skipped, Missed: s.Counts.Missed, Failed: s.Counts.Failed,
		Error: s.Counts.Error, CreatedAt: at(s.CreatedAt),
	}
	if v.TimeZone == "" {
		v.TimeZone = "UTC"
	}
	_ = json.Unmarshal(s.Given, &v.Template) // as it was written
	if s.Expire > 0 {
		v.ExpiresAfter = s.Expire.String()
	}
	for _, next := range s.Upcoming(shownRuns) {
		v.NextRuns = append(v.NextRuns, at(next))
	}
	if s.Last.Group != "" {
		v.LastRun, v.LastGroup = at(s.Last.At), s.Last.Group
	}
	return v
}

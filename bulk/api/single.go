package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/schedule"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// madePrefixes begin the ids of groups that the engine creates itself.
var madePrefixes = []string{store.SinglesPrefix, schedule.Prefix}

// setGroupID reads the id that a client chose for a group.
func setGroupID(to *string, raw []byte) string {
	if wrong := setWord(to, raw, maxGroupID, ":"); wrong != "" {
		return wrong
	}
	for _, prefix := range madePrefixes {
		if strings.HasPrefix(*to, prefix) {
			return "begins with " + prefix + ", which the engine's own groups do"
		}
	}
	return ""
}

// maxDelay bounds the delay of a single job.
const maxDelay = 10_000 * time.Hour

// singleFields returns the fields of a single job; null is the same as leaving one out.
func (s *Server) singleFields() []field[store.Single] {
	type single = store.Single
	fields := []field[single]{
		{"id", "1 to 128 bytes of printable characters without blanks, and neither . nor ..", func(j *single, raw []byte) (wrong string) {
			j.ID, wrong = jobID(raw)
			return wrong
		}, true},
		{"tenant", ruleWord, func(j *single, raw []byte) string { return setWord(&j.Tenant, raw, maxTenant, "") }, true},
		{"type", ruleType, func(j *single, raw []byte) string { return s.setType(&j.Type, raw) }, true},
		{"cost", "a whole number from 1 to 1000", func(j *single, raw []byte) string { return setWhole(&j.Cost, raw, 1, store.MaxCost) }, false},
		{"priority", ruleLevel, func(j *single, raw []byte) string { return setLevel(&j.Level, raw) }, true},
		{"start_at", ruleMoment, func(j *single, raw []byte) (wrong string) {
			j.RunAt, wrong = moment(raw)
			return wrong
		}, true},
		{"delay", "1ms to 10000h, from now on; instead of start_at", func(j *single, raw []byte) string { return setSpan(&j.Delay, raw, time.Millisecond, maxDelay) }, true},
		{"expires_at", ruleMoment + "; if the job has not started by then, it ends as dead", func(j *single, raw []byte) (wrong string) {
			j.ExpiresAt, wrong = moment(raw)
			return wrong
		}, true},
		{"unique", ruleUnique, func(j *single, raw []byte) string { return setUnique(&j.Unique, raw) }, false},
	}
	fields = orNull(fields)
	return append(fields, field[single]{"payload", "any JSON", func(j *single, raw []byte) string {
		j.Payload = slices.Clone(raw)
		return ""
	}, false})
}

// submitJob accepts a single job: 202, or 200 for a duplicate, with its group, where GET shows it.
func (s jobRoutes) submitJob(w http.ResponseWriter, r *http.Request, who identity) error {
	key, body, err := creation(r)
	if err != nil {
		return err
	}
	var in store.Single
	faults := decode(s.singleFields(), body, &in)
	bounds := store.GroupSpec{Level: in.Level}
	faults = who.bound(&bounds, faults)
	in.Level, in.Weight, in.Own, in.MaxPending = bounds.Level, bounds.Weight, bounds.Own, who.most.Pending
	for _, f := range []struct {
		name, allowed string
		there         bool
	}{{"tenant", ruleWord, in.Tenant != ""}, {"type", ruleType, in.Type != ""}, {"payload", "any JSON, if only null", in.Payload != nil}} {
		if !f.there && !slices.ContainsFunc(faults, func(other ophttp.Fault) bool { return other.Path == f.name }) {
			faults = append(faults, ophttp.Fault{Path: f.name, Problem: "is missing", Allowed: f.allowed})
		}
	}
	if in.Delay > 0 && !in.RunAt.IsZero() {
		faults = append(faults, ophttp.Fault{Path: "delay", Problem: "is given with start_at", Allowed: "one of them"})
	}
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	if len(in.Payload) > s.o.Limits.Line {
		return ophttp.Invalid(ophttp.Fault{Path: "payload", Problem: fmt.Sprintf("has %d bytes", len(in.Payload)), Allowed: fmt.Sprintf("at most limits.line, %d bytes", s.o.Limits.Line)})
	}
	if err := who.forTenant(in.Tenant); err != nil {
		return err
	}
	if in.ID == "" && key != "" {
		in.ID = derivedID("job", in.Tenant, key)
	}
	submission := s.o.Tracer.Submit(r, "/v1/jobs")
	in.Trace = submission.Trace
	done, err := s.store.Submit(r.Context(), in)
	if err != nil {
		submission.End("", 0, err)
		return err
	}
	submission.End(done.Group, 1, nil)
	status := http.StatusAccepted
	if done.Duplicate {
		status = http.StatusOK
	} else {
		s.o.Enqueued(1)
	}
	w.Header().Set("Location", "/v1/groups/"+done.Group+"/jobs/"+url.PathEscape(done.ID))
	ophttp.WriteJSON(w, status, "application/json", bulktype.Submitted[timestamp]{
		ID: done.ID, Group: done.Group, Tenant: in.Tenant, Duplicate: done.Duplicate, StartAt: at(done.StartAt), ExpiresAt: at(expiryOf(done, in)),
	})
	return nil
}

// expiryOf returns when a submitted job expires; zero for a duplicate, whose first job has its own time.
func expiryOf(done store.Submitted, in store.Single) time.Time {
	if done.Duplicate {
		return time.Time{}
	}
	return in.ExpiresAt
}

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// maxMadeID is longer than an id that clients may choose: a redrive appends a number to its source's id.
const maxMadeID = 140

// group reads the group in the path. A group of another tenant is not found.
func (s *Server) group(r *http.Request, who identity) (store.Group, error) {
	id := r.PathValue("id")
	if !isWord(id, maxMadeID, ":") {
		return store.Group{}, noGroup(id)
	}
	g, err := s.store.Group(r.Context(), id)
	if refusedWith(err, store.CodeNotFound) || err == nil && !who.sees(g.Tenant) {
		return store.Group{}, noGroup(id)
	}
	return g, err
}

// visible returns the id of the group in the path after checking that the token may see it, with the least work for
// the store.
func (s *Server) visible(r *http.Request, who identity) (id string, err error) {
	id = r.PathValue("id")
	if !isWord(id, maxMadeID, ":") {
		return "", noGroup(id)
	}
	tenant, err := s.store.TenantOf(r.Context(), id)
	if refusedWith(err, store.CodeNotFound) || err == nil && !who.sees(tenant) {
		return "", noGroup(id)
	}
	return id, err
}

func (s groupRoutes) createGroup(w http.ResponseWriter, r *http.Request, who identity) error {
	key, body, err := creation(r)
	if err != nil {
		return err
	}
	var spec store.GroupSpec
	faults := who.bound(&spec, decode(s.specFields(), body, &spec))
	if faults = complete(&spec, faults); len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	if err := who.forTenant(spec.Tenant); err != nil {
		return err
	}
	submission := s.o.Tracer.Submit(r, "/v1/groups")
	spec.Trace = submission.Trace
	g, created, err := s.create(r.Context(), who, &spec, "group", key)
	submission.End(spec.ID, 0, err)
	if err != nil {
		return err
	}
	s.log.InfoContext(r.Context(), "group created", "who", who.name, "group", g.ID, "tenant", g.Tenant, "again", !created)
	w.Header().Set("Location", "/v1/groups/"+g.ID)
	status := http.StatusCreated
	if !created {
		status = http.StatusOK
	}
	ophttp.WriteJSON(w, status, "application/json", s.view(g))
	return nil
}

// seesAll refuses predecessors that the token may not see, as if they did not exist.
func (s *Server) seesAll(ctx context.Context, who identity, after string) error {
	if who.admin {
		return nil // the store refuses unknown ones
	}
	for id := range strings.FieldsSeq(after) {
		tenant, err := s.store.TenantOf(ctx, id)
		if refusedWith(err, store.CodeNotFound) {
			continue // it may have been there when this group was created first
		}
		if err != nil {
			return err
		}
		if !who.sees(tenant) {
			return ophttp.Invalid(ophttp.Fault{Path: "after", Value: ophttp.Marshal(id), Problem: "is not the id of a group", Allowed: "groups that exist"})
		}
	}
	return nil
}

// create creates a group. One without an id gets an id derived from the key or, without a key, a random one.
func (s *Server) create(ctx context.Context, who identity, spec *store.GroupSpec, what, key string) (g store.Group, created bool, err error) {
	if err := s.seesAll(ctx, who, spec.After); err != nil {
		return g, false, err
	}
	derived := spec.ID == "" && key != ""
	switch {
	case derived:
		spec.ID = s.store.IDBeside(spec.After, derivedID(what, spec.Tenant, key))
	case spec.ID == "":
		spec.ID = s.store.IDBeside(spec.After, drawID())
	}
	g, created, err = s.store.CreateGroup(ctx, *spec)
	refusal, refused := errors.AsType[*store.Refusal](err)
	if derived && refused && refusal.Code == store.CodeExists && !refusal.Deleting {
		err = ophttp.NewProblem(http.StatusUnprocessableEntity, string(store.CodeChunkReuse), "this Idempotency-Key was used for group %s with other fields: use another key, or send the same fields", spec.ID)
	}
	return g, created, err
}

func (s groupRoutes) showGroup(w http.ResponseWriter, r *http.Request, who identity) error {
	g, err := s.group(r, who)
	if err != nil {
		return err
	}
	return ophttp.OK(w, s.view(g))
}

type listFilter struct {
	tenant, status, cursor string
	labels                 []string // key=value
	limit                  int64
}

var listFields = []field[listFilter]{
	{"tenant", ruleWord, func(f *listFilter, raw []byte) string { return setWord(&f.tenant, raw, maxTenant, "") }, true},
	{"status", strings.Join(statusNames, ", "), func(f *listFilter, raw []byte) string {
		if f.status = strings.ToUpper(ophttp.Text(raw)); !slices.Contains(statusNames, f.status) {
			return "is not a status"
		}
		return ""
	}, true},
	{labelParameter, "key=value, up to 16 times; groups that have all of them", func(f *listFilter, raw []byte) string {
		key, value, ok := strings.Cut(ophttp.Text(raw), "=")
		if !ok {
			return "has no ="
		}
		if wrong := store.CheckLabel(key, value); wrong != "" {
			return wrong
		}
		if len(f.labels) == store.MaxLabels {
			return "is given too often"
		}
		f.labels = append(f.labels, key+"="+value)
		return ""
	}, true},
	{"limit", "a whole number from 1 to 1000", func(f *listFilter, raw []byte) string { return setWhole(&f.limit, raw, 1, 1000) }, false},
	{"cursor", "next of the previous page", func(f *listFilter, raw []byte) string {
		if f.cursor = ophttp.Text(raw); len(f.cursor) > 1024 {
			return "is too long"
		}
		return ""
	}, true},
}

var statusNames = []string{
	string(store.Created), string(store.Dispatched), string(store.Running), string(store.Aggregating),
	string(store.Completed), string(store.Failed), string(store.Cancelled),
}

func (s groupRoutes) listGroups(w http.ResponseWriter, r *http.Request, who identity) error {
	f := listFilter{limit: 100}
	if err := readQuery(r, listFields, &f); err != nil {
		return err
	}
	filter := store.Filter{Status: store.Status(f.status), Limit: int(f.limit), Cursor: f.cursor, Labels: f.labels, Tenants: who.tenants}
	if f.tenant != "" {
		if err := who.forTenant(f.tenant); err != nil {
			return err
		}
		filter.Tenants = []string{f.tenant}
	}
	groups, next, away, err := s.store.Groups(r.Context(), filter)
	if err != nil {
		return err
	}
	page := bulktype.Groups[timestamp]{Groups: make([]*groupView, len(groups)), Next: next, Away: bulktype.Away{Shards: away}}
	for i, g := range groups {
		page.Groups[i] = new(s.view(g))
	}
	return ophttp.OK(w, page)
}

func (s groupRoutes) patchGroup(w http.ResponseWriter, r *http.Request, who identity) error {
	g, err := s.group(r, who)
	if err != nil {
		return err
	}
	var p store.Patch
	if err := readFields(r, patchFields, false, &p); err != nil {
		return err
	}
	if p == (store.Patch{}) {
		return ophttp.OK(w, s.view(g))
	}
	if faults := who.boundPatch(&p); len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	return s.change(w, r, who, "patch", g.ID, func(ctx context.Context, id string) (store.Group, error) { return s.store.Patch(ctx, id, p) })
}

var sealFields = []field[bool]{
	{"abandon_chunks", "true or false; true seals despite incomplete chunks, and refuses the rest of them", func(abandon *bool, raw []byte) string {
		if json.Unmarshal(raw, abandon) != nil || ophttp.IsNull(raw) {
			return "is not true or false"
		}
		return ""
	}, false},
}

func (s groupRoutes) seal(w http.ResponseWriter, r *http.Request, who identity) error {
	id, err := s.visible(r, who)
	if err != nil {
		return err
	}
	abandon := false
	if err := readFields(r, sealFields, true, &abandon); err != nil {
		return err
	}
	if abandon {
		return s.change(w, r, who, "seal abandoning chunks", id, s.store.SealAbandoning)
	}
	return s.change(w, r, who, "seal", id, s.store.Seal)
}

func (s groupRoutes) cancel(ctx context.Context, id string) (store.Group, error) {
	return s.store.Cancel(ctx, id)
}
func (s groupRoutes) pause(ctx context.Context, id string) (store.Group, error) {
	return s.store.Patch(ctx, id, store.Patch{Paused: new(true)})
}
func (s groupRoutes) resume(ctx context.Context, id string) (store.Group, error) {
	return s.store.Patch(ctx, id, store.Patch{Paused: new(false)})
}

// release lifts delays that a downstream asked for. It takes the operators' token.
func (s groupRoutes) release(w http.ResponseWriter, r *http.Request, who identity) error {
	if _, err := s.visible(r, who); err != nil {
		return err
	}
	if err := who.forAll(); err != nil {
		return err
	}
	return s.plain(func(ctx context.Context, id string) (store.Group, error) {
		g, jobs, err := s.store.Release(ctx, id)
		if err == nil {
			s.log.InfoContext(ctx, "delays lifted", "who", who.name, "group", id, "jobs", jobs)
		}
		return g, err
	})(w, r, who)
}

// plain serves an action without a body, or with an empty object.
func (s groupRoutes) plain(do func(context.Context, string) (store.Group, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, who identity) error {
		id, err := s.visible(r, who)
		if err != nil {
			return err
		}
		if err := readFields(r, nil, true, &struct{}{}); err != nil {
			return err
		}
		_, action, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/groups/"), "/")
		return s.change(w, r, who, action, id, do)
	}
}

// change calls do, logs the action and responds with the changed group.
func (s groupRoutes) change(w http.ResponseWriter, r *http.Request, who identity, action, id string, do func(context.Context, string) (store.Group, error)) error {
	g, err := do(r.Context(), id)
	if err != nil {
		return err
	}
	s.log.InfoContext(r.Context(), "group changed", "who", who.name, "group", id, "action", action)
	return ophttp.OK(w, s.view(g))
}

// deleteGroup deletes an ended group with all its data: 204, or 202 when that takes longer than a request should.
func (s groupRoutes) deleteGroup(w http.ResponseWriter, r *http.Request, who identity) error {
	id, err := s.visible(r, who)
	if err != nil {
		return err
	}
	if err := noQuery(r); err != nil {
		return err
	}
	gone, err := s.store.Delete(r.Context(), id, s.deleteTime)
	if err != nil {
		return err
	}
	s.log.InfoContext(r.Context(), "group deleted", "who", who.name, "group", id, "gone", gone)
	if gone {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

var redriveFields = []field[store.RedriveOptions]{
	{"rate", ruleRate + "; without it, the group's", func(o *store.RedriveOptions, raw []byte) string {
		if ophttp.IsNull(raw) {
			return ""
		}
		return setDecimal(&o.Rate, raw, 0, maxRate)
	}, false},
	{"statuses", "a list of dead and failed; without it dead, and with codes both", func(o *store.RedriveOptions, raw []byte) string {
		return setWords(&o.Statuses, raw, 2)
	}, false},
	{"codes", "a list of error codes, as results show them; at most 100", func(o *store.RedriveOptions, raw []byte) string {
		return setWords(&o.Codes, raw, 100)
	}, false},
}

// setWords reads a list of at most most words.
func setWords(to *[]string, raw []byte, most int) (wrong string) {
	if ophttp.IsNull(raw) {
		return ""
	}
	var words []string
	if json.Unmarshal(raw, &words) != nil {
		return "is not a list of words"
	}
	if len(words) > most {
		return fmt.Sprintf("has %d entries", len(words))
	}
	*to = words
	return ""
}

func (s groupRoutes) redrive(w http.ResponseWriter, r *http.Request, who identity) error {
	g, err := s.group(r, who)
	if err != nil {
		return err
	}
	var o store.RedriveOptions
	if err := readFields(r, redriveFields, true, &o); err != nil {
		return err
	}
	o.MaxGroups = who.most.Groups
	made, err := s.store.RedriveJobs(r.Context(), g.ID, o)
	if err != nil {
		return err
	}
	s.log.InfoContext(r.Context(), "group redriven", "who", who.name, "group", g.ID, "as", made.ID)
	w.Header().Set("Location", "/v1/groups/"+made.ID)
	ophttp.WriteJSON(w, http.StatusCreated, "application/json", s.view(made))
	return nil
}

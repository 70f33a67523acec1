package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bulk/calendar"
)

var (
	groupID  = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,140}$`)
	tenantID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	typeName = regexp.MustCompile(`^[A-Za-z0-9._:/][A-Za-z0-9._:/-]{0,63}$`)
)

var levelNumbers = map[Level]int{High: 1, Normal: 2, Low: 3}

var statuses = []Status{"", Created, Dispatched, Running, Aggregating, Completed, Failed, Cancelled}

func statusOf(n int64) Status {
	if n < 1 || int(n) >= len(statuses) {
		return ""
	}
	return statuses[n]
}

func statusNumber(s Status) int {
	for i, known := range statuses {
		if known == s {
			return i
		}
	}
	return 0
}

// resultsNumber returns the number in the group's record, -1 if r is unknown.
func resultsNumber(r Results) int {
	return slices.Index([]Results{AllResults, FailureResults, NoResults}, r)
}

// Validate sets defaults and returns a *Refusal for an invalid spec.
func (g *GroupSpec) Validate() error {
	if g.ID == "" {
		g.ID = strings.ToLower(rand.Text())
	}
	if g.Level == "" {
		g.Level = Normal
	}
	if g.Weight == 0 {
		g.Weight = 1
	}
	g.StartAt, g.ExpiresAt = storedTime(g.StartAt), storedTime(g.ExpiresAt)
	if g.Results == "all" {
		g.Results = AllResults
	}
	switch {
	case !groupID.MatchString(g.ID):
		return refuse(CodeInvalid, "id %q: use 1 to 128 letters, digits and . _ : -", g.ID)
	case !tenantID.MatchString(g.Tenant):
		return refuse(CodeInvalid, "tenant %q: use 1 to 64 letters, digits and . _ -", g.Tenant)
	case !typeName.MatchString(g.Type):
		return refuse(CodeInvalid, "type %q: use 1 to 64 letters, digits and . _ : / -", g.Type)
	case levelNumbers[g.Level] == 0:
		return refuse(CodeInvalid, "priority %q: use high, normal or low", g.Level)
	case g.Weight < 0.01 || g.Weight > 100:
		return refuse(CodeInvalid, "weight %v: use 0.01 to 100", g.Weight)
	case g.Rate < 0 || g.Rate > 1e6 || (g.Rate > 0 && g.Rate < 0.001):
		return refuse(CodeInvalid, "rate %v: use 0.001 to 1000000 jobs a second, or 0 for none of its own", g.Rate)
	case g.Concurrency < 0 || g.Concurrency > 1e6:
		return refuse(CodeInvalid, "concurrency %d: use 1 to 1000000, or 0 for no limit of its own", g.Concurrency)
	case g.StopAt.Count < 0 || g.StopAt.Percent < 0 || g.StopAt.Percent > 100 || g.StopAt.Share && g.StopAt.thousandths() == 0:
		return refuse(CodeInvalid, "stop_at: use a count from 1 on, or a share from 0.001%% to 100%%")
	case !g.ExpiresAt.IsZero() && !g.ExpiresAt.After(g.StartAt):
		return refuse(CodeInvalid, "expires_at %s: must be later than start_at, or no job could ever start", g.ExpiresAt.Format(time.RFC3339))
	case resultsNumber(g.Results) < 0:
		return refuse(CodeInvalid, "results %q: use all, failures or none", g.Results)
	case g.BasePriority < -1e12 || g.BasePriority > 1e12:
		return refuse(CodeInvalid, "base_priority %d: use -10^12 to 10^12", g.BasePriority)
	}
	if g.Quiet != (calendar.Quiet{}) {
		if err := g.Quiet.Check(); err != nil {
			return refuse(CodeInvalid, "%v", err)
		}
	}
	if err := checkAfter(g); err != nil {
		return err
	}
	if err := checkSplit(g); err != nil {
		return err
	}
	return g.Unique.check()
}

// CreateGroup creates a group. Repeated with the same id and content, it returns the group and created is false; and
// so it does for another group under the same Unique key, with the first group, a Duplicate.
func (s groupStore) CreateGroup(ctx context.Context, g GroupSpec) (group Group, created bool, err error) {
	args, err := createArgs(&g, s.today())
	if err != nil {
		return Group{}, false, err
	}
	r, err := s.write(ctx, "group_create", args...)
	if err != nil {
		return Group{}, false, err
	}
	switch r.refusal() {
	case "quota":
		return Group{}, false, tooManyGroups(&g, r.int(1))
	case "past":
		return Group{}, false, groupRefusal("past", g.ID, r)
	case "unknown":
		return Group{}, false, refuse(CodeInvalid, "after: there is no group %q; create the groups that it waits for first", r.string(1))
	case "followed":
		return Group{}, false, refuse(CodeInvalid, "after: too many groups wait for group %q already; let this one wait for one of them", r.string(1))
	case "unmet":
		return Group{}, false, refuse(CodeState, "after: the groups %s have ended, and not as when (%s) requires: group %q could never start", g.After, cmp.Or(g.When, OnSuccess), g.ID)
	case "duplicate":
		if len(list(r.at(2))) == 0 {
			return Group{}, false, usedBefore(&g, r.string(1))
		}
		f, err := parseGroup(list(r.at(2)))
		f.Duplicate = true
		return f.Group, false, err
	case "deleted":
		err := refuse(CodeExists, "group %q is being deleted, and its id is not free yet: repeat DELETE /v1/groups/%s until it returns 204 or 404, then repeat this request; or use another id", g.ID, g.ID)
		err.Deleting = true
		return Group{}, false, err
	}
	line := r.at(1)
	if r.refusal() != "" {
		if !sameSpec(r.string(1), g) {
			return Group{}, false, refuse(CodeExists, "id %q: another group has this id; choose a new id, or repeat the exact request that created the group", g.ID)
		}
		line = r.at(2)
	}
	f, err := parseGroup(list(line))
	return f.Group, r.refusal() == "" && r.int(0) == 1, err
}

// createArgs validates a new group and returns the arguments of group_create; now is about the time.
func createArgs(g *GroupSpec, now time.Time) ([]any, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	spec, err := json.Marshal(g)
	return []any{
		g.ID, spec, g.Tenant, g.Type, levelNumbers[g.Level], thousandths(g.Weight), share(thousandths(g.Rate), g.Split, g.Part),
		share(g.Concurrency, g.Split, g.Part), g.BasePriority, flag(g.StartSealed), flag(g.CallbackURL != "" && !g.waitsForJobs()), flag(g.RedriveOf != ""), flag(g.Own), g.MaxGroups,
		g.StopAt.Count, g.StopAt.thousandths(), flag(g.Counts()), g.Tolerance.most(), flag(g.Tolerance.Share), resultsNumber(g.Results),
		sinceEpoch(g.StartAt), sinceEpoch(g.ExpiresAt), g.Unique.Key, g.Unique.Within.Microseconds(),
		whenNumber(g), g.After, quietWords(g.Quiet, now), g.partNumber(),
	}, err
}

func tooManyGroups(g *GroupSpec, has int64) error {
	return refuse(CodeQuota, "tenant %q has %d groups: api_tokens[].max_groups is %d; a group that has ended counts until retention.groups has passed", g.Tenant, has, g.MaxGroups)
}

// sameSpec reports whether stored is the spec g, regardless of the token. It compares values, not texts: another
// version may write other fields.
func sameSpec(stored string, g GroupSpec) bool {
	var there GroupSpec
	err := json.Unmarshal([]byte(stored), &there)
	there.Own, there.MaxGroups, there.Parts = g.Own, g.MaxGroups, g.Parts
	return err == nil && there == g
}

// groupRefusal returns the error for a script's refusal concerning a group.
func groupRefusal(reason, group string, r reply) error {
	switch reason {
	case "":
		return nil
	case "not_found":
		return refuse(CodeNotFound, "group %q: no group has this id, or its retention has passed", group)
	case "sealed":
		return refuse(CodeSealed, "group %q is sealed: it accepts no more jobs; create a new group for them", group)
	case "quota":
		return refuse(CodeQuota, "tenant has %d jobs to do: %s is reached; wait until some have ended and send this again", r.int(1), r.string(2))
	case "operators_only":
		field := map[string]string{"level": "priority", "base": "base_priority"}[r.string(1)]
		return refuse(CodeOperators, "%s: an operator has set it for group %q, and it counts among tenants; ask an operator to change it", cmp.Or(field, r.string(1)), group)
	case "wrong_state":
		return refuse(CodeState, "group %q is %s: this action is no longer possible", group, statusOf(r.int(1)))
	case "past":
		return refuse(CodeInvalid, "expires_at of group %q has passed already: the store's time is %s", group, micros(r.int(1)).Format(time.RFC3339))
	case "order":
		return refuse(CodeInvalid, "start_at %s of group %q: must be before its expires_at %s, or no job could ever start", micros(r.int(1)).Format(time.RFC3339), group, micros(r.int(2)).Format(time.RFC3339))
	case "expired":
		return refuse(CodeState, "group %q expired at %s: expires_at can no longer be changed; create a new group for the remaining work", group, micros(r.int(1)).Format(time.RFC3339))
	case "chunk_open":
		return refuse(CodeHalfIn, "group %q has %d incomplete chunks: send each again with its Idempotency-Key, then seal; or seal with abandon_chunks if their sender is gone", group, r.int(1))
	}
	return fmt.Errorf("the store replied %q for group %q", reason, group)
}

// Seal ends the submission of jobs, so that the group can complete. Sealing again is no error. A group with an
// incomplete chunk is refused with CodeHalfIn.
func (s groupStore) Seal(ctx context.Context, group string) (Group, error) {
	return s.change(ctx, group, "group_seal", group, flag(false))
}

// SealAbandoning is Seal for a group with incomplete chunks whose sender is gone. Their accepted jobs run; the rest
// of such a chunk is refused with CodeSealed.
func (s groupStore) SealAbandoning(ctx context.Context, group string) (Group, error) {
	return s.change(ctx, group, "group_seal", group, flag(true))
}

// change runs a script that changes a group and returns the changed group.
func (s groupStore) change(ctx context.Context, group, script string, args ...any) (Group, error) {
	r, err := s.write(ctx, script, args...)
	if err != nil {
		return Group{}, err
	}
	if err := groupRefusal(r.refusal(), group, r); err != nil {
		return Group{}, err
	}
	s.concluded(r, 1)
	g, err := parseGroup(list(r.at(0)))
	return g.Group, err
}

// concluded reports the groups that a script has ended, from index i of its reply on.
func (s *shard) concluded(r reply, i int) {
	if s.o.Concluded == nil {
		return
	}
	for k, status := range []Status{Completed, Failed} {
		if n := r.int(i + k); n > 0 {
			s.o.Concluded(status, n)
		}
	}
}

// Patch changes a group's live fields, including pause and resume.
func (s groupStore) Patch(ctx context.Context, group string, p Patch) (Group, error) {
	args := []any{group, flag(p.Own)}
	check := GroupSpec{ID: "x", Tenant: "x", Type: "x"}
	if p.Weight != nil {
		if check.Weight = *p.Weight; check.Weight == 0 {
			check.Weight = -1
		}
		args = append(args, "weight", thousandths(*p.Weight))
	}
	if p.Rate != nil {
		check.Rate = *p.Rate
		args = append(args, "rate", thousandths(*p.Rate))
	}
	if p.Concurrency != nil {
		check.Concurrency = *p.Concurrency
		args = append(args, "conc", *p.Concurrency)
	}
	if p.BasePriority != nil {
		check.BasePriority = *p.BasePriority
		args = append(args, "base", *p.BasePriority)
	}
	if p.Level != nil {
		if check.Level = *p.Level; check.Level == "" {
			check.Level = "\"\""
		}
		args = append(args, "level", levelNumbers[*p.Level])
	}
	if p.StopAt != nil {
		check.StopAt = *p.StopAt
		args = append(args, "stop_count", p.StopAt.Count, "stop_share", p.StopAt.thousandths())
	}
	if p.StartAt != nil {
		args = append(args, "start_at", sinceEpoch(*p.StartAt))
	}
	if p.ExpiresAt != nil {
		args = append(args, "expires", sinceEpoch(*p.ExpiresAt))
	}
	if p.Quiet != nil {
		check.Quiet = *p.Quiet
		args = append(args, "quiet", quietWords(*p.Quiet, s.today()))
	}
	if p.Paused != nil {
		args = append(args, "paused", flag(*p.Paused))
	}
	if err := check.Validate(); err != nil {
		return Group{}, err
	}
	if len(args) == 2 {
		return s.Group(ctx, group)
	}
	return s.change(ctx, group, "group_patch", args...)
}

// releaseBound is how many jobs one step of Release moves.
const releaseBound = 500

// Release lifts the delays that a group's downstream asked for: the gate closed by a Retry-After, and the waits of
// jobs that were refused, are to be retried, or crashed. Limits, breakers and run_at stay in force.
func (s groupStore) Release(ctx context.Context, group string) (g Group, jobs int64, err error) {
	for cursor := ""; ; {
		r, err := s.write(ctx, "group_release", group, cursor, releaseBound)
		if err != nil {
			return Group{}, jobs, err
		}
		if err := groupRefusal(r.refusal(), group, r); err != nil {
			return Group{}, jobs, err
		}
		jobs += r.int(0)
		if cursor = r.string(1); cursor == "" {
			break
		}
	}
	g, err = s.Group(ctx, group)
	return g, jobs, err
}

// Cancel ends a group: no more of its jobs start. Cancelling again is no error; an ended group is refused.
func (s groupStore) Cancel(ctx context.Context, group string) (Group, error) {
	return s.change(ctx, group, "group_patch", group, 0, "cancel", 1)
}

// Group returns one group.
func (s groupStore) Group(ctx context.Context, group string) (Group, error) {
	groups, err := s.read(ctx, "id", group)
	if err != nil {
		return Group{}, err
	}
	if len(groups) == 0 {
		return Group{}, groupRefusal("not_found", group, nil)
	}
	return groups[0].Group, nil
}

// Delete deletes an ended group with all its data, including dead letters. From now on every other operation on the
// group is refused with CodeNotFound. Delete is refused while the group's reduction, callback or redrive is in
// progress. gone is false if the deletion takes longer than patience; housekeeping then does the rest.
func (s groupStore) Delete(ctx context.Context, group string, patience time.Duration) (gone bool, err error) {
	if err := s.markDeleted(ctx, group, false); err != nil {
		return false, err
	}
	for until := time.Now().Add(patience); time.Now().Before(until) && ctx.Err() == nil; {
		t, err := s.Tend(ctx, group)
		if err != nil || t.Removed {
			return t.Removed, nil //nolint:nilerr // housekeeping continues
		}
		if !t.Again { // its tenant, which is deleted with it, still has used capacity of its limit
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return false, nil
}

// markDeleted marks a group for deletion, or with check only returns the error that this would return.
func (s groupStore) markDeleted(ctx context.Context, group string, check bool) error {
	r, err := s.write(ctx, "group_delete", group, flag(check))
	if err != nil {
		return err
	}
	switch r.refusal() {
	case "unswept":
		return refuse(CodeState, "group %q has ended, and its last outcomes are still being recorded: delete it when it has its result", group)
	case "callback":
		return refuse(CodeState, "group %q has a callback that is not accepted yet: delete it when callback is done or failed", group)
	case "open":
		return refuse(CodeState, "group %q is being redriven to %q: delete it when that is sealed, which any redrive of the group and a seal of %q do at once, and silence after a minute", group, r.string(1), r.string(1))
	case "wrong_state":
		if status := statusOf(r.int(1)); status != Aggregating {
			return refuse(CodeState, "group %q is %s: cancel it first, or wait for its end, then delete it", group, status)
		}
		return refuse(CodeState, "group %q is AGGREGATING: delete it when it has its result", group)
	}
	return groupRefusal(r.refusal(), group, r)
}

// TenantOf returns the tenant of a group, with two commands and no script.
func (s groupStore) TenantOf(ctx context.Context, group string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	short, err := s.short(ctx, group)
	if err != nil {
		return "", err
	}
	text, err := s.o.Client.HGet(ctx, s.keys[keyGroups], short).Bytes()
	if errors.Is(err, redis.Nil) {
		return "", groupRefusal("not_found", group, nil)
	}
	var spec struct{ Tenant string }
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrStore, err)
	}
	return spec.Tenant, nil
}

// found is a group with its short name in the store.
type found struct {
	Group
	key      string
	redrives int64
	widest   int64  // bytes of its largest outcome; 0: unknown
	deleted  bool   // it is being deleted
	failures string // their codes, if it has ended or is a part
}

// read reads groups by id or short name and leaves out missing ones.
func (s groupStore) read(ctx context.Context, by string, names ...string) ([]found, error) {
	if len(names) == 0 {
		return nil, nil
	}
	args := []any{by}
	for _, n := range names {
		args = append(args, n)
	}
	r, err := s.run(ctx, "group_read", args...)
	if err != nil {
		return nil, err
	}
	var groups []found
	for _, v := range r {
		line := list(v)
		if len(line) == 0 {
			continue
		}
		g, err := parseGroup(line)
		if err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// expected returns the expected rate of a group, in jobs a second, whose rate was measured from since to now (µs;
// since is 0 before the first start). Until a job has ended, that is limit, the configured rate; limit also counts
// for the missing part of the first second, since few jobs mean little.
func expected(g *Group, limit float64, since, now int64) float64 {
	if g.Succeeded+g.Failed+g.Dead+g.Cancelled == 0 || since == 0 {
		return limit
	}
	missing := max(0, 1-float64(now-since)/1e6)
	return g.Rate1 + limit*missing
}

// parseGroup parses the reply of lua/group_read.lua: the spec, then names and values. An ended split group has the counts of all its parts.
func parseGroup(line reply) (found, error) {
	g, err := parseRecord(line)
	if err == nil && g.Split > 1 && g.Part == 0 {
		for i := 1; i+1 < len(line); i += 2 {
			if line.string(i) == "others" {
				g.joinCounts(line.string(i + 1))
			}
		}
	}
	return g, err
}

// parseRecord is parseGroup for the record of one shard.
func parseRecord(line reply) (found, error) {
	var g found
	if err := json.Unmarshal([]byte(line.string(0)), &g.GroupSpec); err != nil {
		return g, fmt.Errorf("the spec of a group: %w", err)
	}
	v := map[string]string{}
	for i := 1; i+1 < len(line); i += 2 {
		v[line.string(i)] = line.string(i + 1)
	}
	n := func(name string) int64 { return asInt(v[name]) }
	g.key = v["key"]
	g.Level = []Level{"", High, Normal, Low}[min(max(cmp.Or(n("inner"), n("level")), 0), 3)]
	g.Weight, g.BasePriority = float64(n("weight"))/1000, n("base")
	g.Rate, g.Concurrency = g.wholeOf(n("rate"), n("conc"))
	g.Status, g.Sealed, g.Paused, g.Epoch = statusOf(n("status")), n("sealed") == 1, n("paused") == 1, n("epoch")
	g.Stopped = g.Paused && n("stopped") == 1
	if g.StopAt = (Tolerance{Count: n("stop_count")}); n("stop_share") > 0 {
		g.StopAt = Tolerance{Percent: float64(n("stop_share")) / 1000, Share: true}
	}
	g.Own = n("inner")+n("share")+n("based") > 0
	g.Total, g.InFlight, g.Ready = n("total"), n("inflight"), n("ready")
	g.Succeeded, g.Failed, g.Dead, g.Cancelled = n("succ"), n("fail"), n("dead"), n("canc")
	g.Pending, g.NonReady = n("added")-n("taken")+n("front")+n("aside"), n("refused")+n("scheduled")
	g.Unserved = n("unserved")
	if g.Status == Cancelled {
		// The sweep will record it job by job.
		g.Cancelled = g.Total - g.Succeeded - g.Failed - g.Dead - g.InFlight
		g.Pending, g.NonReady, g.Ready, g.Unserved = 0, 0, 0, 0
	}
	g.Throttles, g.Reduced, g.Redriven = n("throttles"), n("reduced"), n("redriven")
	g.Gone, g.swept = n("gone"), n("swept")
	g.Backoff = duration(n("backoff"))
	now, since := n("now"), n("p_at")
	if since > 0 && now > since && !g.Status.Ended() {
		done := n("succ") + n("fail") + n("dead") + n("canc")
		g.Rate1 = float64(done-n("p_n")) / (float64(max(now-since, 1_000_000)) / 1e6)
	}
	g.Expected = expected(&g.Group, float64(n("limit"))/1000, since, now)
	if gate := max(n("gate"), n("tenant_gate")); gate > now {
		g.Gated, g.GatedUntil, g.GatedBy = true, micros(gate), GatedByRate
		if by := map[string]string{"start": GatedByStart, "quiet": GatedByQuiet}[v["why"]]; by != "" && n("gate") > now {
			g.GatedBy = by
		} else if n("busy") > now {
			g.GatedBy = GatedByDownstream
		} else if v["why"] == "mode" && n("tenant_gate") <= now {
			g.GatedBy = GatedByPolicy
		}
	}
	if n("waits") > 0 && !g.Status.Ended() {
		g.Gated, g.GatedUntil, g.GatedBy = true, time.Time{}, GatedByAfter
	}
	for link := range strings.Lines(v["links"]) {
		if w := strings.Fields(link); len(w) == 4 {
			g.Predecessors = append(g.Predecessors, Predecessor{ID: w[3], Status: statusOf(asInt(w[2]))})
		}
	}
	g.Skipped = n("skipped") == 1
	if !g.Gated && v["bar"] != "0" {
		g.Gated, g.GatedBy = true, GatedByProcessor
	}
	g.CreatedAt, g.SealedAt, g.StartedAt = micros(n("created")), micros(n("sealed_at")), micros(n("started"))
	g.FinishedAt, g.LastAddedAt = micros(n("finished")), micros(n("touched"))
	g.StartAt, g.ExpiresAt, g.Expired = micros(n("start_at")), micros(n("expires")), n("expired") == 1
	g.Rolling, g.Quiet = micros(n("rolling")), calendar.QuietFrom(v["quiet"])
	g.LastOutcomeAt, g.ReadAt = micros(n("outcome_at")), micros(now)
	g.CallbackState = []string{"", "pending", "done", "failed"}[min(max(n("callback"), 0), 3)]
	g.CallbackTries, g.redrives = n("tries"), n("redrives")
	g.widest, g.deleted = n("widest"), n("deleted") == 1
	g.failures = v["codes"]
	if !g.Status.Ended() {
		return g, nil
	}
	switch result, ok := strings.CutPrefix(v["result"], "!\n"); {
	case ok:
		g.Result = []byte(result)
	case (n("tally") == n("succ")+n("fail")+n("dead")+n("canc")+1 || n("tally") > 0 && g.Results != AllResults) && (g.Status != Cancelled || n("swept") == 2):
		g.Result = countedResult(&g.Group, v["codes"])
	}
	return g, nil
}

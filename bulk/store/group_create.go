package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/calendar"
)

var (
	groupID  = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,140}$`)
	tenantID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	typeName = regexp.MustCompile(`^[A-Za-z0-9._:/][A-Za-z0-9._:/-]{0,63}$`)
)

var levelNumbers = map[Level]int{High: 1, Normal: 2, Low: 3}

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
	if err := checkLabels(g); err != nil {
		return err
	}
	return g.Unique.check()
}

// CreateGroup creates a group. If a group with the same id and content exists, it returns that group and created is false. If
// the Unique key is in use, it returns the group that was created first, with Duplicate set, and created is false.
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
		return Group{}, false, noPredecessor(r.string(1))
	case "followed":
		return Group{}, false, tooManyFollowers(r.string(1))
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

// createArgs validates a new group and returns the arguments of group_create. now is approximate: see today.
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
		whenNumber(g), cmp.Or(g.predecessors, g.After), quietWords(g.Quiet, now), g.partNumber(),
		g.Parts, thousandths(g.Rate), g.Concurrency,
	}, err
}

func tooManyGroups(g *GroupSpec, has int64) error {
	return refuse(CodeQuota, "tenant %q has %d groups: api_tokens[].max_groups is %d; a group that has ended counts until retention.groups has passed", g.Tenant, has, g.MaxGroups)
}

// sameSpec reports whether stored is the spec g, regardless of the token and the trace. It compares values, not texts: another
// version may write other fields.
func sameSpec(stored string, g GroupSpec) bool {
	var there GroupSpec
	return json.Unmarshal([]byte(stored), &there) == nil && there.same(g)
}

func (g GroupSpec) same(other GroupSpec) bool {
	g.Own, g.MaxGroups, g.Parts, g.predecessors, g.Trace = other.Own, other.MaxGroups, other.Parts, other.predecessors, other.Trace
	return g == other
}

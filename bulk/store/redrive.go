package store

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RedriveOptions select the jobs of a redrive. Without statuses and codes they are the dead ones, with codes alone
// the dead and failed ones with these codes.
type RedriveOptions struct {
	Rate     float64  // jobs a second; 0: the group's
	Statuses []string // dead, failed
	Codes    []string // of the last error
	Job      string   // only this one; dead or failed, without statuses
	// MaxGroups is GroupSpec's.
	MaxGroups int64
}

// maxRedriveCodes bounds RedriveOptions.Codes.
const maxRedriveCodes = 100

var redriveCode = regexp.MustCompile(`^[a-z0-9_.]{1,64}$`)

// check returns an error if the options cannot select any job.
func (o *RedriveOptions) check() error {
	for _, s := range o.Statuses {
		if s != "dead" && s != "failed" {
			return refuse(CodeInvalid, "statuses %q: use dead or failed", s)
		}
	}
	if len(o.Codes) > maxRedriveCodes {
		return refuse(CodeInvalid, "codes: %d codes, at most %d are accepted", len(o.Codes), maxRedriveCodes)
	}
	for _, code := range o.Codes {
		if !redriveCode.MatchString(code) {
			return refuse(CodeInvalid, "codes %q: use 1 to 64 lower-case letters, digits, _ and ., as results show them", code)
		}
	}
	return nil
}

// which returns the selection in the form of RedriveWhich: the markers of the wanted letters, as group_redrive reads
// them, and the codes; or the job.
func (o *RedriveOptions) which() string {
	if o.Job != "" {
		return "job " + o.Job
	}
	marks, both := "", len(o.Statuses) == 0 && len(o.Codes) > 0
	if both || len(o.Statuses) == 0 || slices.Contains(o.Statuses, "dead") {
		marks += "-"
	}
	if both || slices.Contains(o.Statuses, "failed") {
		marks += "F"
	}
	codes := slices.Compact(slices.Sorted(slices.Values(o.Codes)))
	if marks == "-" && len(codes) == 0 {
		return ""
	}
	return marks + " " + strings.Join(codes, ",")
}

// selection parses RedriveWhich for group_redrive.
func selection(which string) (marks, codes, job string) {
	if job, is := strings.CutPrefix(which, "job "); is {
		return "-F", "", job
	}
	marks, codes, _ = strings.Cut(cmp.Or(which, "-"), " ")
	return marks, codes, ""
}

// RedriveJobs creates a new group from the selected jobs of group and seals it; it keeps the callback_url. It takes
// bounded steps. The next redrive of the group first finishes an interrupted one, and returns it if it selects the
// same. A job can be redriven once; the group keeps its outcomes.
func (s jobStore) RedriveJobs(ctx context.Context, group string, o RedriveOptions) (Group, error) {
	if err := o.check(); err != nil {
		return Group{}, err
	}
	found, err := s.read(ctx, "id", group)
	if err != nil {
		return Group{}, err
	}
	if len(found) == 0 {
		return Group{}, groupRefusal("not_found", group, nil)
	}
	spec := found[0].redriveSpec(group, &o)
	root, n := found[0].nextRedrive()
	for after := ""; ; {
		spec.ID = root + "-r" + strconv.FormatInt(n, 10)
		create, err := createArgs(&spec, s.today())
		if err != nil {
			return Group{}, err
		}
		r, err := s.redriveStep(ctx, &spec, after, create...)
		if err != nil {
			return Group{}, err
		}
		switch r.refusal() {
		case "":
		case "exists":
			n++
			continue
		case "quota":
			return Group{}, tooManyGroups(&spec, r.int(1))
		case "open":
			g, err := s.finishRedrive(ctx, r.string(1), "")
			if err != nil || s.sameRedrive(ctx, &g.GroupSpec, &spec, o.Job) {
				return g, err
			}
			continue
		default:
			return Group{}, groupRefusal(r.refusal(), group, r)
		}
		after = r.string(1)
		switch {
		case r.int(2) == 1 && after != "":
			return s.finishRedrive(ctx, spec.ID, after)
		case r.int(2) == 1:
			return s.Group(ctx, spec.ID)
		case after == "":
			return Group{}, s.noneLeft(ctx, &spec, &found[0].Group, o.Job)
		}
	}
}

// redriveSpec returns the spec of a redrive of g, without its id.
func (g *found) redriveSpec(group string, o *RedriveOptions) GroupSpec {
	spec := g.GroupSpec
	spec.RedriveOf, spec.RedriveWhich, spec.MaxGroups, spec.Trace = group, o.which(), o.MaxGroups, Trace{}
	spec.StartAt, spec.ExpiresAt, spec.Unique, spec.After, spec.When = time.Time{}, time.Time{}, Unique{}, "", "" // of the first attempt
	if o.Rate > 0 {
		spec.Rate = o.Rate
	}
	return spec
}

// redriveStep does one step of the redrive spec: with create it creates the group, without it continues an open one.
func (s jobStore) redriveStep(ctx context.Context, spec *GroupSpec, after string, create ...any) (reply, error) {
	marks, codes, job := selection(spec.RedriveWhich)
	return s.write(ctx, "group_redrive", append([]any{spec.RedriveOf, spec.ID, tendBound, marks, codes, after, job}, create...)...)
}

// finishRedrive continues an open redrive until it is sealed.
func (s jobStore) finishRedrive(ctx context.Context, id, after string) (Group, error) {
	g, err := s.Group(ctx, id)
	if err != nil {
		return Group{}, err
	}
	for {
		r, err := s.redriveStep(ctx, &g.GroupSpec, after)
		switch {
		case err != nil:
			return Group{}, err
		case r.refusal() == "sealed": // another caller has finished it
			return s.Group(ctx, id)
		case r.refusal() == "not_found":
			return s.Seal(ctx, id) // the source is past its retention: seal with the jobs so far
		case r.refusal() != "":
			return Group{}, groupRefusal(r.refusal(), g.RedriveOf, r)
		}
		if after = r.string(1); after == "" {
			return s.Group(ctx, id)
		}
	}
}

// sameRedrive reports whether a redrive of the same group has the requested selection or contains the one job
// requested.
func (s jobStore) sameRedrive(ctx context.Context, there, asked *GroupSpec, job string) bool {
	if job == "" || there.RedriveWhich == asked.RedriveWhich {
		return there.RedriveWhich == asked.RedriveWhich && there.Rate == asked.Rate
	}
	_, err := s.Job(ctx, there.ID, job)
	return err == nil
}

// nextRedrive returns the id of the group that jobs of g were submitted to, and the number of g's next redrive,
// unless that is taken.
func (g *found) nextRedrive() (root string, n int64) {
	root = g.ID
	if g.RedriveOf != "" {
		root = rootOf(g.ID)
		n, _ = strconv.ParseInt(strings.TrimPrefix(g.ID[len(root):], "-r"), 10, 64) // 0 if there is none
	}
	return root, max(g.redrives, n) + 1
}

// rootOf returns the id of the group that the jobs of a redrive were submitted to: each redrive has its id and a
// number.
func rootOf(redrive string) string {
	at := strings.LastIndex(redrive, "-r")
	if at < 1 {
		return redrive
	}
	if _, err := strconv.ParseUint(redrive[at+2:], 10, 63); err != nil {
		return redrive
	}
	return redrive[:at]
}

// noneLeft returns the refusal of a redrive without jobs. It names the redrive with the same selection, or the last
// one.
func (s jobStore) noneLeft(ctx context.Context, asked *GroupSpec, source *Group, job string) error {
	as, err := s.redriveOf(ctx, asked, job)
	if err != nil {
		return err
	}
	has, group := "", source.ID
	if as != "" {
		has = fmt.Sprintf("redrive %q has ", as)
	}
	switch {
	case job != "" && has == "":
		return refuse(CodeState, "job %q of group %q no longer has its payload", job, group)
	case job != "":
		return refuse(CodeState, "job %q of group %q no longer has its payload: %sit", job, group, has)
	case asked.RedriveWhich != "" && has == "":
		return refuse(CodeState, "group %q has no such jobs to redrive: no job of these statuses and codes still has its payload", group)
	case asked.RedriveWhich != "":
		return refuse(CodeState, "group %q has no such jobs to redrive: no job of these statuses and codes still has its payload, or %sthem", group, has)
	case source.Dead > 0 && has != "":
		return refuse(CodeState, "group %q has no dead letters left to redrive, of %d: %sthem", group, source.Dead, has)
	case source.Dead == 0 && source.Failed > 0:
		return refuse(CodeState, "group %q has no dead letters to redrive, but failed jobs (%d): ask for the status failed (bulkworker redrive --status failed)", group, source.Failed)
	}
	return refuse(CodeState, "group %q has no dead letters to redrive", group)
}

// nearRedrives bounds how many redrives redriveOf reads.
const nearRedrives = 50

// redriveOf returns the id of the latest redrive of a group with the requested selection or job, otherwise of the
// latest; "" if there is none.
func (s jobStore) redriveOf(ctx context.Context, asked *GroupSpec, job string) (string, error) {
	root := rootOf(asked.ID)
	n, _ := strconv.ParseInt(strings.TrimPrefix(asked.ID[len(root):], "-r"), 10, 64) // always a number
	var ids []string
	for i := n; i > max(0, n-nearRedrives); i-- {
		ids = append(ids, root+"-r"+strconv.FormatInt(i, 10))
	}
	list, err := s.read(ctx, "id", ids...)
	if err != nil {
		return "", err
	}
	latest := ""
	for _, g := range list {
		if g.RedriveOf != asked.RedriveOf || g.Split > 1 && g.Status == Cancelled && g.Total == 0 { // that of an empty redrive
			continue
		}
		if s.sameRedrive(ctx, &g.GroupSpec, asked, job) {
			return g.ID, nil
		}
		latest = cmp.Or(latest, g.ID)
	}
	return latest, nil
}

package store

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// RedriveOptions select the jobs of a redrive. With neither statuses nor codes they are the dead ones, with codes alone the
// dead and the failed ones of these codes.
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

// marks returns which members of the letters are wanted, as group_redrive reads them.
func (o *RedriveOptions) marks() (string, error) {
	marks := ""
	for _, s := range o.Statuses {
		switch s {
		case "dead", "failed":
		default:
			return "", refuse(CodeInvalid, "statuses %q: dead or failed", s)
		}
	}
	both := len(o.Statuses) == 0 && (len(o.Codes) > 0 || o.Job != "")
	if both || len(o.Statuses) == 0 || slices.Contains(o.Statuses, "dead") {
		marks += "-"
	}
	if both || slices.Contains(o.Statuses, "failed") {
		marks += "F"
	}
	if len(o.Codes) > maxRedriveCodes {
		return "", refuse(CodeInvalid, "codes: %d, at most %d", len(o.Codes), maxRedriveCodes)
	}
	for _, code := range o.Codes {
		if !redriveCode.MatchString(code) {
			return "", refuse(CodeInvalid, "codes %q: 1 to 64 lower-case letters, digits, _ and ., as results show them", code)
		}
	}
	return marks, nil
}

// Redrive is RedriveJobs of the dead jobs.
func (s *Store) Redrive(ctx context.Context, group string, rate float64) (Group, error) {
	return s.RedriveJobs(ctx, group, RedriveOptions{Rate: rate})
}

// RedriveJobs makes a new group of the selected jobs of group, sealed with the last of them; it keeps the callback_url. It takes
// bounded steps; one that broke off goes on where it stopped when it is called again with the same options, with others the
// rest goes to a group of its own. Each job goes to one redrive; the group keeps its outcomes.
func (s *Store) RedriveJobs(ctx context.Context, group string, o RedriveOptions) (Group, error) {
	marks, err := o.marks()
	if err != nil {
		return Group{}, err
	}
	found, err := s.read(ctx, "id", group)
	if err != nil {
		return Group{}, err
	}
	if len(found) == 0 {
		return Group{}, groupRefusal("not_found", group, nil)
	}
	source := found[0]
	spec := source.GroupSpec
	spec.RedriveOf, spec.RedriveWhich, spec.MaxGroups = group, "", o.MaxGroups
	if o.Rate > 0 {
		spec.Rate = o.Rate
	}
	codes := slices.Compact(slices.Sorted(slices.Values(o.Codes)))
	if marks != "-" || len(codes) > 0 {
		spec.RedriveWhich = marks + " " + strings.Join(codes, ",")
	}
	if o.Job != "" {
		spec.RedriveWhich = "job " + o.Job
	}
	looked := false
	for root, n := source.nextRedrive(); ; n++ {
		spec.ID = root + "-r" + strconv.FormatInt(n, 10)
		there, err := s.read(ctx, "id", spec.ID)
		if err != nil {
			return Group{}, err
		}
		if len(there) > 0 && there[0].Sealed {
			continue
		}
		if len(there) == 0 && !looked {
			if err := s.redrivable(ctx, &source.Group, marks, codes, o.Job); err != nil {
				return Group{}, err
			}
			looked = true
		}
		g, err := s.redrive(ctx, group, spec, marks, codes, o.Job)
		var taken *Refusal
		if errors.As(err, &taken) && (taken.Code == CodeExists || taken.Code == CodeSealed) {
			continue // another group, or a redrive that was ended half way
		}
		return g, err
	}
}

// nextRedrive returns the id of the group that jobs of g were submitted to, and the number of g's next redrive, unless that is taken.
func (g *found) nextRedrive() (root string, n int64) {
	root = g.ID
	if g.RedriveOf != "" {
		root = rootOf(g.ID)
		n, _ = strconv.ParseInt(strings.TrimPrefix(g.ID[len(root):], "-r"), 10, 64) // no number: 0
	}
	return root, max(g.redrives, n) + 1
}

// openRedrive returns the id of a redrive of g that has not taken all its jobs yet; "" where there is none.
func (s *Store) openRedrive(ctx context.Context, g *found) (string, error) {
	root, n := g.nextRedrive()
	id := root + "-r" + strconv.FormatInt(n, 10)
	there, err := s.read(ctx, "id", id)
	if err != nil || len(there) == 0 || there[0].Sealed || there[0].RedriveOf != g.ID {
		return "", err
	}
	return id, nil
}

// rootOf returns the id of the group that the jobs of a redrive were submitted to: a redrive, and a redrive of a redrive, have
// its id and a number.
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

// redrivable returns an error where the group has no job of those.
func (s *Store) redrivable(ctx context.Context, source *Group, marks string, codes []string, job string) error {
	group := source.ID
	for after := ""; ; {
		r, err := s.run(ctx, "group_redrive", group, "", tendBound, marks, strings.Join(codes, ","), after, job)
		if err != nil {
			return err
		}
		if err := groupRefusal(r.refusal(), group, r); err != nil {
			return err
		}
		if r.int(0) > 0 {
			return nil
		}
		if after = r.string(1); after == "" {
			break
		}
	}
	switch {
	case job != "":
		return refuse(CodeState, "job %q of group %q has no payload to run with any more: a redrive has it", job, group)
	case len(codes) > 0 || marks != "-":
		return refuse(CodeState, "group %q has no such jobs to redrive: none of these statuses and codes keeps its payload, or a redrive has them", group)
	case source.Dead > 0:
		return refuse(CodeState, "group %q has no dead letters to redrive any more: a redrive has its %d", group, source.Dead)
	}
	return refuse(CodeState, "group %q has no dead letters to redrive", group)
}

func (s *Store) redrive(ctx context.Context, group string, spec GroupSpec, marks string, codes []string, job string) (Group, error) {
	if _, _, err := s.CreateGroup(ctx, spec); err != nil {
		return Group{}, err
	}
	for after := ""; ; {
		r, err := s.write(ctx, "group_redrive", group, spec.ID, tendBound, marks, strings.Join(codes, ","), after, job)
		if err != nil {
			return Group{}, err
		}
		if err := groupRefusal(r.refusal(), spec.ID, r); err != nil {
			return Group{}, err
		}
		if after = r.string(1); after == "" {
			return s.Group(ctx, spec.ID)
		}
	}
}

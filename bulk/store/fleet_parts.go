package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// addParts adds jobs to a split group. Each part accepts its jobs or none of them, so after an error some may be in the group; the same
// call again adds the rest. For a quota, each job counts as new.
func (f fleetGroups) addParts(ctx context.Context, p parts, group string, c Chunk, jobs []Job) (added Added, err error) {
	if len(jobs) > MaxAdd {
		return Added{}, fmt.Errorf("AddJobs takes at most %d jobs, got %d", MaxAdd, len(jobs))
	}
	for i := range jobs { // before any part takes some
		if err := jobs[i].Validate(); err != nil {
			return Added{}, err
		}
	}
	if !c.Created.IsZero() {
		if g, err := p[0].Group(ctx, group); err != nil || !g.CreatedAt.Equal(storedTime(c.Created)) {
			return Added{}, errors.Join(err, Replaced(group))
		}
		c.Created = time.Time{}
	}
	most := f.Settings().PendingPerTenant
	if c.MaxPending == 0 && most == 0 {
		return p.add(ctx, group, c, jobs)
	}
	tenant, err := p[0].TenantOf(ctx, group)
	if err != nil {
		return Added{}, err
	}
	err = f.counting(ctx, tenant, p, tenantUse{open: int64(len(jobs))}, func(ctx context.Context, all tenantUse) (err error) {
		for _, limit := range []struct {
			most int64
			name string
		}{{c.MaxPending, "api_tokens[].max_pending"}, {most, "limits.pending_per_tenant"}} {
			if limit.most > 0 && len(jobs) > 0 && all.open+int64(len(jobs)) > limit.most {
				return groupRefusal("quota", group, reply{"quota", all.open, limit.name, int64(len(jobs)), limit.most})
			}
		}
		c.MaxPending = 0
		added, err = p.add(ctx, group, c, jobs)
		return err
	})
	return added, err
}

// add adds each job to its part. Every part counts the jobs of a chunk that it has accepted; its answer in a part other than the
// first is that number, and the first part ends the chunk last.
func (p parts) add(ctx context.Context, group string, c Chunk, jobs []Job) (Added, error) {
	of, places := make([][]Job, len(p)), make([][]int, len(p))
	for i := range jobs {
		n := partOf(jobs[i].ID, len(p))
		of[n], places[n] = append(of[n], jobs[i]), append(places[n], i)
	}
	// The chunk ends only with a call that brings no jobs: then the number of all is known.
	last := c.Last && len(jobs) == 0
	part := Chunk{Key: c.Key, Offset: c.Offset, Trace: c.Trace}
	all := make([]Added, len(p))
	errs := p.all(func(i int, s *Store) error {
		if c.Key == "" && len(of[i]) == 0 {
			return nil
		}
		var err error
		if all[i], err = s.addToPart(ctx, group, part, of[i]); err != nil || !last || i == 0 {
			return p.explain(ctx, group, i, err)
		}
		ends := part
		ends.Last, ends.Answer = true, strconv.AppendInt(nil, all[i].Before, 10)
		_, err = s.addToPart(ctx, group, ends, nil)
		return p.explain(ctx, group, i, err)
	})
	for i := range p {
		if done, is := errors.AsType[*ChunkDone](errs[i]); is && i == 0 {
			return Added{}, done // the whole chunk
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Added{}, firstRefusal(errs, err)
	}
	if last {
		ends := part
		ends.Last, ends.Answer = true, c.Answer
		if _, err := p[0].AddJobs(ctx, group, ends, nil); err != nil {
			return Added{}, err
		}
	}
	sum := Added{Done: last, Duplicate: make([]bool, len(jobs))}
	for i, a := range all {
		sum.Accepted, sum.Duplicates, sum.Before = sum.Accepted+a.Accepted, sum.Duplicates+a.Duplicates, sum.Before+a.Before
		for j, place := range places[i] {
			sum.Duplicate[place] = a.Duplicate[j]
		}
	}
	return sum, nil
}

// addToPart is AddJobs for one part. A chunk that the part has ended before the whole was ended is repeated: all its jobs are in.
func (s partStore) addToPart(ctx context.Context, group string, c Chunk, jobs []Job) (Added, error) {
	a, err := s.AddJobs(ctx, group, c, jobs)
	done, is := errors.AsType[*ChunkDone](err)
	if !is {
		return a, err
	}
	n, bad := strconv.ParseInt(string(done.Answer), 10, 64)
	if bad != nil {
		return a, err // that of the whole, in the first part
	}
	a = Added{Before: n, Duplicates: int64(len(jobs)), Duplicate: make([]bool, len(jobs))}
	for i := range jobs {
		a.Duplicate[i] = true
	}
	return a, nil
}

// explain names the shard of a part that was lost.
func (p parts) explain(ctx context.Context, group string, i int, err error) error {
	if i > 0 && isCode(err, CodeNotFound) {
		if _, there := p[0].short(ctx, group); there == nil {
			return lostPart(group, p[i].o.Shard)
		}
	}
	return err
}

// patchParts changes a group; limits are divided among its parts.
func (f fleetSplits) patchParts(ctx context.Context, group string, patch Patch) (Group, error) {
	p, err := f.parts(ctx, group)
	if err != nil {
		return Group{}, err
	}
	check := GroupSpec{Split: len(p)}
	if patch.Rate != nil {
		check.Rate = *patch.Rate
	}
	if patch.Concurrency != nil {
		check.Concurrency = *patch.Concurrency
	}
	if err := checkSplit(&check); err != nil {
		return Group{}, err
	}
	if len(p) > 1 && (patch.Rate != nil || patch.Concurrency != nil) {
		patch.whole = &wholePatch{p.words(), patch.Rate, patch.Concurrency}
	}
	return f.changeParts(ctx, group, func(i int, s *Store) (Group, error) { return s.Patch(ctx, group, patch.ofPart(len(p), i)) })
}

// words returns the shards of the parts as GroupSpec.Parts has them.
func (p parts) words() string {
	var all []string
	for _, s := range p {
		all = append(all, strconv.Itoa(s.o.Shard))
	}
	return strings.Join(all, " ")
}

// ofPart returns what part i of n changes.
func (p Patch) ofPart(n, i int) Patch {
	if n < 2 {
		return p
	}
	if p.Rate != nil {
		p.Rate = new(float64(share(thousandths(*p.Rate), n, i)) / 1000)
	}
	if p.Concurrency != nil {
		p.Concurrency = new(share(*p.Concurrency, n, i))
	}
	if i > 0 {
		p.StopAt = nil
	}
	return p
}

// redriveParts redrives jobs of a split group as a split group on the same shards. Its first part is sealed last, which seals the
// whole; if this process ends before, that happens after a minute, with the jobs that have moved.
func (f fleetJobs) redriveParts(ctx context.Context, p parts, group string, o RedriveOptions) (Group, error) {
	if err := o.check(); err != nil {
		return Group{}, err
	}
	sources, err := p[0].read(ctx, "id", group)
	if err != nil {
		return Group{}, err
	}
	if len(sources) == 0 {
		return Group{}, groupRefusal("not_found", group, nil)
	}
	spec := sources[0].redriveSpec(group, &o)
	root, n := sources[0].nextRedrive()
	var made Group
	for created := false; !created; n++ {
		spec.ID = root + "-r" + strconv.FormatInt(n, 10)
		made, created, err = f.createParts(ctx, p[0], spec)
		switch {
		case isCode(err, CodeExists):
		case err != nil:
			return Group{}, err
		case !created && !made.Sealed: // by a call that was interrupted
			created = true
		}
	}
	move := func(i int, s *Store) error {
		target := made.ofPart(i)
		create, err := createArgs(&target, s.today())
		if err != nil {
			return err
		}
		r, err := s.redriveStep(ctx, &target, "", create...)
		switch {
		case err != nil:
			return err
		case r.refusal() == "open" && r.string(1) != made.ID:
			return refuse(CodeState, "group %q is being redriven to %q: repeat the request when that is sealed", group, r.string(1))
		case r.refusal() == "open" || r.refusal() == "" && r.string(1) != "":
			after := ""
			if r.refusal() == "" {
				after = r.string(1)
			}
			_, err = s.finishRedrive(ctx, made.ID, after)
			return err
		case r.refusal() == "exists":
			return nil // this part has moved already
		case r.refusal() == "not_found" && i > 0:
			_, err := s.Seal(ctx, made.ID) // the part was lost
			return err
		}
		return groupRefusal(r.refusal(), group, r)
	}
	errs := p.others(move)
	if err := errors.Join(errs...); err != nil {
		return Group{}, firstRefusal(errs, err)
	}
	if err := move(0, p[0]); err != nil {
		return Group{}, err
	}
	g, err := f.Group(ctx, made.ID)
	if err != nil {
		return Group{}, err
	}
	if g.Total == 0 {
		return Group{}, f.undoRedrive(ctx, p, &g, group, &o)
	}
	return f.Seal(ctx, made.ID)
}

// undoRedrive removes a redrive without jobs and returns the refusal.
func (f fleetJobs) undoRedrive(ctx context.Context, p parts, g *Group, source string, o *RedriveOptions) error {
	_, err := f.Cancel(ctx, g.ID)
	for _, s := range slices.Backward(p) { // the first part last, since its end is that of the group
		if err == nil {
			_, err = s.Tend(ctx, g.ID) // records that none of its jobs is left
		}
		if err == nil { // Join would wait for the reducer, which has no outcomes here
			_, _, err = s.join(ctx, g.ID, 0, Cancelled, "", nil)
		}
	}
	if err == nil {
		_, err = f.Delete(ctx, g.ID, time.Second)
	}
	if err != nil && !isCode(err, CodeState) { // else its housekeeping is faster, and its retention deletes it
		return err
	}
	from, err := f.Group(ctx, source)
	if err != nil {
		return err
	}
	s := p[0]
	if o.Job != "" {
		s = p.of(o.Job) // an earlier redrive has the job in the same part
	}
	return s.noneLeft(ctx, &g.GroupSpec, &from, o.Job)
}

// retryInPart is RetryJob for a split group.
func (f fleetJobs) retryInPart(ctx context.Context, p parts, group, job string, maxGroups int64) (*Group, error) {
	ended, err := onJob(ctx, f.allShards, group, job, func(s *Store) (bool, error) { return s.startNow(ctx, group, job) })
	if err != nil || !ended {
		return nil, err
	}
	g, err := f.redriveParts(ctx, p, group, RedriveOptions{Job: job, MaxGroups: maxGroups})
	return &g, err
}

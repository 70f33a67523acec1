package store

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// auditPart is how many jobs Audit processes at a time.
const auditPart = 4_000_000

// jobPlace is the place of a job that has not ended; 0: none.
type jobPlace uint16

const (
	inOrder jobPlace = 1 + iota
	inFront
	inNonReady
	inFlight
	inAside
	inReady

	placeMask jobPlace = 1<<4 - 1
)

func (p jobPlace) String() string {
	return [...]string{"", "order", "front", "non-ready", "in-flight", "aside", "ready"}[p]
}

// Facts about a job besides its place.
const (
	isLetter    jobPlace = 1 << (4 + iota) // it is among the dead letters
	isKept                                 // it is among the failed jobs that can be redriven
	hasRecord                              // its record was read
	hasOutcome                             // it is in the log of outcomes
	hasOutcomes                            // it is there more than once
)

// jobFacts is what was found of each job of one part, by the hash of its name. Names with the same hash are confused:
// each pass uses another seed, and only what every pass has found is reported.
type jobFacts struct {
	seed  maphash.Seed
	part  uint64
	parts uint64
	of    map[uint64]jobPlace
}

// hash returns a job's hash and reports whether the job belongs to the part.
func (f *jobFacts) hash(job string) (h uint64, mine bool) {
	h = maphash.String(f.seed, job)
	return h, f.parts == 1 || h%f.parts == f.part
}

func (f *jobFacts) place(job string) jobPlace {
	h, _ := f.hash(job)
	return f.of[h] & placeMask
}

// readAllJobs compares every job's record with the job's places, part by part.
func (a *auditor) readAllJobs(ctx context.Context) error {
	n, err := a.s.o.Client.HLen(ctx, a.s.keys[keyJobs]).Result()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	a.marks = map[string]int64{}
	parts, seed := uint64(1+n/a.s.auditPart), maphash.MakeSeed()
	for part := range parts {
		a.jobs = jobFacts{seed: seed, part: part, parts: parts, of: map[uint64]jobPlace{}}
		for _, step := range []func(context.Context) error{a.readPlaces, a.readOutcomes, a.readJobs, a.readRuns} {
			if err := step(ctx); err != nil {
				return err
			}
		}
	}
	a.jobs = jobFacts{}
	return nil
}

// put records a place of a job. again is set if the source may return an entry twice.
func (a *auditor) put(job string, place jobPlace, again bool, count func(*audited) *int64) {
	h, mine := a.jobs.hash(job)
	if !mine {
		return
	}
	facts := a.jobs.of[h]
	if other := facts & placeMask; other != 0 {
		if again && other == place {
			return
		}
		a.bad("one place", "job %s is in %s and in %s", job, other, place)
	}
	a.jobs.of[h] = facts&^placeMask | place
	short, _, _ := strings.Cut(job, "/")
	if g := a.groups[short]; g != nil {
		*count(g)++
	} else {
		a.bad("owner", "job %s in %s has no group", job, place)
	}
}

// readPlaces records every place of a job that has not ended.
func (a *auditor) readPlaces(ctx context.Context) error {
	if err := a.hash(ctx, keyOrder, func(field, page string) {
		short, number, _ := strings.Cut(field, ":")
		g := a.groups[short]
		if g == nil {
			a.bad("owner", "page %s of order has no group", field)
			return
		}
		if page == "" {
			a.bad("owner", "page %s of order is empty", field)
		}
		text := page
		if number == strconv.FormatInt(g.raw["hp"], 10) {
			text = text[min(int(g.raw["ho"]), len(text)):]
		}
		for id := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
			if id != "" {
				a.put(short+"/"+id, inOrder, false, func(g *audited) *int64 { return &g.order })
			}
		}
	}); err != nil {
		return err
	}
	for _, set := range []struct {
		key   int
		place jobPlace
		count func(*audited) *int64
	}{
		{keyWaiting, inNonReady, func(g *audited) *int64 { return &g.waiting }},
		{keyLeases, inFlight, func(g *audited) *int64 { return &g.inflight }},
	} {
		if err := a.members(ctx, set.key, func(member string, _ float64) { a.put(member, set.place, true, set.count) }); err != nil {
			return err
		}
	}
	if err := readBatches(ctx, a); err != nil {
		return err
	}
	if err := a.readFront(ctx); err != nil {
		return err
	}
	if err := a.readAside(ctx); err != nil {
		return err
	}
	if err := a.members(ctx, keyRefused, func(member string, _ float64) {
		_, job, _ := strings.Cut(member, "/")
		if _, mine := a.jobs.hash(job); mine && a.jobs.place(job) != inNonReady {
			a.bad("one place", "job %s is counted as non-ready but is in %q", job, a.jobs.place(job))
		}
	}); err != nil {
		return err
	}
	ready, err := a.s.o.Client.LRange(ctx, a.s.keys[keyReady], 0, -1).Result()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	for _, job := range ready {
		a.put(job, inReady, false, func(g *audited) *int64 { return &g.ready })
	}
	return nil
}

// readBatches records the jobs that run under shared leases.
func readBatches(ctx context.Context, a *auditor) error {
	a.batches = map[string]bool{}
	var names []string
	if err := a.zset(ctx, keyBatches, func(name string, _ float64) {
		a.batches[name] = true
		names = append(names, name)
	}); err != nil {
		return err
	}
	for part := range slices.Chunk(names, 100) {
		all, err := a.s.batches(ctx, part, func(name string, err error) { a.bad("lease", "the shared lease %s: %v", name, err) })
		if err != nil {
			return err
		}
		for i, b := range all {
			if len(b.jobs) == 0 {
				a.bad("lease", "the shared lease %s has no running jobs", part[i])
			}
			for _, j := range b.jobs {
				a.put(j.key, inFlight, false, func(g *audited) *int64 { return &g.inflight })
				if _, mine := a.jobs.hash(j.key); mine && j.mark != "" {
					a.marks[j.mark]++
				}
			}
		}
	}
	return nil
}

// readFront records the jobs at the front of their groups; entries of an earlier version contain the name only.
func (a *auditor) readFront(ctx context.Context) error {
	seen := map[uint64]bool{} // a job with two entries is in two places
	return a.members(ctx, keyFront, func(member string, _ float64) {
		job := member
		if rest, ok := strings.CutPrefix(member, "+"); ok {
			w := strings.Split(rest, " ")
			if len(w) != 3 || len(w[1]) != 21 || strings.Trim(w[1], "0123456789") != "" {
				a.bad("record", "the front has an invalid entry: %q", member)
				return
			}
			job = w[0] + "/" + w[2]
		}
		if _, mine := a.jobs.hash(job); !mine {
			return
		}
		if entry := maphash.String(a.jobs.seed, member); !seen[entry] {
			seen[entry] = true
			a.put(job, inFront, false, func(g *audited) *int64 { return &g.front })
		}
	})
}

// readOutcomes records which jobs are in the log of outcomes and which are dead letters.
func (a *auditor) readOutcomes(ctx context.Context) error {
	if err := a.hash(ctx, keyDone, func(field, page string) {
		short, _, _ := strings.Cut(field, ":")
		if a.groups[short] == nil {
			a.bad("owner", "page %s of outcomes has no group", field)
		}
		for id := range strings.SplitSeq(strings.TrimSuffix(page, "\n"), "\n") {
			if id == "" {
				continue // its outcome is not kept
			}
			if h, mine := a.jobs.hash(short + "/" + id); mine {
				if a.jobs.of[h]&hasOutcome != 0 {
					a.jobs.of[h] |= hasOutcomes
				}
				a.jobs.of[h] |= hasOutcome
			}
		}
	}); err != nil {
		return err
	}
	return a.members(ctx, keyDead, func(member string, _ float64) {
		job, fact := letterOf(member)
		if h, mine := a.jobs.hash(job); mine {
			a.jobs.of[h] |= fact
		}
	})
}

// letterOf splits a member of the dead letters into the job and its fact: short names of groups are in lower case.
func letterOf(member string) (job string, fact jobPlace) {
	if job, kept := strings.CutPrefix(member, "F"); kept {
		return job, isKept
	}
	return member, isLetter
}

// readJobs compares every job's record with the job's place.
func (a *auditor) readJobs(ctx context.Context) error {
	if err := a.fields(ctx, keyJobs, func(job, rec string) {
		h, mine := a.jobs.hash(job)
		facts := a.jobs.of[h]
		if !mine || facts&hasRecord != 0 {
			return
		}
		a.jobs.of[h] = facts | hasRecord
		short, _, _ := strings.Cut(job, "/")
		if g := a.groups[short]; g != nil {
			a.record(g, job, rec, facts)
		} else {
			a.bad("owner", "job %s has no group", job)
		}
	}); err != nil {
		return err
	}
	return a.members(ctx, keyDead, func(member string, _ float64) {
		job, _ := letterOf(member)
		if h, mine := a.jobs.hash(job); mine && a.jobs.of[h]&hasRecord == 0 {
			a.bad("dead letter", "%s is among the dead letters but has no record", member)
		}
	})
}

// record compares one job's record with the facts found.
func (a *auditor) record(g *audited, job, rec string, facts jobPlace) {
	place := facts & placeMask
	if strings.HasPrefix(rec, "P") {
		g.unended++
		if !pendingRecord.MatchString(rec) {
			a.bad("record", "job %q: cannot read the record %.40q", job, rec)
		}
		if place == 0 {
			a.bad("one place", "job %s has not ended but is nowhere", job)
		}
		if facts&hasOutcome != 0 {
			a.bad("one place", "job %s has not ended but is among the outcomes", job)
		}
		if facts&(isLetter|isKept) != 0 {
			a.bad("dead letter", "job %s has not ended but is among the dead letters", job)
		}
		return
	}
	g.ended++
	o, err := parseOutcome(job, rec)
	if rec == notKept && g.Results != AllResults {
		o, err = Outcome{Status: "succeeded"}, nil
	}
	if err != nil {
		a.bad("record", "%v", err)
	}
	if o.Status == "succeeded" || g.Results == NoResults && o.Status == "cancelled" {
		g.unkept++
	}
	letter := strings.HasPrefix(rec, "D")
	if letter {
		g.dead++
	}
	if facts&isKept != 0 {
		g.kept++
		if err != nil || o.Status != "failed" || o.Payload == nil {
			a.bad("dead letter", "job %s is listed as a failed job that can be redriven, but its record is %.40q", job, rec)
		}
	}
	if there := facts&isLetter != 0; letter != there {
		a.bad("dead letter", "job %s is dead and kept: %t, is among the dead letters: %t", job, letter, there)
	}
	if place != 0 {
		a.bad("one place", "job %s has ended but is in %s", job, place)
	}
	switch {
	case facts&hasOutcomes != 0:
		a.bad("one outcome", "job %s is in the log of outcomes more than once", job)
	case facts&hasOutcome == 0 && a.kept(g):
		a.bad("one outcome", "job %s has ended but is not in the log of outcomes", job)
	}
}

// readRuns compares the records of runs with the jobs' places.
func (a *auditor) readRuns(ctx context.Context) error {
	var leased []string
	seen := map[uint64]bool{} // a scan may show an entry twice
	if err := a.members(ctx, keyLeases, func(job string, _ float64) {
		if h, mine := a.jobs.hash(job); mine && !seen[h] && a.jobs.of[h]&placeMask == inFlight {
			seen[h] = true
			leased = append(leased, job)
		}
	}); err != nil {
		return err
	}
	for _, job := range leased { // as many as run
		run, err := a.s.o.Client.HGet(ctx, a.s.keys[keyRuns], job).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
		if run == "" || strings.HasPrefix(run, "0 ") {
			a.bad("lease", "job %s is in flight without a fence", job)
		}
		if w := strings.Fields(run); len(w) > 6 && w[5][0] != '@' && w[6][0] != '@' {
			a.marks[w[6]]++
		}
	}
	return a.fields(ctx, keyRuns, func(job, run string) {
		if !strings.Contains(job, "/") {
			if name := job[min(1, len(job)):]; !a.batches[name] {
				a.bad("owner", "runs of the shared lease %s, which does not exist", name)
			}
			return
		}
		if _, mine := a.jobs.hash(job); !mine {
			return
		}
		if !runRecord.MatchString(run) {
			a.bad("record", "runs of job %q: cannot read %.40q", job, run)
		}
		if place := a.jobs.place(job); place == 0 || place == inOrder {
			a.bad("owner", "runs of job %s, which does not run and does not wait", job)
		}
	})
}

// readAside records the jobs that are held back, and checks that each group with such jobs of a type is listed under
// that type.
func (a *auditor) readAside(ctx context.Context) error {
	listed, there := map[string]bool{}, map[string]bool{}
	seen := map[uint64]bool{} // a job with two entries is in two places
	a.bars, a.breakers = map[string]bool{}, map[string]bool{}
	if err := a.members(ctx, keyAside, func(member string, _ float64) {
		switch w := strings.Split(member, " "); {
		case strings.HasPrefix(member, "j") && len(w) == 4:
			job := w[0][1:] + "/" + w[3]
			there[w[1]+" "+w[0][1:]] = true
			if _, mine := a.jobs.hash(job); !mine {
				return
			}
			if entry := maphash.String(a.jobs.seed, member); !seen[entry] {
				seen[entry] = true
				a.put(job, inAside, false, func(g *audited) *int64 { return &g.aside })
			}
		case strings.HasPrefix(member, "t") && len(w) == 2:
			listed[member[1:]] = true
		case strings.HasPrefix(member, "w") && len(w) == 2:
			a.bars[member] = true
		case strings.HasPrefix(member, "c") && len(w) == 1:
			short, _, _ := strings.Cut(member[1:], "/")
			if g := a.groups[short]; g == nil {
				a.bad("owner", "job %s is to be cancelled, but its group does not exist", member[1:])
			} else {
				g.calledOff++
			}
		case strings.HasPrefix(member, "b") && len(w) == 1:
			a.breakers[member[1:]] = true
		default:
			a.bad("record", "the jobs held back have an invalid entry: %q", member)
		}
	}); err != nil {
		return err
	}
	for entry := range there {
		if !listed[entry] {
			a.bad("one place", "jobs of type and group %s are held back but not listed under their type", entry)
		}
	}
	for entry := range listed {
		if !there[entry] {
			a.bad("owner", "type and group %s are listed, but no such job is held back", entry)
		}
	}
	return nil
}

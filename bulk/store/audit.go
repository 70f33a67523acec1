package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// auditLooks is how often Audit looks before it believes that something is broken: beside a running engine one look sees jobs
// on their way from one place to the next.
const auditLooks = 3

// Audit checks every invariant. It reads in bounded steps beside the running engine and looks again, and again, at what seems
// broken before it reports it. It holds one short record a job in memory.
func (s *Store) Audit(ctx context.Context) ([]Violation, error) {
	var broken map[Violation]bool
	for range auditLooks {
		a := &auditor{s: s, found: map[Violation]bool{}}
		if err := a.look(ctx); err != nil {
			return nil, err
		}
		if broken == nil {
			broken = a.found
		}
		maps.DeleteFunc(broken, func(v Violation, _ bool) bool { return !a.found[v] })
		if len(broken) == 0 {
			return nil, nil
		}
	}
	return slices.SortedFunc(maps.Keys(broken), func(a, b Violation) int {
		return strings.Compare(a.Invariant+a.What, b.Invariant+b.What)
	}), nil
}

// auditor is one look at the whole shard.
type auditor struct {
	s      *Store
	found  map[Violation]bool
	now    int64
	score  bool                // the fair queue is in the order of the score policy
	state  map[string]string   // of the shard
	groups map[string]*audited // by short name
	// places are where a job lies that has not ended; outcomes how often it is in the log of outcomes.
	places   map[string]string
	outcomes map[string]int
	letters  map[string]bool  // dead letters
	gates    map[string]bool  // what has a wake time
	queued   map[string]int64 // tenant and level → groups in line
	bars     map[string]bool  // groups that wait for their type's limits, as they stand in aside
	marks    map[string]int64 // type → runs that count towards its concurrency
}

// audited is a group as the store counts it, and as we find it.
type audited struct {
	found
	raw                                    map[string]int64
	order, front, ready, waiting, inflight int64
	aside                                  int64
	bar                                    string
	unended, ended, dead, kept, half       int64
	lines                                  []string
}

func (a *auditor) bad(invariant, format string, args ...any) {
	a.found[Violation{Invariant: invariant, What: fmt.Sprintf(format, args...)}] = true
}

func (a *auditor) look(ctx context.Context) error {
	for _, step := range []func(context.Context) error{a.readState, a.readGroups, a.readPlaces, a.readJobs, a.readLines, a.readTenants, a.readOwners} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return a.compare(ctx)
}

func (a *auditor) readState(ctx context.Context) (err error) {
	if a.state, err = a.s.o.Client.HGetAll(ctx, a.s.keys[keyState]).Result(); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	a.score = a.state["mode"] == "3"
	a.letters, a.gates = map[string]bool{}, map[string]bool{}
	if err := a.zset(ctx, keyDead, func(member string, _ float64) { a.letters[member] = true }); err != nil {
		return err
	}
	return a.zset(ctx, keyGates, func(member string, _ float64) { a.gates[member] = true })
}

func (a *auditor) readGroups(ctx context.Context) error {
	a.groups = map[string]*audited{}
	var names []string
	if err := a.hash(ctx, keyFlow, func(field, _ string) { names = append(names, field) }); err != nil {
		return err
	}
	slices.Sort(names)
	for part := range slices.Chunk(slices.Compact(names), 100) {
		args := []any{"key"}
		for _, n := range part {
			args = append(args, n)
		}
		r, err := a.s.run(ctx, "group_read", args...)
		if err != nil {
			return err
		}
		for _, v := range r {
			line := list(v)
			if len(line) == 0 {
				continue
			}
			g, err := parseGroup(line)
			if err != nil {
				a.bad("record", "%v", err)
				continue
			}
			raw, bar := map[string]int64{}, ""
			for i := 1; i+1 < len(line); i += 2 {
				raw[line.string(i)] = line.int(i + 1)
				if line.string(i) == "bar" {
					bar = line.string(i + 1)
				}
				if name, is := line.string(i), line.string(i+1); name == "tenant" && is != g.Tenant || name == "id" && is != g.ID {
					a.bad("record", "group %s of tenant %s has the %s %q in its record", g.ID, g.Tenant, name, is)
				}
			}
			a.now = max(a.now, raw["now"])
			a.groups[g.key] = &audited{found: g, raw: raw, bar: bar}
		}
	}
	return nil
}

// readPlaces notes every place in which a job that has not ended may lie.
func (a *auditor) readPlaces(ctx context.Context) error {
	a.places, a.outcomes = map[string]string{}, map[string]int{}
	put := func(job, place string, count func(*audited) *int64) {
		if other, twice := a.places[job]; twice {
			a.bad("one place", "job %s is in %s and in %s", job, other, place)
		}
		a.places[job] = place
		short, _, _ := strings.Cut(job, "/")
		if g := a.groups[short]; g != nil {
			*count(g)++
		} else {
			a.bad("owner", "job %s in %s has no group", job, place)
		}
	}
	if err := a.hash(ctx, keyOrder, func(field, page string) {
		short, number, _ := strings.Cut(field, ":")
		g := a.groups[short]
		if g == nil {
			a.bad("owner", "page %s of order has no group", field)
			return
		}
		text := page
		if number == strconv.FormatInt(g.raw["hp"], 10) {
			text = text[min(int(g.raw["ho"]), len(text)):]
		}
		for id := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
			if id != "" {
				put(short+"/"+id, "order", func(g *audited) *int64 { return &g.order })
			}
		}
	}); err != nil {
		return err
	}
	for _, set := range []struct {
		key   int
		name  string
		count func(*audited) *int64
	}{
		{keyFront, "front", func(g *audited) *int64 { return &g.front }},
		{keyWaiting, "non-ready", func(g *audited) *int64 { return &g.waiting }},
		{keyLeases, "in-flight", func(g *audited) *int64 { return &g.inflight }},
	} {
		if err := a.zset(ctx, set.key, func(member string, _ float64) { put(member, set.name, set.count) }); err != nil {
			return err
		}
	}
	if err := a.readAside(ctx, put); err != nil {
		return err
	}
	if err := a.zset(ctx, keyRefused, func(member string, _ float64) {
		if _, job, _ := strings.Cut(member, "/"); a.places[job] != "non-ready" {
			a.bad("one place", "job %s is counted as non-ready, and is in %q", job, a.places[job])
		}
	}); err != nil {
		return err
	}
	ready, err := a.s.o.Client.LRange(ctx, a.s.keys[keyReady], 0, -1).Result()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	for _, job := range ready {
		put(job, "ready", func(g *audited) *int64 { return &g.ready })
	}
	return a.hash(ctx, keyDone, func(field, page string) {
		short, _, _ := strings.Cut(field, ":")
		if a.groups[short] == nil {
			a.bad("owner", "page %s of outcomes has no group", field)
		}
		for id := range strings.SplitSeq(strings.TrimSuffix(page, "\n"), "\n") {
			a.outcomes[short+"/"+id]++
		}
	})
}

// readJobs compares every job's record with where the job lies.
func (a *auditor) readJobs(ctx context.Context) error {
	seen := 0
	if err := a.hash(ctx, keyJobs, func(job, rec string) {
		seen++
		short, _, _ := strings.Cut(job, "/")
		g := a.groups[short]
		if g == nil {
			a.bad("owner", "job %s has no group", job)
			return
		}
		place, placed := a.places[job]
		if strings.HasPrefix(rec, "P") {
			g.unended++
			if !pendingRecord.MatchString(rec) {
				a.bad("record", "job %q: record %.40q", job, rec)
			}
			if !placed {
				a.bad("one place", "job %s has not ended and is nowhere", job)
			}
			if a.outcomes[job] > 0 {
				a.bad("one place", "job %s has not ended and is among the outcomes", job)
			}
			return
		}
		g.ended++
		letter := strings.HasPrefix(rec, "D")
		if letter {
			g.dead++
		}
		if kept := a.letters["F"+job]; kept {
			g.kept++
			if o, err := parseOutcome(job, rec); err != nil || o.Status != "failed" || o.Payload == nil {
				a.bad("dead letter", "job %s is among the failed ones that can be redriven: record %.40q", job, rec)
			}
			delete(a.letters, "F"+job)
		}
		if letter != a.letters[job] {
			a.bad("dead letter", "job %s is dead and kept: %t, is among the dead letters: %t", job, letter, a.letters[job])
		}
		delete(a.letters, job)
		if _, err := parseOutcome(job, rec); err != nil {
			a.bad("record", "%v", err)
		}
		if placed {
			a.bad("one place", "job %s has ended and is in %s", job, place)
		}
		if n := a.outcomes[job]; n > 1 || n == 0 && a.kept(g) {
			a.bad("one outcome", "job %s is %d times among the outcomes", job, n)
		}
	}); err != nil {
		return err
	}
	a.marks = map[string]int64{}
	for job, place := range a.places {
		if place == "in-flight" {
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
	}
	for job := range a.letters {
		a.bad("dead letter", "%s is among the dead letters and has no record", job)
	}
	return a.hash(ctx, keyRuns, func(job, run string) {
		if !runRecord.MatchString(run) {
			a.bad("record", "runs of job %q: %.40q", job, run)
		}
		if a.places[job] == "" || a.places[job] == "order" {
			a.bad("owner", "runs of job %s, which does not run and does not wait", job)
		}
	})
}

// What lua/lib/bulkjobs.lua has to be able to read.
var (
	pendingRecord = regexp.MustCompile(`^P\d+ \S+( \S+)*\n`)
	runRecord     = regexp.MustCompile(`^\d+ \d+ \d+ \d+ \d+( \S*( [^@ ]\S*)?( @\d+ \S+)?)?$`)
)

// kept says whether a group's outcomes must all be there still.
func (a *auditor) kept(g *audited) bool {
	return g.raw["finished"] == 0 || a.now < g.raw["finished"]+a.s.conf.Load().KeepJobs.Microseconds()
}

// readLines notes which groups the fair queue holds.
func (a *auditor) readLines(ctx context.Context) error {
	a.queued = map[string]int64{}
	if a.score {
		for i, key := range []int{keyHigh, keyNormal, keyLow} {
			if err := a.zset(ctx, key, func(short string, _ float64) {
				if g := a.groups[short]; g != nil {
					g.lines = append(g.lines, fmt.Sprintf("%d/%s", i+1, g.Tenant))
				} else {
					a.bad("owner", "group %s in the fair queue is not there", short)
				}
			}); err != nil {
				return err
			}
		}
		return nil
	}
	return a.zset(ctx, keyLines, func(member string, _ float64) {
		w := strings.Split(member, "/")
		if len(w) != 4 || a.groups[w[3]] == nil {
			a.bad("owner", "group %s in the fair queue is not there", member)
			return
		}
		if tag := fmt.Sprintf("%020d", a.groups[w[3]].raw["tag"]); tag != w[2] {
			a.bad("fair queue", "group %s is in line at %s, its tag is %s", a.groups[w[3]].ID, w[2], tag)
		}
		a.groups[w[3]].lines = append(a.groups[w[3]].lines, w[0]+"/"+w[1])
		a.queued[w[0]+"/"+w[1]]++
	})
}

// hash reads a hash in steps. A field that a rehash shows twice is seen once.
func (a *auditor) hash(ctx context.Context, key int, each func(field, value string)) error {
	var cursor uint64
	seen := map[string]bool{}
	for {
		part, next, err := a.s.o.Client.HScan(ctx, a.s.keys[key], cursor, "", 1000).Result()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
		for i := 0; i+1 < len(part); i += 2 {
			if !seen[part[i]] {
				seen[part[i]] = true
				each(part[i], part[i+1])
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// zset reads a sorted set in steps.
func (a *auditor) zset(ctx context.Context, key int, each func(member string, score float64)) error {
	var cursor uint64
	seen := map[string]bool{}
	for {
		part, next, err := a.s.o.Client.ZScan(ctx, a.s.keys[key], cursor, "", 1000).Result()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
		for i := 0; i+1 < len(part); i += 2 {
			if score, err := strconv.ParseFloat(part[i+1], 64); err == nil && !seen[part[i]] {
				seen[part[i]] = true
				each(part[i], score)
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

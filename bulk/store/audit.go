package store

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// auditLooks is how many passes must find a violation: beside a running engine, one pass sees jobs on their way from
// one place to the next.
const auditLooks = 3

// Audit checks every invariant. It reads in bounded steps while the engine runs and repeats the pass for suspected
// violations before it reports them. It holds about 20 bytes a job in memory, for auditPart jobs at a time; for more,
// it reads the shard several times.
func (s upkeepStore) Audit(ctx context.Context) ([]Violation, error) {
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

// auditor is one pass over the whole shard.
type auditor struct {
	s        upkeepStore
	found    map[Violation]bool
	now      int64
	score    bool                // the fair queue is in the order of the score policy
	state    map[string]string   // of the shard
	groups   map[string]*audited // by short name
	jobs     jobFacts            // of the present part of the jobs
	gates    map[string]bool     // entries with a wake time
	queued   map[string]int64    // tenant and level → queued groups
	bars     map[string]bool     // groups that wait for their type's limits, as entries of aside
	marks    map[string]int64    // type → runs that count towards its concurrency
	batches  map[string]bool     // shared leases by name
	breakers map[string]bool     // those with a record, as entries of aside
}

// audited is a group's record and what the pass found of it.
type audited struct {
	found
	raw                                    map[string]int64
	order, front, ready, waiting, inflight int64
	aside                                  int64
	bar                                    string
	unended, ended, dead, kept, half       int64
	codes                                  int64 // jobs whose error codes are counted
	unkept                                 int64 // ended jobs whose outcome the group does not keep
	calledOff                              int64 // running jobs that are to be cancelled
	lines                                  []string
}

func (a *auditor) bad(invariant, format string, args ...any) {
	a.found[Violation{Invariant: invariant, What: fmt.Sprintf(format, args...)}] = true
}

func (a *auditor) look(ctx context.Context) error {
	for _, step := range []func(context.Context) error{a.readState, a.readGroups, a.readAllJobs, a.readLines, a.readTenants, a.readOwners} {
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
	a.gates = map[string]bool{}
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
			g, err := parseRecord(line)
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

// Formats that lua/lib/bulkjobs.lua reads.
var (
	pendingRecord = regexp.MustCompile(`^P\d+ \S+( \S+)*\n`)
	runRecord     = regexp.MustCompile(`^\d+ \d+ \d+ \d+ \d+( \S*( [^@ ]\S*)?( @\d+ \S+)?)?$`)
)

// kept reports whether a group's outcomes must all exist.
func (a *auditor) kept(g *audited) bool {
	return g.raw["deleted"] == 0 && (g.raw["finished"] == 0 || a.now < g.raw["finished"]+a.s.conf.Load().KeepJobs.Microseconds())
}

// readLines records the groups in the fair queue.
func (a *auditor) readLines(ctx context.Context) error {
	a.queued = map[string]int64{}
	if a.score {
		for i, key := range []int{keyHigh, keyNormal, keyLow} {
			if err := a.zset(ctx, key, func(short string, _ float64) {
				if g := a.groups[short]; g != nil {
					g.lines = append(g.lines, fmt.Sprintf("%d/%s", i+1, g.Tenant))
				} else {
					a.bad("owner", "the fair queue has group %s, which does not exist", short)
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
			a.bad("owner", "the fair queue has group %s, which does not exist", member)
			return
		}
		if tag := fmt.Sprintf("%020d", a.groups[w[3]].raw["tag"]); tag != w[2] {
			a.bad("fair queue", "group %s is queued at %s, its tag is %s", a.groups[w[3]].ID, w[2], tag)
		}
		a.groups[w[3]].lines = append(a.groups[w[3]].lines, w[0]+"/"+w[1])
		a.queued[w[0]+"/"+w[1]]++
	})
}

// hash reads a hash in steps. A field that a rehash returns twice is passed once.
func (a *auditor) hash(ctx context.Context, key int, each func(field, value string)) error {
	seen := map[string]bool{}
	return a.fields(ctx, key, func(field, value string) {
		if !seen[field] {
			seen[field] = true
			each(field, value)
		}
	})
}

// zset reads a sorted set in steps, each member once.
func (a *auditor) zset(ctx context.Context, key int, each func(member string, score float64)) error {
	seen := map[string]bool{}
	return a.members(ctx, key, func(member string, score float64) {
		if !seen[member] {
			seen[member] = true
			each(member, score)
		}
	})
}

// fields is hash for a hash of any size: a field that a rehash returns twice is passed twice.
func (a *auditor) fields(ctx context.Context, key int, each func(field, value string)) error {
	return scan(ctx, func(cursor uint64) ([]string, uint64, error) {
		return a.s.o.Client.HScan(ctx, a.s.keys[key], cursor, "", scanStep).Result()
	}, each)
}

// members is zset for a sorted set of any size.
func (a *auditor) members(ctx context.Context, key int, each func(member string, score float64)) error {
	return scan(ctx, func(cursor uint64) ([]string, uint64, error) {
		return a.s.o.Client.ZScan(ctx, a.s.keys[key], cursor, "", scanStep).Result()
	}, func(member, text string) {
		if score, err := strconv.ParseFloat(text, 64); err == nil {
			each(member, score)
		}
	})
}

// scanStep is about how many entries one step of a scan reads.
const scanStep = 1000

func scan(ctx context.Context, step func(cursor uint64) ([]string, uint64, error), each func(key, value string)) error {
	for cursor := uint64(0); ; {
		part, next, err := step(cursor)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
		for i := 0; i+1 < len(part); i += 2 {
			each(part[i], part[i+1])
		}
		if cursor = next; cursor == 0 {
			return ctx.Err()
		}
	}
}

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

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
	groups map[string]*audited // by short name
	// places are where a job lies that has not ended; outcomes how often it is in the log of outcomes.
	places   map[string]string
	outcomes map[string]int
	queued   map[string]int64 // tenant and level → groups in line
}

// audited is a group as the store counts it, and as we find it.
type audited struct {
	found
	raw                                    map[string]int64
	order, front, ready, waiting, inflight int64
	unended, ended, dead                   int64
	lines                                  []string
}

func (a *auditor) bad(invariant, format string, args ...any) {
	a.found[Violation{Invariant: invariant, What: fmt.Sprintf(format, args...)}] = true
}

func (a *auditor) look(ctx context.Context) error {
	for _, step := range []func(context.Context) error{a.readGroups, a.readPlaces, a.readJobs, a.readLines, a.readTenants, a.readOwners} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return a.compare(ctx)
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
				return err
			}
			raw := map[string]int64{}
			for i := 1; i+1 < len(line); i += 2 {
				raw[line.string(i)] = line.int(i + 1)
			}
			a.now = max(a.now, raw["now"])
			a.groups[g.key] = &audited{found: g, raw: raw}
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
			if !placed {
				a.bad("one place", "job %s has not ended and is nowhere", job)
			}
			if a.outcomes[job] > 0 {
				a.bad("one place", "job %s has not ended and is among the outcomes", job)
			}
			return
		}
		g.ended++
		if rec[0] == 'D' {
			g.dead++
		}
		if _, err := parseOutcome(job, rec); err != nil {
			a.bad("record", "%v", err)
		}
		if placed {
			a.bad("one place", "job %s has ended and is in %s", job, place)
		}
		if n := a.outcomes[job]; n != 1 && g.raw["why"] == 0 && (n > 1 || a.kept(g)) {
			a.bad("one outcome", "job %s is %d times among the outcomes", job, n)
		}
	}); err != nil {
		return err
	}
	for job, place := range a.places {
		if place == "in-flight" {
			run, err := a.s.o.Client.HGet(ctx, a.s.keys[keyRuns], job).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return fmt.Errorf("%w: %w", ErrStore, err)
			}
			if run == "" || strings.HasPrefix(run, "0 ") {
				a.bad("lease", "job %s is in flight without a fence", job)
			}
		}
	}
	return a.hash(ctx, keyRuns, func(job, _ string) {
		if a.places[job] == "" || a.places[job] == "order" {
			a.bad("owner", "runs of job %s, which does not run and does not wait", job)
		}
	})
}

// kept says whether a group's outcomes must all be there still.
func (a *auditor) kept(g *audited) bool {
	return g.raw["finished"] == 0 || a.now < g.raw["finished"]+a.s.conf.Load().KeepJobs.Microseconds()
}

// readLines notes which groups the fair queue holds.
func (a *auditor) readLines(ctx context.Context) error {
	a.queued = map[string]int64{}
	if a.s.conf.Load().Policy == "score" {
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
		a.groups[w[3]].lines = append(a.groups[w[3]].lines, w[0]+"/"+w[1])
		a.queued[w[0]+"/"+w[1]]++
	})
}

// compare holds each group's counts against what was found.
func (a *auditor) compare(ctx context.Context) error {
	var pending, inflight, queued, open int64
	gates := map[string]float64{}
	if err := a.zset(ctx, keyGates, func(member string, at float64) { gates[member] = at }); err != nil {
		return err
	}
	agenda := map[string]float64{}
	if err := a.zset(ctx, keyAgenda, func(member string, at float64) { agenda[member] = at }); err != nil {
		return err
	}
	for short, g := range a.groups {
		n := g.raw
		equal := func(what string, counted, there int64) {
			if counted != there {
				a.bad("counts", "group %s: %s is counted %d, there are %d", g.ID, what, counted, there)
			}
		}
		swept := g.Status != Cancelled || n["swept"] >= 1
		equal("order", n["added"]-n["taken"], g.order)
		equal("front", n["front"], g.front)
		equal("ready", n["ready"], g.ready)
		equal("non-ready", n["refused"]+n["scheduled"], g.waiting)
		equal("in-flight", n["inflight"], g.inflight)
		ended := n["succ"] + n["fail"] + n["dead"] + n["canc"]
		equal("total", n["total"], g.order+g.front+g.ready+g.waiting+g.inflight+ended)
		equal("unended", n["total"]-ended, g.unended)
		if a.kept(g) {
			equal("ended", ended, g.ended)
			equal("dead letters", n["dead"]-n["redriven"], g.dead)
		}
		if swept && g.Status.Ended() && g.Cancelled != n["canc"] {
			a.bad("cancelled", "group %s: cancelled is %d, swept are %d", g.ID, g.Cancelled, n["canc"])
		}
		runnable := !g.Paused && n["gate"] == 0 && n["status"] <= 3 && (g.Sealed || n["held"] == 0) &&
			(n["front"] > 0 || n["taken"] < n["added"]) && (n["conc"] == 0 || n["inflight"]+n["ready"] < n["conc"])
		if want := map[bool]int{true: 1}[runnable]; len(g.lines) != want || n["queued"] != int64(want) {
			a.bad("fair queue", "group %s: runnable %t, marked %d, in line %v", g.ID, runnable, n["queued"], g.lines)
		}
		if _, there := gates["g/"+short]; there != (n["gate"] > 0) {
			a.bad("gate", "group %s: gated until %d, a wake time is there: %t", g.ID, n["gate"], there)
		}
		delete(gates, "g/"+short)
		if _, there := agenda[short]; !there && (g.Status.Ended() || g.Status == Aggregating || (!g.Sealed && g.Status == Created)) {
			a.bad("retention", "group %s is %s and nobody looks after it", g.ID, g.Status)
		}
		if late := a.now - int64(agenda[short]); g.Status.Ended() && agenda[short] > 0 && late > (10*time.Minute).Microseconds() {
			a.bad("retention", "group %s: housekeeping is %s late", g.ID, duration(late))
		}
		if g.Status != Cancelled {
			pending += g.order + g.front
		}
		if !g.Status.Ended() {
			open++
		}
		inflight += g.inflight
		queued += int64(len(g.lines))
	}
	for gate := range gates {
		if strings.HasPrefix(gate, "g/") {
			a.bad("gate", "a wake time for group %s, which is not gated or not there", gate)
		}
	}
	state, err := a.s.o.Client.HGetAll(ctx, a.s.keys[keyState]).Result()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	for name, there := range map[string]int64{"pending": pending, "inflight": inflight, "queued": queued, "open_groups": open} {
		if counted := asInt(state[name]); counted != there {
			a.bad("counts", "shard: %s is counted %d, there are %d", name, counted, there)
		}
	}
	return nil
}

func (a *auditor) readTenants(ctx context.Context) error {
	type sums struct{ inflight, open, groups int64 }
	want := map[string]*sums{}
	for _, g := range a.groups {
		t := want[g.Tenant]
		if t == nil {
			t = &sums{}
			want[g.Tenant] = t
		}
		t.groups++
		t.inflight += g.inflight
		t.open += g.order + g.front + g.ready + g.waiting + g.inflight
	}
	busy := map[string]bool{}
	if err := a.zset(ctx, keyBusy, func(member string, _ float64) { busy[member] = true }); err != nil {
		return err
	}
	active := map[string]bool{}
	for i, key := range []int{keyHigh, keyNormal, keyLow} {
		if a.s.conf.Load().Policy == "score" {
			break
		}
		if err := a.zset(ctx, key, func(member string, _ float64) {
			active[member] = true
			if !strings.HasPrefix(member, strconv.Itoa(i+1)+"/") {
				a.bad("fair queue", "tenant %s is in level %d", member, i+1)
			}
		}); err != nil {
			return err
		}
	}
	names, err := a.s.tenantNames(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		r, err := a.s.run(ctx, "tenant_read", name)
		if err != nil {
			return err
		}
		v, t := list(r.at(0)), want[name]
		if len(v) == 0 {
			continue
		}
		if t == nil {
			t = &sums{}
		}
		delete(want, name)
		for _, row := range []struct {
			what  string
			has   int64
			there int64
		}{{"in-flight", v.int(3), t.inflight}, {"jobs to do", v.int(6), t.open}, {"groups", v.int(2), t.groups}} {
			if row.has != row.there {
				a.bad("counts", "tenant %s: %s is counted %d, there are %d", name, row.what, row.has, row.there)
			}
		}
		if busy[name] != (t.open > 0) {
			a.bad("tenant", "tenant %s has %d jobs to do, and is among the busy: %t", name, t.open, busy[name])
		}
		delete(busy, name)
		for level := range 3 {
			flow := strconv.Itoa(level+1) + "/" + name
			if a.s.conf.Load().Policy == "score" {
				continue
			}
			if n := v.int(12 + level); n != a.queued[flow] {
				a.bad("fair queue", "tenant %s: %d groups in line, counted %d", flow, a.queued[flow], n)
			}
			if should := a.queued[flow] > 0 && v.int(15) == 0; should != active[flow] {
				a.bad("fair queue", "tenant %s: should have its turn: %t, is in line: %t", flow, should, active[flow])
			}
		}
	}
	for name := range want {
		a.bad("owner", "tenant %s has groups and no record", name)
	}
	for name := range busy {
		a.bad("owner", "tenant %s is among the busy and has no record", name)
	}
	return nil
}

// readOwners looks for data without an owner, and for keys that are neither ours nor end.
func (a *auditor) readOwners(ctx context.Context) error {
	owned := func(what, short string) {
		if a.groups[short] == nil {
			a.bad("owner", "%s of group %s, which is not there", what, short)
		}
	}
	for what, key := range map[string]int{"spec": keyGroups, "result": keySums} {
		if err := a.hash(ctx, key, func(field, _ string) { owned(what, field) }); err != nil {
			return err
		}
	}
	if err := a.hash(ctx, keyChunks, func(field, _ string) {
		short, _, _ := strings.Cut(field, ":")
		owned("chunk", short)
	}); err != nil {
		return err
	}
	if err := a.hash(ctx, keyNames_, func(id, short string) { owned("name "+id, short) }); err != nil {
		return err
	}
	if err := a.zset(ctx, keyDead, func(member string, _ float64) {
		short, _, _ := strings.Cut(member, "/")
		owned("dead letter", short)
	}); err != nil {
		return err
	}
	node, err := a.s.master(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	known := map[string]bool{layoutKey(a.s.o.Prefix): true}
	for _, k := range a.s.keys {
		known[k] = true
	}
	prefix := strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`).Replace(strings.TrimSuffix(a.s.keys[keyState], "state"))
	iter := node.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for iter.Next(ctx) {
		key := iter.Val()
		if known[key] {
			continue
		}
		if ttl, err := node.PTTL(ctx, key).Result(); err != nil {
			return fmt.Errorf("%w: %w", ErrStore, err)
		} else if ttl == -1 { // -2: it is gone by now
			a.bad("owner", "key %s has neither an owner nor an expiry", key)
		}
	}
	if err := iter.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return nil
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

package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// compare compares each group's counts with what was found.
func (a *auditor) compare(ctx context.Context) error {
	var pending, inflight, queued, open, aside, barred int64
	agenda := map[string]float64{}
	if err := a.zset(ctx, keyAgenda, func(member string, at float64) { agenda[member] = at }); err != nil {
		return err
	}
	for short, g := range a.groups {
		n := g.raw
		equal := func(what string, counted, there int64) {
			if counted != there {
				a.bad("counts", "group %s: %s: the record has %d, the data %d", g.ID, what, counted, there)
			}
		}
		swept := g.Status != Cancelled || n["swept"] >= 1
		equal("order", n["added"]-n["taken"], g.order)
		equal("front", n["front"], g.front)
		equal("ready", n["ready"], g.ready)
		equal("non-ready", n["refused"]+n["scheduled"], g.waiting)
		equal("in-flight", n["inflight"], g.inflight)
		ended := n["succ"] + n["fail"] + n["dead"] + n["canc"]
		equal("held back", n["aside"], g.aside)
		equal("total", n["total"], g.order+g.front+g.aside+g.ready+g.waiting+g.inflight+ended)
		equal("not ended", n["total"]-ended, g.unended)
		if a.kept(g) {
			equal("ended", ended, g.ended+n["gone"])
			equal("dead letters", n["dead"]-n["redriven"], g.dead)
			equal("failed jobs with a payload", n["kept"], g.kept)
		}
		if swept && g.Status.Ended() && g.Cancelled != n["canc"] {
			a.bad("cancelled", "group %s: cancelled is %d, %d jobs are recorded as cancelled", g.ID, g.Cancelled, n["canc"])
		}
		slots := n["conc"]
		if lease, there := n["slots"]; there {
			slots = lease
		}
		runnable := !g.Paused && n["gate"] == 0 && n["expired"] == 0 && n["waits"] == 0 && g.bar == "0" && n["status"] <= 3 && (g.Sealed || n["held"] == 0) &&
			(n["front"] > 0 || n["taken"] < n["added"]) && (slots == 0 || n["inflight"]+n["ready"] < slots)
		if want := map[bool]int{true: 1}[runnable]; len(g.lines) != want || n["queued"] != int64(want) {
			a.bad("fair queue", "group %s: may start jobs: %t, marked as queued: %d, in the fair queue: %v", g.ID, runnable, n["queued"], g.lines)
		}
		if there := a.gates["g/"+short]; there != (n["gate"] > 0) {
			a.bad("gate", "group %s: gated until %d, has a wake time: %t", g.ID, n["gate"], there)
		}
		delete(a.gates, "g/"+short)
		if there := a.bars[g.bar]; there != (g.bar != "0") {
			a.bad("gate", "group %s: blocked as %q, listed as blocked: %t", g.ID, g.bar, there)
		}
		if g.bar != "0" {
			barred++
		}
		delete(a.bars, g.bar)
		if n["deleted"] == 0 { // else its data is deleted in steps
			equal("incomplete chunks", n["chunks_open"], g.half)
			equal("jobs to cancel", n["called_off"], g.calledOff)
			a.dropped(g, ended)
		}
		if g.Sealed && n["waits"] == 0 && ended == n["total"] && (g.Status == Dispatched || g.Status == Running) {
			a.bad("life", "group %s is %s although every job has ended", g.ID, g.Status)
		}
		if n["reduced"] > ended {
			a.bad("life", "group %s: %d outcomes are reduced, but only %d exist", g.ID, n["reduced"], ended)
		}
		if bad := g.Failed + g.Dead; n["tally"] == ended+1 && g.codes != bad {
			a.bad("life", "group %s: %d jobs have failed or died, the error codes of %d are counted", g.ID, bad, g.codes)
		}
		a.overdue(g, ended)
		if _, there := agenda[short]; !there && (g.Status.Ended() || g.Status == Aggregating || (!g.Sealed && g.Status == Created) || n["expires"] > 0 || n["waits"] > 0) {
			a.bad("retention", "group %s is %s and has no housekeeping planned", g.ID, g.Status)
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
		aside += g.aside
		queued += int64(len(g.lines))
	}
	for gate := range a.gates {
		a.bad("gate", "a wake time of %s, which is not gated or does not exist", gate)
	}
	for member := range a.bars {
		a.bad("gate", "%q is listed as blocked, but its group is not blocked or does not exist", member)
	}
	watched, tripped := a.checkBreakers()
	var marked int64
	for kind, n := range a.marks {
		marked += n
		if w := strings.Fields(a.state["use:"+kind]); len(w) < 5 || asInt(w[3]) != n {
			a.bad("counts", "type %s: %d runs count towards its concurrency, the state has %q", kind, n, w)
		}
	}
	for name, there := range map[string]int64{"watched": watched, "tripped": tripped, "barred": barred, "marked": marked, "pending": pending, "inflight": inflight, "queued": queued, "open_groups": open, "aside": aside} {
		if counted := asInt(a.state[name]); counted != there {
			a.bad("counts", "shard: %s: the record has %d, the data %d", name, counted, there)
		}
	}
	return nil
}

// late is the tolerated delay of housekeeping.
const late = 10 * time.Minute

// dropped reports missing outcomes that the group keeps, and present ones that it does not.
func (a *auditor) dropped(g *audited, ended int64) {
	n := g.raw
	logged := n["dp"]*outcomesPage + n["dn"]
	if n["gone"] > 0 && g.Results == AllResults || n["gone"] > ended || n["cleared"] > logged {
		a.bad("results", "group %s (results: %q) has %d outcomes, %d of them deleted, and %d of %d log entries processed", g.ID, g.Results, ended, n["gone"], n["cleared"], logged)
	}
	// Nothing is left to do: for a reducer's group, the whole log was processed; for one that counts, nothing was
	// shortened.
	done := n["cleared"] == logged || n["tally"] == ended+1 && n["shrunk"] == 0
	due := g.Status.Ended() && n["reduced"] == ended && n["callback"] != 1 && duration(a.now-n["finished"]) > late
	if g.Results != AllResults && g.unkept > 0 && (done || due) {
		a.bad("results", "group %s (results: %s) has %d outcomes that it does not keep", g.ID, g.Results, g.unkept)
	}
}

// overdue reports data past its retention.
func (a *auditor) overdue(g *audited, ended int64) {
	conf, n := a.s.conf.Load(), g.raw
	if !g.Status.Ended() || n["reduced"] < ended || n["callback"] == 1 {
		return
	}
	since := duration(a.now-n["finished"]) - late
	if letters := n["dead"] - n["redriven"] + n["kept"]; since > conf.KeepJobs && g.ended > letters || since > conf.KeepDead && letters > 0 ||
		since > max(conf.KeepJobs, conf.KeepGroups) && letters == 0 {
		a.bad("retention", "group %s ended at %s, and data past its retention still exists", g.ID, g.FinishedAt)
	}
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
		t.open += g.order + g.front + g.aside + g.ready + g.waiting + g.inflight
	}
	busy := map[string]bool{}
	if err := a.zset(ctx, keyBusy, func(member string, _ float64) { busy[member] = true }); err != nil {
		return err
	}
	active := map[string]bool{}
	for i, key := range []int{keyHigh, keyNormal, keyLow} {
		if a.score {
			break
		}
		if err := a.zset(ctx, key, func(member string, _ float64) {
			active[member] = true
			if !strings.HasPrefix(member, strconv.Itoa(i+1)+"/") {
				a.bad("fair queue", "tenant %s is queued at level %d", member, i+1)
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
		}{{"in-flight", v.int(3), t.inflight}, {"unfinished jobs", v.int(6), t.open}, {"groups", v.int(2), t.groups}} {
			if row.has != row.there {
				a.bad("counts", "tenant %s: %s: the record has %d, the data %d", name, row.what, row.has, row.there)
			}
		}
		if busy[name] != (t.open > 0) {
			a.bad("tenant", "tenant %s has %d unfinished jobs, listed as busy: %t", name, t.open, busy[name])
		}
		delete(busy, name)
		if there := a.gates["t/"+name]; there != (v.int(15) > 0) {
			a.bad("gate", "tenant %s: gated until %d, has a wake time: %t", name, v.int(15), there)
		}
		delete(a.gates, "t/"+name)
		if v.int(0) == 1000 && v.int(1) == 0 && v.int(2) == 0 && v.int(16) == 0 {
			a.bad("owner", "tenant %s has neither groups nor settings", name)
		}
		full := v.int(17) == 1
		if conc := v.int(16); !a.score && full && (conc == 0 || v.int(3) < v.int(18)) {
			a.bad("tenant", "tenant %s is kept out of the fair queue with %d of %d jobs in flight", name, v.int(3), conc)
		}
		for level := range 3 {
			flow := strconv.Itoa(level+1) + "/" + name
			if a.score {
				continue
			}
			if n := v.int(12 + level); n != a.queued[flow] {
				a.bad("fair queue", "tenant %s: %d groups are queued, the record has %d", flow, a.queued[flow], n)
			}
			if should := a.queued[flow] > 0 && v.int(15) == 0 && !full; should != active[flow] {
				a.bad("fair queue", "tenant %s: must be queued: %t, is queued: %t", flow, should, active[flow])
			}
			delete(active, flow)
		}
	}
	for name := range want {
		a.bad("owner", "tenant %s has groups but no record", name)
	}
	for name := range busy {
		a.bad("owner", "tenant %s is listed as busy but has no record", name)
	}
	for flow := range active {
		a.bad("owner", "tenant %s is in the fair queue but has no record", flow)
	}
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	if err := a.zset(ctx, keyIdle, func(flow string, _ float64) {
		if _, name, _ := strings.Cut(flow, "/"); !known[name] {
			a.bad("owner", "a tag of tenant %s, which does not exist", flow)
		}
	}); err != nil {
		return err
	}
	return a.zset(ctx, keyHistory, func(entry string, _ float64) {
		if name, _, _ := strings.Cut(entry, "/"); !known[name] {
			a.bad("owner", "history of tenant %s, which does not exist", name)
		}
	})
}

// readOwners reports data without an owner, and keys that are unknown and do not expire.
func (a *auditor) readOwners(ctx context.Context) error {
	owned := func(what, short string) {
		if a.groups[short] == nil {
			a.bad("owner", "%s of group %s, which does not exist", what, short)
		}
	}
	if err := a.hash(ctx, keyGroups, func(field, _ string) { owned("spec", field) }); err != nil {
		return err
	}
	if err := a.hash(ctx, keySums, func(field, value string) {
		short, codes := strings.CutSuffix(field, "#")
		owned("result", short)
		if g := a.groups[short]; g != nil && codes {
			for i, word := range strings.Fields(value) {
				if i%2 == 1 {
					g.codes += asInt(word)
				}
			}
		}
	}); err != nil {
		return err
	}
	if err := a.hash(ctx, keyChunks, func(field, value string) {
		at := max(0, strings.IndexAny(field, ":/"))
		owned("chunk", field[:at])
		if g := a.groups[field[:at]]; g != nil && field[at] == ':' && !strings.HasPrefix(value, "=") {
			g.half++
		}
	}); err != nil {
		return err
	}
	named, listed := map[string]string{}, map[string]bool{}
	if err := a.hash(ctx, keyNames_, func(id, short string) {
		owned("name "+id, short)
		named[short] = id
	}); err != nil {
		return err
	}
	if err := a.zset(ctx, keyIndex, func(short string, _ float64) {
		owned("place in the index", short)
		listed[short] = true
	}); err != nil {
		return err
	}
	followed, farFollowed, farWaits := map[string]int64{}, map[string]int64{}, map[string]int64{}
	if err := a.zset(ctx, keyLinks, func(member string, _ float64) {
		w := strings.Fields(member[1:])
		switch {
		case member[0] == 'f' && len(w) == 4:
			owned("wait for group "+w[3], w[0])
			if w[1][0] == '@' && w[2] == notEnded {
				farWaits[w[0]]++
			}
		case member[0] == 'a' && len(w) == 2:
			owned("place behind group "+w[0], w[1])
			owned("follower", w[0])
			followed[w[0]]++
		case member[0] == 'r' && len(w) == 3:
			owned("entry of group "+w[2]+" of shard "+w[1], w[0])
			farFollowed[w[0]]++
		default:
			a.bad("record", "the links have an invalid entry: %q", member)
		}
	}); err != nil {
		return err
	}
	for short, g := range a.groups {
		if followed[short] != g.raw["followed"] {
			a.bad("counts", "group %s: %d groups wait for it, the record has %d", g.ID, followed[short], g.raw["followed"])
		}
		if farFollowed[short] != g.raw["far_followed"] {
			a.bad("counts", "group %s: %d groups on other shards wait for it, the record has %d", g.ID, farFollowed[short], g.raw["far_followed"])
		}
		if g.raw["waits"] > 0 && farWaits[short] != g.raw["far_waits"] {
			a.bad("counts", "group %s waits for %d groups on other shards, the record has %d", g.ID, farWaits[short], g.raw["far_waits"])
		}
	}
	places, labelled := map[string]int{}, map[string]int{}
	if err := a.zset(ctx, keyLists, func(member string, _ float64) {
		list, tail := member[:1], member[1:]
		if list == "l" {
			w := strings.SplitN(tail, "\x00", 3)
			if len(w) < 3 || len(w[2]) <= timeBytes {
				a.bad("owner", "the lists have an invalid entry: %q", member)
				return
			}
			short := w[2][timeBytes:]
			owned("place in a list of labels", short)
			if g := a.groups[short]; g != nil && (w[0] == "" || w[0] == g.Tenant) && slices.Contains(g.Labels.words(), w[1]) {
				labelled[short]++
			}
			return
		}
		if tenant, rest, ok := strings.Cut(tail, "\x00"); ok && list == "t" {
			list, tail = "t"+tenant, rest
		}
		if len(tail) <= 1+timeBytes {
			a.bad("owner", "the lists have an invalid entry: %q", member)
			return
		}
		short := tail[1+timeBytes:]
		owned("place in a list", short)
		if g := a.groups[short]; g != nil && (list == "s" || list == "t"+g.Tenant) && g.Status == statusOf(int64(tail[0]-'0')) {
			places[short]++
		}
	}); err != nil {
		return err
	}
	for short, g := range a.groups {
		if n := len(g.Labels.words()); labelled[short] != 2*n && g.Part == 0 {
			a.bad("list", "group %s: %d entries in the lists by label instead of %d", g.ID, labelled[short], 2*n)
		}
		if places[short] != 2 {
			a.bad("list", "group %s: %d entries in the lists by tenant and by status instead of 2", g.ID, places[short])
		}
		if named[short] != g.ID || !listed[short] {
			a.bad("owner", "group %s: its short name belongs to %q, in the index: %t", g.ID, named[short], listed[short])
		}
	}
	pipe := a.s.o.Client.Pipeline()
	uniques, lapses := pipe.HLen(ctx, a.s.keys[keyUniques]), pipe.ZCard(ctx, a.s.keys[keyLapses])
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	if uniques.Val() != lapses.Val() {
		a.bad("owner", "%d names are taken for a time, %d have an end", uniques.Val(), lapses.Val())
	}
	node, err := a.s.master(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	known := map[string]bool{layoutKey(a.s.o.Prefix, a.s.o.Shard): true}
	for _, k := range append(keeperKeys(a.s.o.Prefix, a.s.o.Shard), scheduleKeys(a.s.o.Prefix)...) {
		known[k] = true
	}
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
		} else if ttl == -1 { // -2: it no longer exists
			a.bad("owner", "key %s has neither an owner nor an expiry", key)
		}
	}
	if err := iter.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return nil
}

// checkBreakers reports breakers with a record that are not listed, and counts the records and those of open
// breakers.
func (a *auditor) checkBreakers() (watched, tripped int64) {
	for field, packed := range a.state {
		name, is := strings.CutPrefix(field, "brk:")
		if !is {
			continue
		}
		watched++
		var record struct {
			Opened float64 `msgpack:"opened"`
		}
		switch err := msgpack.Unmarshal([]byte(packed), &record); {
		case err != nil:
			a.bad("record", "breaker %s: %v", name, err)
		case record.Opened > 0:
			tripped++
		}
		if !a.breakers[name] {
			a.bad("gate", "breaker %s has a record but is not listed", name)
		}
		delete(a.breakers, name)
	}
	for name := range a.breakers {
		a.bad("gate", "breaker %s is listed but has no record", name)
	}
	return watched, tripped
}

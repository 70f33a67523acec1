package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bulk/calendar"
)

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
	failures string // the error codes of its jobs, if it has ended or is a part of a split group
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
	g.Level = levelOf(cmp.Or(n("inner"), n("level")))
	g.Weight, g.BasePriority = float64(n("weight"))/1000, n("base")
	g.partRate, g.partSlots = n("rate"), n("conc")
	g.Rate, g.Concurrency = g.wholeOf(g.partRate, g.partSlots)
	if g.lentRate = v["whole_rate"] != ""; g.lentRate {
		g.Rate = float64(n("whole_rate")) / 1000
	}
	if g.lentSlots = v["whole_conc"] != ""; g.lentSlots {
		g.Concurrency = n("whole_conc")
	}
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
	if g.waits = n("waits") > 0 && !g.Status.Ended(); g.waits {
		g.Gated, g.GatedUntil, g.GatedBy = true, time.Time{}, GatedByAfter
	}
	for link := range strings.Lines(v["links"]) {
		if w := strings.Fields(link); len(w) == 4 {
			g.Predecessors = append(g.Predecessors, Predecessor{ID: w[3], Status: statusOf(asInt(w[2]))})
		}
	}
	order := strings.Fields(g.After)
	slices.SortStableFunc(g.Predecessors, func(a, b Predecessor) int { return cmp.Compare(slices.Index(order, a.ID), slices.Index(order, b.ID)) })
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

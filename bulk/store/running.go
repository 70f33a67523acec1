package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ProcessStatus is what a process reports with Keep.
type ProcessStatus struct {
	Host      string    // where it runs
	Workers   int       // most jobs at once
	Busy      int       // busy workers
	Types     []string  // of jobs that it runs
	Draining  bool      // it takes no more jobs and ends after its running ones
	Shards    int       // that it is configured with; 0: one
	Chains    bool      // it supports groups that wait for groups on other shards
	StartedAt time.Time // by its own clock

	SplitChains bool // it supports split groups that wait
}

// Process is a process that calls Keep. For one of another version, perhaps only ID, Keeper and SeenAt are known.
type Process struct {
	ID     string
	Keeper bool
	SeenAt time.Time // last call of Keep
	ProcessStatus
}

// RunningJob is a job that a process runs now.
type RunningJob struct {
	Group, Tenant, ID, Type string
	Process                 string
	Attempts                int64 // including this one
	StartedAt               time.Time
}

// MaxRunning is how many jobs Running reads.
const MaxRunning = 10_000

// Processes returns the processes by id.
func (s processStore) Processes(ctx context.Context) ([]Process, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	keys := keeperKeys(s.o.Prefix, s.o.Shard)
	pipe := s.o.Client.Pipeline()
	keeper, seen, status := pipe.Get(ctx, keys[0]), pipe.ZRangeWithScores(ctx, keys[1], 0, -1), pipe.HGetAll(ctx, keys[2])
	if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil { //nolint:errorlint // go-redis returns it as it is
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	all := make([]Process, 0, len(seen.Val()))
	for _, z := range seen.Val() {
		id, _ := z.Member.(string)
		p := Process{ID: id, Keeper: id == keeper.Val(), SeenAt: micros(int64(z.Score))}
		if text := status.Val()[id]; text != "" {
			if json.Unmarshal([]byte(text), &p.ProcessStatus) != nil {
				p.ProcessStatus = ProcessStatus{} // another version may write another form
			}
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Process) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// Running returns the running jobs, longest running first, and their number. Of more than MaxRunning it returns those
// whose leases end first. The list is no snapshot: it may miss a job that starts or ends meanwhile.
func (s jobStore) Running(ctx context.Context) (jobs []RunningJob, all int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	pipe := s.o.Client.Pipeline()
	count := pipe.HGet(ctx, s.keys[keyState], "inflight")
	leased, shared := pipe.ZRange(ctx, s.keys[keyLeases], 0, MaxRunning-1), pipe.ZRange(ctx, s.keys[keyBatches], 0, MaxRunning-1)
	if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil { //nolint:errorlint // go-redis returns it as it is
		return nil, 0, fmt.Errorf("%w: %w", ErrStore, err)
	}
	groups := map[string]GroupSpec{}
	for part := range slices.Chunk(leased.Val(), 1000) {
		found, err := s.runningPart(ctx, part, groups)
		if err != nil {
			return nil, 0, err
		}
		jobs = append(jobs, found...)
	}
	for part := range slices.Chunk(shared.Val(), 100) {
		if len(jobs) >= MaxRunning {
			break
		}
		found, err := s.runningBatches(ctx, part, groups)
		if err != nil {
			return nil, 0, err
		}
		jobs = append(jobs, found...)
	}
	jobs = jobs[:min(len(jobs), MaxRunning)]
	sortRunning(jobs)
	return jobs, max(asInt(count.Val()), int64(len(jobs))), nil
}

func sortRunning(jobs []RunningJob) {
	slices.SortFunc(jobs, func(a, b RunningJob) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Group, b.Group), cmp.Compare(a.ID, b.ID))
	})
}

// runningBatches reads the jobs of shared leases. groups caches groups by short name.
func (s jobStore) runningBatches(ctx context.Context, names []string, groups map[string]GroupSpec) (jobs []RunningJob, err error) {
	all, err := s.batches(ctx, names, func(string, error) {}) // audit reports it
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, b := range all {
		for _, j := range b.jobs {
			keys = append(keys, j.key)
		}
	}
	if err := s.specsOf(ctx, keys, groups); err != nil {
		return nil, err
	}
	for _, b := range all {
		for _, j := range b.jobs {
			short, id, _ := strings.Cut(j.key, "/")
			g := groups[short]
			if g.ID == "" {
				continue
			}
			r := RunningJob{Group: g.ID, Tenant: g.Tenant, ID: id, Type: g.Type, Process: ownerName(b.process), Attempts: 1, StartedAt: micros(j.fence)}
			if j.kind != "-" {
				r.Type = j.kind
			}
			jobs = append(jobs, r)
		}
	}
	return jobs, nil
}

// specsOf reads the specs of the groups of jobs into groups, by short name.
func (s jobStore) specsOf(ctx context.Context, keys []string, groups map[string]GroupSpec) error {
	var unknown []string
	for _, key := range keys {
		short, _, _ := strings.Cut(key, "/")
		if _, known := groups[short]; !known {
			groups[short] = GroupSpec{}
			unknown = append(unknown, short)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	specs, err := s.o.Client.HMGet(ctx, s.keys[keyGroups], unknown...).Result()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	for i, short := range unknown {
		text, there := specs[i].(string)
		var spec GroupSpec
		if there {
			if err := json.Unmarshal([]byte(text), &spec); err != nil {
				return fmt.Errorf("cannot read the spec of group %s: %w", short, err)
			}
		}
		groups[short] = spec
	}
	return nil
}

// runningPart reads running jobs by their keys. groups caches groups by short name.
func (s jobStore) runningPart(ctx context.Context, keys []string, groups map[string]GroupSpec) ([]RunningJob, error) {
	if err := s.specsOf(ctx, keys, groups); err != nil {
		return nil, err
	}
	runs, err := s.o.Client.HMGet(ctx, s.keys[keyRuns], keys...).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	var jobs []RunningJob
	for i, key := range keys {
		text, there := runs[i].(string)
		short, id, _ := strings.Cut(key, "/")
		g := groups[short]
		if !there || g.ID == "" { // the job has ended
			continue
		}
		j := RunningJob{Group: g.ID, Tenant: g.Tenant, ID: id, Type: g.Type}
		// write_run of lua/lib/bulkjobs.lua: fence, tries, crashes, refusals, since, owner, and where they are known @created and the type.
		run, about, known := strings.Cut(text, " @")
		words := strings.Fields(run)
		if len(words) < 6 {
			continue
		}
		j.StartedAt, j.Attempts, j.Process = micros(asInt(words[0])), asInt(words[1])+1, ownerName(words[5])
		if _, kind, _ := strings.Cut(about, " "); known && kind != "" && kind != "-" {
			j.Type = kind
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// batch is a lease that the jobs of one pull share (see lua/lib/bulkleases.lua).
type batch struct {
	process string
	jobs    []batchJob // that run under it
}

// batchJob is a job that runs for the first time.
type batchJob struct {
	key   string // <short name>/<id>
	fence int64
	kind  string // type; -: that of the group
	mark  string // type towards whose concurrency it counts; empty: none
}

// parseBatch parses the two records of a batch. text lists its jobs, and digits has a 0 for each that runs under it. first is
// the fence of the first job.
func parseBatch(first int64, text, digits string) (b batch, err error) {
	lines := strings.Split(text, "\n")
	b.process = lines[0]
	job, at := batchJob{}, 0
	for _, line := range lines[1 : len(lines)-1] {
		if rest, ok := strings.CutPrefix(line, "@"); ok {
			w := strings.Split(rest, " ")
			if len(w) != 3 {
				return b, fmt.Errorf("batch %d: cannot read %q", first, line)
			}
			if job.kind, job.mark = w[1], w[2]; job.mark == "-" {
				job.mark = ""
			}
			continue
		}
		if at >= len(digits) {
			break
		}
		if digits[at] == '0' {
			job.key, job.fence = line, first+int64(at)
			if job.kind == "" || !strings.Contains(line, "/") {
				return b, fmt.Errorf("batch %d: cannot read job %d: %q", first, at, line)
			}
			b.jobs = append(b.jobs, job)
		}
		at++
	}
	if at != len(digits) || strings.Trim(digits, "01") != "" || !strings.HasSuffix(text, "\n") {
		return b, fmt.Errorf("batch %d: %d jobs, but the digits are %.40q", first, at, digits)
	}
	return b, nil
}

// batches reads batches by name. For one that is missing, because it has ended meanwhile, or that cannot be read, it calls bad
// and returns a batch without jobs.
func (s *shard) batches(ctx context.Context, names []string, bad func(name string, err error)) ([]batch, error) {
	if len(names) == 0 {
		return nil, nil
	}
	fields := make([]string, 0, 2*len(names))
	for _, n := range names {
		fields = append(fields, "b"+n, "o"+n)
	}
	found, err := s.o.Client.HMGet(ctx, s.keys[keyRuns], fields...).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	all := make([]batch, len(names))
	for i, name := range names {
		text, one := found[2*i].(string)
		digits, two := found[2*i+1].(string)
		first, err := strconv.ParseInt(name, 10, 64)
		switch {
		case !one && !two:
			err = errNoBatch
		case err == nil:
			all[i], err = parseBatch(first, text, digits)
		}
		if err != nil {
			all[i] = batch{}
			bad(name, err)
		}
	}
	return all, nil
}

// errNoBatch is passed to bad for a batch that is missing.
var errNoBatch = errors.New("it has no record")

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
)

// handler runs a job of a tenant.
type handler = func(ctx context.Context, tenant string)

// side is one of those that are compared. Tenants are numbered; asynq has a queue for each.
type side interface {
	name() string
	// fill enqueues jobs[i] jobs of each tenant i, the first tenant's first.
	fill(ctx context.Context, jobs []int) error
	// start runs jobs on workers; the tenants have equal weights.
	start(workers, tenants int, handle handler) (stop func(), err error)
	// left returns how many jobs have not ended, and how many of them are running.
	left(ctx context.Context, tenants int) (left, running int64, err error)
}

// submitter is a side to which single jobs are submitted.
type submitter interface {
	side
	// submit enqueues one job of tenant 0. The first call may take longer.
	submit(ctx context.Context) error
}

// peer is a side that is measured only if --peers names it, where one tenant has all jobs.
type peer interface {
	submitter
	meter
	enqueuer
}

// meter is a side whose store is not the shared Redis alone or whose workers are not in this process.
type meter interface {
	// empty deletes all jobs.
	empty(ctx context.Context) error
	// used returns the processor time that the side has used so far.
	used(ctx context.Context) (usage, error)
}

// usage is processor time, and calls of scripts.
type usage struct {
	store, worker time.Duration
	calls         int64
}

// shared returns the processor time of a Redis and of this process.
func shared(ctx context.Context, redis *rig.Redis) (usage, error) {
	s, err := redis.Stats(ctx)
	return usage{s.CPU, rig.OwnCPU(), s.Calls}, err
}

// way is a way to enqueue all jobs.
type way struct {
	name  string
	put   func(ctx context.Context) error
	apart bool // the jobs are not in Redis
}

// enqueuer is a side of which enqueueing is measured.
type enqueuer interface {
	// ways returns the ways to enqueue jobs of tenant 0.
	ways(b *bench, jobs int) []way
}

// errLeftOut is the error of a peer of which a program is missing, and which therefore is not measured.
type errLeftOut string

func (e errLeftOut) Error() string { return string(e) }

// peerNames are the values of --peers.
var peerNames = []string{"asynq", "bullmq", "river"}

// openPeers starts the peers that --peers names. asynq is not among them: it is in every measurement.
func openPeers(r *rig.Run, redis *rig.Redis, o options) (peers []peer) {
	wanted := strings.Split(o.peers, ",")
	for _, name := range wanted {
		rig.Require(slices.Contains(peerNames, name), "--peers %s: no such peer; there are %s", name, strings.Join(peerNames, ", "))
	}
	open := map[string]func() peer{
		"bullmq": func() peer { return newBullMQ(r, redis, o.bullmq, o.nodes) },
		"river":  func() peer { return newRiver(r, o.aof) },
	}
	for _, name := range peerNames[1:] {
		if !slices.Contains(wanted, name) {
			continue
		}
		err := rig.Try(func() { peers = append(peers, open[name]()) })
		if missing := errLeftOut(""); errors.As(err, &missing) {
			rig.Say("%s is left out: %s", name, missing)
			continue
		}
		rig.Check(err)
	}
	return peers
}

func tenantName(i int) string { return fmt.Sprintf("t%d", i) }

// payload is 100 bytes of JSON.
var payload = fmt.Appendf(nil, `{"to":"somebody@example.com","text":"%s"}`, bytes.Repeat([]byte{'x'}, 60))

func total(jobs []int) (sum int) {
	for _, n := range jobs {
		sum += n
	}
	return sum
}

// evenly divides jobs among tenants.
func evenly(jobs, tenants int) []int {
	all := make([]int, tenants)
	for i := range all {
		all[i] = jobs / tenants
	}
	return all
}

package main

import (
	"bytes"
	"context"
	"fmt"
)

// handler runs a job of a tenant.
type handler = func(ctx context.Context, tenant string)

// side is one of the two that are compared. Tenants are numbered; asynq has a queue for each.
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

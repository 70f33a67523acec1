package main

import (
	"bytes"
	"context"
	"fmt"
)

// side is one of the two that are compared. Tenants are numbered; asynq has a queue for each.
type side interface {
	name() string
	// fill puts jobs in: as many for each tenant as jobs says, the first tenant's first.
	fill(ctx context.Context, jobs []int) error
	// start runs jobs on so many workers; the side's tenants have equal weights. handle gets the tenant's name.
	start(workers, tenants int, handle func(ctx context.Context, tenant string)) (stop func(), err error)
	// left is how many jobs have not ended, those that run included; running of them run.
	left(ctx context.Context, tenants int) (left, running int64, err error)
	// submit puts in one job of tenant 0. The first call may take longer.
	submit(ctx context.Context) error
}

func tenantName(i int) string { return fmt.Sprintf("t%d", i) }

// payload has 100 bytes, as JSON.
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

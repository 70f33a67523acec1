package client

import (
	"context"
	"net/url"
	"strconv"
)

// WorkersQuery selects jobs; empty fields select all.
type WorkersQuery struct {
	Tenant, Group, Type, Process string
	Limit                        int // 1…1000; 0: 100
}

// Workers returns the processes and running jobs that the token may see. It may be a second old.
func (c limits) Workers(ctx context.Context, which WorkersQuery) (Workers, error) {
	q := url.Values{}
	for name, value := range map[string]string{"tenant": which.Tenant, "group": which.Group, "type": which.Type, "process": which.Process} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if which.Limit != 0 {
		q.Set("limit", strconv.Itoa(which.Limit))
	}
	k := get("v1", "workers")
	k.query = q
	var w Workers
	err := c.do(ctx, k, &w)
	return w, err
}

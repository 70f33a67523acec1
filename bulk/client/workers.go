package client

import (
	"context"
	"net/url"
	"strconv"
	"time"
)

// Process is one of the processes that share the store.
type Process struct {
	ID        string    `json:"id"`
	Host      string    `json:"host"`
	Keeper    bool      `json:"keeper"` // it keeps house for all
	State     string    `json:"state"`  // running; draining: it takes no more jobs
	Workers   int       `json:"workers"`
	Busy      int       `json:"busy"`
	Types     []string  `json:"types"` // of the jobs that it takes
	StartedAt time.Time `json:"started_at,omitzero"`
	SeenAt    time.Time `json:"seen_at"`
}

// RunningJob is a job that a process runs now.
type RunningJob struct {
	Group     string    `json:"group"`
	Tenant    string    `json:"tenant"`
	ID        string    `json:"id"`
	Type      string    `json:"type"`
	Status    string    `json:"status"` // running
	Process   string    `json:"process"`
	Attempts  int64     `json:"attempts"` // with this one
	StartedAt time.Time `json:"started_at"`
}

// Workers are the processes and what runs now.
type Workers struct {
	Processes []Process    `json:"processes"` // none for a tenant's token
	Running   int64        `json:"running"`   // jobs, of which Jobs are the longest running
	Jobs      []RunningJob `json:"jobs"`
}

// WorkersQuery chooses jobs for Client.Workers; empty fields choose all.
type WorkersQuery struct {
	Tenant, Group, Type, Process string
	Limit                        int // 1…1000; 0: 100
}

// Workers lists the processes and what runs now, as far as the token is for it. An answer may be a second old.
func (c *Client) Workers(ctx context.Context, which WorkersQuery) (Workers, error) {
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

package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Breaker is an open breaker: it holds back the jobs of a processor, because what that calls is away.
type Breaker struct {
	Processor string    `json:"processor"`
	Tenant    string    `json:"tenant"` // empty: the jobs of every tenant
	State     string    `json:"state"`  // open, or probing
	OpenedAt  time.Time `json:"opened_at"`
	ProbeAt   time.Time `json:"probe_at,omitzero"` // of open: when the next jobs start
	Probes    int64     `json:"probes"`            // jobs that its round of probes has
	Failures  int64     `json:"failures"`          // of Answers, since shortly before it opened
	Answers   int64     `json:"answers"`
	FailedAt  time.Time `json:"failed_at"`
	Code      string    `json:"code"` // of the last failure
}

// Breakers lists the breakers that are open, as far as the token is for them.
func (c *Client) Breakers(ctx context.Context) ([]Breaker, error) {
	return c.breakers(ctx, get("v1", "breakers"))
}

// LiftBreaker closes the breaker of a processor, or with a tenant the breaker of that tenant's jobs, with the operators' token.
// It returns those that are open still.
func (c *Client) LiftBreaker(ctx context.Context, processor, tenant string) ([]Breaker, error) {
	k := call{method: http.MethodDelete, path: []string{"v1", "breakers"}, query: url.Values{"processor": {processor}}}
	if tenant != "" {
		k.query.Set("tenant", tenant)
	}
	return c.breakers(ctx, k)
}

func (c *Client) breakers(ctx context.Context, k call) ([]Breaker, error) {
	var a struct {
		Breakers []Breaker `json:"breakers"`
	}
	err := c.do(ctx, k, &a)
	return a.Breakers, err
}

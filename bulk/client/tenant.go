package client

import (
	"context"
	"net/http"
	"time"
)

// Congestion is a tenant's state of backpressure.
type Congestion struct {
	Tenant       string    `json:"tenant"`
	NonReady     int64     `json:"non_ready"`
	Pending      int64     `json:"pending"`
	InFlight     int64     `json:"in_flight"`
	Rate         float64   `json:"rate"`    // jobs a second that it may start: its own limit, or its share
	Backoff      float64   `json:"backoff"` // seconds
	Level        string    `json:"level"`   // none, low, moderate, high, critical
	AvgThrottles float64   `json:"avg_throttles"`
	Finished     int64     `json:"finished"`
	Estimate     float64   `json:"estimate"` // seconds, to work off what waits
	At           time.Time `json:"at,omitzero"`
}

// Congestion reads the state of every tenant that has groups.
func (c *Client) Congestion(ctx context.Context) ([]Congestion, error) {
	var a struct {
		Tenants []Congestion `json:"tenants"`
	}
	err := c.do(ctx, get("v1", "congestion"), &a)
	return a.Tenants, err
}

// History reads a tenant's snapshots, at most one a second, the oldest first.
func (c *Client) History(ctx context.Context, tenant string) ([]Congestion, error) {
	var a struct {
		History []Congestion `json:"history"`
	}
	err := c.do(ctx, get("v1", "congestion", tenant, "history"), &a)
	return a.History, err
}

// Limits are the rates in force, in jobs a second.
type Limits struct {
	Global    float64 `json:"global"`
	PerTenant float64 `json:"per_tenant"` // 0: a guaranteed share and no cap
	Burst     float64 `json:"burst"`
	Live      bool    `json:"live"` // an operator set them; the configuration says otherwise
}

// Limits reads the rates in force.
func (c *Client) Limits(ctx context.Context) (*Limits, error) {
	var l Limits
	if err := c.do(ctx, get("v1", "limits"), &l); err != nil {
		return nil, err
	}
	return &l, nil
}

// Tenant is what operators set for a tenant, and its figures.
type Tenant struct {
	Tenant   string  `json:"tenant"`
	Weight   float64 `json:"weight"`
	Rate     float64 `json:"rate"` // 0: as configured
	Groups   int64   `json:"groups"`
	InFlight int64   `json:"in_flight"`
	Served   int64   `json:"served"`
}

// Tenant reads a tenant.
func (c *Client) Tenant(ctx context.Context, name string) (*Tenant, error) {
	var t Tenant
	if err := c.do(ctx, get("v1", "tenants", name), &t); err != nil {
		return nil, err
	}
	return &t, nil
}

// TenantPatch changes a tenant; nil leaves a field as it is, 0 is the configuration's.
type TenantPatch struct {
	Weight *float64 `json:"weight,omitempty"`
	Rate   *float64 `json:"rate,omitempty"`
}

// SetTenant changes a tenant's weight and rate while it runs.
func (c *Client) SetTenant(ctx context.Context, name string, p TenantPatch) (*Tenant, error) {
	k, err := call{method: http.MethodPatch, path: []string{"v1", "tenants", name}}.with(p)
	if err != nil {
		return nil, err
	}
	var t Tenant
	if err := c.do(ctx, k, &t); err != nil {
		return nil, err
	}
	return &t, nil
}

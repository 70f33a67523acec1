package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
)

// Congestion returns the congestion of the tenants with groups that the token may see.
func (c limits) Congestion(ctx context.Context) ([]Congestion, error) {
	var a bulktype.Congestions[time.Time]
	err := c.do(ctx, get("v1", "congestion"), &a)
	return a.Tenants, err
}

// History returns a tenant's congestion over the last minutes (1…1440; 0: an hour), at most one entry a second,
// oldest first.
func (c limits) History(ctx context.Context, tenant string, minutes int) ([]Congestion, error) {
	k := get("v1", "congestion", tenant, "history")
	if minutes != 0 {
		k.query = url.Values{"minutes": {strconv.Itoa(minutes)}}
	}
	var a bulktype.History[time.Time]
	err := c.do(ctx, k, &a)
	return a.History, err
}

// ProcessorPatch changes the limits of a processor. nil leaves a field unchanged or, with Reset, returns it to the
// configuration.
type ProcessorPatch struct {
	Rate        *float64 // jobs a second; 0: no limit
	Concurrency *int64   // 0: no limit
	Reset       bool
}

// SetProcessor changes the limits of one job type. It needs the operators' token.
func (c limits) SetProcessor(ctx context.Context, jobType string, p ProcessorPatch) (*Limits, error) {
	change := map[string]any{}
	if p.Rate != nil || p.Reset {
		change["rate"] = p.Rate
	}
	if p.Concurrency != nil || p.Reset {
		change["concurrency"] = p.Concurrency
	}
	return c.patchLimits(ctx, map[string]any{"processors": map[string]any{jobType: change}})
}

// Limits returns the rates in force.
func (c limits) Limits(ctx context.Context) (*Limits, error) {
	return fetch[Limits](ctx, c.connection, get("v1", "limits"), nil)
}

// SetLimits changes the rates; nil returns to the configuration. It needs the operators' token.
func (c limits) SetLimits(ctx context.Context, global, perTenant *float64) (*Limits, error) {
	return c.patchLimits(ctx, map[string]*float64{"global": global, "per_tenant": perTenant})
}

func (c limits) patchLimits(ctx context.Context, change any) (*Limits, error) {
	return fetch[Limits](ctx, c.connection, call{method: http.MethodPatch, path: []string{"v1", "limits"}}, change)
}

// Tenant returns a tenant.
func (c limits) Tenant(ctx context.Context, name string) (*Tenant, error) {
	return fetch[Tenant](ctx, c.connection, get("v1", "tenants", name), nil)
}

// TenantPatch changes a tenant; nil leaves a field unchanged.
type TenantPatch struct {
	Weight      *float64 `json:"weight,omitempty"`      // 0.01…100
	Rate        *float64 `json:"rate,omitempty"`        // jobs a second; 0: as configured
	Concurrency *int64   `json:"concurrency,omitempty"` // most jobs in flight; 0: any number
}

// SetTenant changes a tenant's weight, rate and concurrency. It needs the operators' token.
func (c limits) SetTenant(ctx context.Context, name string, p TenantPatch) (*Tenant, error) {
	return fetch[Tenant](ctx, c.connection, call{method: http.MethodPatch, path: []string{"v1", "tenants", name}}, p)
}

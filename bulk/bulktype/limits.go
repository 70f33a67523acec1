package bulktype

// Breaker is an open breaker. It holds back jobs of a processor while the service that the processor calls is down.
type Breaker[T any] struct {
	Processor string `json:"processor"`
	Tenant    string `json:"tenant,omitempty"` // empty: jobs of every tenant
	State     string `json:"state"`            // open or probing
	OpenedAt  T      `json:"opened_at"`
	ProbeAt   T      `json:"probe_at,omitzero"` // while open: when the next jobs start
	Probes    int64  `json:"probes"`            // jobs of the present round of probes
	Failures  int64  `json:"failures"`          // of Answers, since shortly before it opened
	Answers   int64  `json:"answers"`
	FailedAt  T      `json:"failed_at"`
	Code      string `json:"code"` // of the last failure
}

// Breakers are the open breakers.
type Breakers[T any] struct {
	Breakers []Breaker[T] `json:"breakers"`
	Away
}

// Congestion is the congestion of a tenant.
type Congestion[T any] struct {
	Tenant          string  `json:"tenant"`
	Level           string  `json:"level"` // none, low, moderate, high, critical
	NonReady        int64   `json:"non_ready"`
	Pending         int64   `json:"pending"`
	InFlight        int64   `json:"in_flight"`
	Concurrency     int64   `json:"concurrency,omitempty"` // most jobs in flight; 0: any number
	Rate            float64 `json:"rate"`                  // jobs a second that the tenant may start: its own limit or its share
	Backoff         float64 `json:"backoff_seconds"`       // the last one
	ThrottlesPerJob float64 `json:"throttles_per_job"`
	Finished        int64   `json:"finished"`
	Estimate        float64 `json:"estimate_seconds"` // time to finish the jobs that are not ready
	At              T       `json:"at,omitzero"`
}

// CongestionSummary is over all tenants in the response.
type CongestionSummary struct {
	Tenants         int     `json:"tenants"`
	Level           string  `json:"level"` // the highest
	NonReady        int64   `json:"non_ready"`
	Pending         int64   `json:"pending"`
	InFlight        int64   `json:"in_flight"`
	Backoff         float64 `json:"backoff_seconds"`   // the longest
	ThrottlesPerJob float64 `json:"throttles_per_job"` // mean over the finished jobs
}

// Congestions is the congestion of all tenants.
type Congestions[T any] struct {
	Summary CongestionSummary `json:"summary"`
	Tenants []Congestion[T]   `json:"tenants"`
	Away
}

// History is the past congestion of a tenant, oldest first.
type History[T any] struct {
	Tenant  string          `json:"tenant"`
	History []Congestion[T] `json:"history"`
	Away
}

// Limits are the rates in force, in jobs a second.
type Limits struct {
	Global     float64                    `json:"global"`
	PerTenant  float64                    `json:"per_tenant"` // 0: each tenant has a guaranteed share and no limit
	Burst      float64                    `json:"burst"`
	Live       bool                       `json:"live"`                 // an operator set them over the configuration
	Adaptive   bool                       `json:"adaptive"`             // Global is found by rate control, not set
	Processors map[string]ProcessorLimits `json:"processors,omitempty"` // those with limits of their own, by job type
	Away
}

// ProcessorLimits are the limits of the jobs of one type over all processes; 0 means none.
type ProcessorLimits struct {
	Rate        float64 `json:"rate"` // jobs a second
	Concurrency int64   `json:"concurrency"`
	InFlight    int64   `json:"in_flight"` // jobs that count towards Concurrency
	Live        bool    `json:"live"`      // an operator set them over the configuration
}

// Tenant is a tenant's settings and counts.
type Tenant struct {
	Tenant      string  `json:"tenant"`
	Weight      float64 `json:"weight"`
	Rate        float64 `json:"rate"`        // 0: as configured
	Concurrency int64   `json:"concurrency"` // most jobs in flight; 0: any number
	Groups      int64   `json:"groups"`
	InFlight    int64   `json:"in_flight"`
	Served      int64   `json:"served"`
	Away
}

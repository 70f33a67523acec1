// Package congestion has the formulas for the backoff of refused jobs and the congestion level of tenants. It is
// pure: time and randomness are parameters. The store's scripts compute the same, see docs/congestion.md.
package congestion

// Package forecast computes what a snapshot of a queue means: how long somebody who joins will wait, at which position a
// ticket is, and when its holder should poll next.
//
// Reading order: forecaster.go keeps the forecast of the newest snapshot; ticket.go derives a ticket's from it; events.go
// reads openings and closings from the plan; accuracy.go compares announced with real waits; recent.go is a ring of samples.
package forecast

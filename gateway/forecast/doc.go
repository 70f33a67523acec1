// Package forecast computes waits, positions and poll intervals from snapshots of a queue.
//
// Reading order: forecaster.go keeps the forecast of the newest snapshot; ticket.go derives the forecast of a ticket; events.go
// reads openings and closings from the plan; accuracy.go compares announced with real waits; recent.go is a ring of samples.
package forecast

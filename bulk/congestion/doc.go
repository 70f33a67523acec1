// Package congestion has the formulas for the estimates and levels of congestion, and for the wait after a failed try. It is
// pure: time and randomness are parameters. The store's scripts compute the others, see docs/congestion.md; package
// congestiontest has those in Go.
package congestion

// Package report computes what happened in a room in a range of time, from its recorded rows and its audit log. It is pure: it reads no
// store and no clock.
//
// Reading order: figures.go (waits, estimates, funnel, guard), report.go (the whole report), rows.go, csv.go and html.go (its forms).
package report

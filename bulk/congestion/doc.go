// Package congestion has the formulas by which refused work waits: how long, and how bad it is. It is pure: no clock, no
// store, no chance but what is passed in. The store's scripts compute the same; docs/congestion.md tells the two together.
package congestion

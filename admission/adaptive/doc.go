// Package adaptive finds the rate of admissions that an origin bears, from the latency and the errors of its responses.
// It is pure: time is a parameter, and nothing here depends on rooms, stores or gateways.
//
// A Recorder counts the responses of one gateway, Recent makes a Report of its last seconds, and Reports of all gateways are merged
// into a Health. Once a second the leading gateway calls Next with it, which returns the State with the new rate.
//
// Reading order: control.go (Policy, Health, Next), gradient.go and step.go (the two modes), state.go, histogram.go and recent.go
// (what is measured), patience.go (other work on the same origin).
package adaptive

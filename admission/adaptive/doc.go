// Package adaptive finds the rate of admissions that an origin bears, from the latency and the errors of its responses.
// It is pure: time is a parameter, and nothing here depends on rooms, stores or gateways.
package adaptive

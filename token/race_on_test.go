//go:build race

package token

// raceDetector is set where sync.Pool drops some of what it is given, on purpose, so that allocations cannot be counted.
const raceDetector = true

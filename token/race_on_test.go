//go:build race

package token

// raceDetector is set with -race: sync.Pool then drops some values on purpose, so that allocations cannot be counted.
const raceDetector = true

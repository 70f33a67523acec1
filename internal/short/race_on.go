//go:build race

package short

const raceDetector = true

// Package short leaves tests out of go test -short, which make check runs, and out of go test -race -short, which make test runs.
package short

import "testing"

// Skip skips the test under go test -short; why completes the sentence "this test ...".
func Skip(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short: this test " + why)
	}
}

// SkipRace skips the test under go test -race -short, where a test without goroutines takes several times as long and a race cannot
// occur; why completes the sentence "this test ...".
func SkipRace(t testing.TB, why string) {
	t.Helper()
	if raceDetector && testing.Short() {
		t.Skip("not with -race -short: this test " + why)
	}
}

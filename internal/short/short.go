// Package short leaves tests out of go test -short, which make check runs.
package short

import "testing"

// Skip skips the test under go test -short; why completes the sentence "this test ...".
func Skip(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short: this test " + why)
	}
}

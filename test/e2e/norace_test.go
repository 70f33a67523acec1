//go:build !race

package e2e

// buildFlags build the programs as the tests were built.
var buildFlags []string

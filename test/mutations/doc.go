// Command mutations breaks the product on purpose, one place at a time, and checks that a test fails each time.
//
// Each entry of the list replaces one snippet of a source file and names the tests of which at least one must then fail.
// It works in copies of the repository.
//
//	make mutations
//	go run ./test/mutations -run 'lua/' -jobs 1
//
// The test of this package checks that every snippet is still there exactly once and every named test exists, so that
// the list follows the code.
package main

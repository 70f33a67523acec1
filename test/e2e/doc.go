// Package e2e drives the built programs as their users do: real processes, sockets and stores, a recording origin and a
// real browser. What it expects is the documented surface, never a Go API of this module.
//
// harness_test.go starts gateways, client_test.go asks them, crowd_test.go sends crowds and judges their admissions. Where
// the tests run with the race detector, so do the programs.
package e2e

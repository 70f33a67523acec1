// Package admissiontest holds what the tests of rooms, limiters and the bulk store share: the limiters of the bulk engine and the formulas of
// its fair queue in plain Go, and the suites that every limiter passes. The model of a room is in the tests of admission.
package admissiontest

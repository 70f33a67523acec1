// Package admissiontest says what the core must do, as plainly as possible: the pure-Go models of a room (lua/room_*.lua)
// and of the fair queue (lua/lib/fair.lua), and the suite that every limiter passes. Tests of the core, and of whatever
// stands on it, are built on them.
package admissiontest

// Package admissiontest is the pure-Go model of a room: what lua/room_*.lua
// must do, written as plainly as possible, for model-based tests of the core
// and of whatever stands on it.
package admissiontest

// Package admissiontest holds models of the scripts in plain Go, for tests: of a room (lua/room_*.lua) and of the fair queue
// (lua/lib/fair.lua). It also has the suites that every limiter passes.
package admissiontest

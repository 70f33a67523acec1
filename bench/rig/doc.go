// Package rig is the skeleton of the measuring commands: it runs a command, starts the servers that the command measures
// in a temporary directory, reads how much processor time they use, and stops them when the command ends.
//
// A measurement is a sequence in which every step may fail. Must and Check end the run at the first failure, as
// testing.T.Fatal ends a test; Command recovers and returns the error. They are for the goroutine of the command only:
// other goroutines return their errors.
package rig

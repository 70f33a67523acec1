// Command gateway is the waiting room: a reverse proxy that admits visitors to
// a site at a rate that the site can bear.
//
// The command tree is in root.go. Each command parses its arguments, loads the
// configuration and calls another package. Results go to stdout, everything
// else to stderr. The exit code is 0, 1 after a failure, and 2 if the command
// line or the configuration is wrong.
package main

// Command gateway is the waiting room: a reverse proxy that lets people in at
// the speed that the site behind it can bear.
//
// The command tree stands in root.go; each command only parses, loads the
// configuration and hands over. Results go to stdout, everything else to
// stderr. The exit code is 0, 1 when something broke, and 2 when the command
// line or the configuration is wrong.
package main

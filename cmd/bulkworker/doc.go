// Command bulkworker runs bulk jobs: it accepts groups of jobs over HTTP, keeps them in the store, and runs each job
// at least once, fairly among tenants and within the configured rates. It is also the command line client of such a
// server.
//
// The command tree is in root.go. Results go to stdout, everything else to stderr. The exit code is 0, 1 after an
// error or a negative result, 2 for an invalid command line or configuration, and 3 if a server or the store cannot
// be reached.
package main

// Command bulkworker runs bulk jobs: it takes groups of jobs over HTTP, keeps them
// in the store, and runs them fairly and at the rates that are set, at least once
// each. It is also the command line of such a server.
//
// The command tree stands in root.go. Results go to stdout, everything else to
// stderr. The exit code is 0, 1 when something broke or an answer is bad, 2 when
// the command line or the configuration is wrong, and 3 when what is asked, a
// server or the store, does not answer.
package main

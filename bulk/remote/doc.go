// Package remote lets workers outside this process run jobs. They lease jobs, extend leases and report verdicts through
// a Broker, which package api serves over HTTP. Any process of the store accepts an extension or a verdict, because the
// handle of a lease has all that a process needs for it.
//
// Reading order: broker.go; lease.go (a request for jobs); parking.go (requests that wait for jobs); verdict.go (the end
// of runs, and extensions); handle.go; presence.go (the list of workers).
package remote

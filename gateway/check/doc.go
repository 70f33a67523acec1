// Package check reads the checks of other proxies: requests that ask whether another request, which their header fields describe,
// may go on. Each proxy describes requests in its own way, its dialect. A check is read in exactly one dialect, and the fields
// of all others are dropped: a proxy that does not write a field forwards the value of its client.
//
// Package gateway decides about the described request as about a request of its own.
package check

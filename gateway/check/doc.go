// Package check reads the checks of other proxies: requests that ask whether a request, which their header fields describe,
// may go on. Each proxy describes requests in its own way, its dialect. A check is read in exactly one dialect, and the fields
// of all others are dropped, because a proxy that does not write a field forwards the value of its client.
//
// describe.go leads from the check to the described request. The decision about the described request is that of package gateway for its own requests.
package check

// Package client reads from a request who sends it: the client's address, the kind of request, the cookies and tokens
// it carries, and what its tokens are bound to.
//
// Reading order: kind.go distinguishes navigations, API clients and the rest; peer.go finds the client's address behind
// trusted proxies; cookies.go names, reads and writes the cookies of a room.
package client

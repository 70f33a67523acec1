// Package wire sends requests whose bytes are ready over plain sockets, in an open loop, for as little processor time as
// that takes, so that what is measured is the server and not the generator beside it.
package wire

// Package route finds the room of a request by its host and path.
//
// Servers read one path in different ways. The package therefore looks up the room of every reading of a path. If the readings lead to
// different rooms, the request is refused, so that no request bypasses a room.
//
// Reading order: table.go maps hosts and paths to rooms and decides about a request; path.go brings a path into normal
// form; readings.go lists the ways in which servers read it; bypass.go matches requests that no room applies to.
package route

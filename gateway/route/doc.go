// Package route finds the room of a request by its host and path.
//
// Servers read one path in different ways. A path therefore leads to a room by every one of its readings: where they
// disagree, the request is refused rather than sent past a room.
//
// Reading order: table.go maps hosts and paths to rooms and decides about a request; path.go brings a path into normal
// form; readings.go lists the ways in which servers read it; bypass.go matches requests that no room applies to.
package route

// Package visitor speaks a gateway's visitor API as a client does: it joins a room's line, polls, claims, leaves, and visits
// the origin with a pass. It knows nothing that a visitor could not know.
package visitor

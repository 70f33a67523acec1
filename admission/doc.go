// Package admission answers one question: who may go now, and how many?
//
// A Room keeps a line of tickets in Redis, ordered by the time of joining, and
// admits them from the head as fast as its limiter allows. Everything that
// must be atomic is a script in package lua; this package holds the keys, the
// calls, the batches that make them cheap, and the snapshot that lets a gateway
// answer most polls without a call.
//
// Reading order: Ticket and Standing in standing.go, lua/room_enter.lua, then
// room.go.
package admission

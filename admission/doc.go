// Package admission is the client of the store for rooms: virtual queues in front of origins.
//
// A Core holds the rooms of one process over one Redis. A Room keeps its tickets in Redis, ordered by the time of joining, and
// admits them from the front as fast as its policy allows:
//
//	core, err := admission.New(admission.Options{Client: redisClient})
//	room := core.Room("sale", policy)       // the policy as configured
//	go core.Run(ctx)                        // ticks the rooms
//	s, refusal, err := room.Join(ctx, admission.Arrival{ID: id, Client: client})
//	s, err = room.Check(ctx, s.Ticket)      // each poll, until s.State is Admitted
//	s, err = room.Claim(ctx, s.Ticket)      // makes the session: s.State is Active
//	room.Touch(id, false)                   // each request of the session
//
// The caller signs s.Ticket as a token: the token is the place, and Redis is restored from tokens when it loses its data.
//
// Everything that must be atomic is a script of package lua. This package holds the keys, the calls, the batches that make calls
// cheap, and the snapshot from which gateways answer most polls without a call. Its pure parts are packages of their own:
//
//   - policy: how a room admits, its events and lotteries
//   - snapshot: the state of a room at one tick, and positions
//   - limiter: the rate limiters, used while the store is away
//   - adaptive: the rate that an origin bears
//   - ramp, alarm: changes of a room by a rule
//   - reason, series: why a room admits, and recorded figures
//   - audit: the entries of the audit log
//
// Reading order: ticket.go, join.go, check.go, claim.go; tick.go; then lua/room_enter.lua and lua/room_advance.lua. room.go lists the
// parts of a Room: store.go and calls.go run the scripts, batcher.go collects calls, view.go and sincesnapshot.go compute positions,
// memory.go remembers replies, offline.go serves while the store is away, restore.go repairs a store that lost its data. Operators:
// operators.go (live changes, reset, evacuation), undo.go, ramping.go, alarms.go, planned.go (live events), approvals.go; recorder.go
// and rows.go write and read recorded figures.
package admission

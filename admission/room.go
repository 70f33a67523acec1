package admission

import (
	"strconv"
	"time"
)

// Room is the queue in front of one origin. Its methods are safe for concurrent use.
//
// A Room is divided into parts by what they need; each holds pointers to the parts that it uses.
type Room struct {
	identity

	// Parts with methods for callers.
	joins     // runs Join
	tickets   // answers polls and claims, gives up places
	view      // reads the snapshot and the clocks: positions
	draws     // reads lotteries
	sessions  // sends heartbeats and revocations
	lease     // holds a lease of the origin's budget
	ticker    // runs the loop that ticks the room
	steering  // runs the loop that adapts the rate
	operators // changes the room for operators

	store       store       // runs the scripts, restores lost data, detects outages
	calls       ticketCalls // runs the scripts about single tickets, in batches
	memory      memory      // remembers the last replies about tickets
	joinLimiter joinLimiter // counts the joins of addresses
	offline     offline     // decides while the store is away
}

// identity has the fields that every part of a room uses.
type identity struct {
	c    *Core
	id   string
	keys []string
}

func newRoom(c *Core, id string, p Policy) *Room {
	me := identity{c: c, id: id, keys: roomKeys(c.o.Prefix, id)}
	r := &Room{identity: me}
	r.memory.init()
	r.view.identity, r.view.core = me, c
	r.draws.identity, r.draws.view = me, &r.view
	r.store.init(me, &r.view, &r.sessions)
	r.calls.init(me, &r.view, &r.store, &r.memory)
	r.sessions.init(me, &r.view, &r.store, &r.memory)
	r.offline = offline{identity: me, view: &r.view, store: &r.store, memory: &r.memory, sessions: &r.sessions, joinLimiter: &r.joinLimiter}
	r.tickets = tickets{
		identity: me, view: &r.view, draws: &r.draws, store: &r.store, calls: &r.calls, memory: &r.memory,
		joinLimiter: &r.joinLimiter, offline: &r.offline,
	}
	r.joins.identity, r.joins.tickets, r.joins.view, r.joins.store, r.joins.calls = me, &r.tickets, &r.view, &r.store, &r.calls
	r.joins.memory, r.joins.sessions, r.joins.lease, r.joins.joinLimiter, r.joins.offline = &r.memory, &r.sessions, &r.lease, &r.joinLimiter, &r.offline
	r.lease.identity, r.lease.view = me, &r.view
	r.ticker = ticker{
		identity: me, view: &r.view, draws: &r.draws, store: &r.store, memory: &r.memory, sessions: &r.sessions,
		offline: &r.offline, lease: &r.lease, first: make(chan struct{}),
	}
	r.steering.identity, r.steering.view, r.steering.store = me, &r.view, &r.store
	r.operators.identity, r.operators.view, r.operators.store, r.operators.calls, r.operators.ticker = me, &r.view, &r.store, &r.calls, &r.ticker
	r.operators.ramping.init(me, &r.view, &r.store, &r.ticker)
	r.operators.alarms.init(me, &r.view, &r.store, &r.ticker)
	r.setPolicy(p)
	unknown := &Snapshot{Policy: p.At(r.RedisNow()), Configured: r.view.schedule.Load().At(r.RedisNow())}
	r.view.snap.Store(unknown)
	r.view.sinceSnapshot.Store(&sinceSnapshot{snap: unknown})
	return r
}

// ID returns the room's id.
func (r *identity) ID() string { return r.id }

// Reachable reports whether the store of the room does not count as away. Before the first reply Snapshot().Known is false.
func (r *Room) Reachable() bool { return !r.store.away.Load() }

// tickTimeout is the deadline of calls off the request path.
func (r *identity) tickTimeout() time.Duration { return r.c.tickTimeout() }

func (r *Room) setPolicy(p Policy) {
	if was := r.view.configure(p); was != nil {
		r.store.claimWindow.changed(was.Policy.ClaimWindow, p.ClaimWindow, r.c.mono())
	}
	r.store.wake()
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

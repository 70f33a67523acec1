// Package snapshot reads the snapshot of a room that each tick writes in the store, and computes positions from it.
//
// A snapshot holds the exact orders of the front of the queue and a rank sketch of the rest: samples of rank and order, at most
// 0.5 % of the rank apart. Snapshots are immutable, so gateways answer polls from them without locks.
//
// Reading order: snapshot.go, parse.go and sketch.go (the text that lua/room_advance.lua writes), position.go, tick.go (when a room
// ticks next).
package snapshot

import (
	"time"

	"github.com/anteroom/anteroom/admission/policy"
)

// Snapshot is the state of a room at one tick. Times are room time in microseconds, and orders are order time, unless stated
// otherwise.
type Snapshot struct {
	Known     bool   // false until the store has answered once
	Epoch     string // changes when the store loses data
	Seq       int64
	Fence     int64
	RoomTime  int64 // of the tick; Flow, Since and Hold are on this axis
	Time      int64 // order time of the tick
	RedisTime int64 // Redis's clock at the tick, µs
	ReadAt    int64 // this process's monotonic clock at the tick, ns
	Reset     int64 // order time of the last reset

	Evacuation Evacuation // the last one

	Waiting  int64 // enrolled, and not found absent
	Parked   int64
	Came     int64 // tickets that entered the queue since the room began
	Gone     int64 // tickets that left it at its front since then: admitted, or found absent there
	Admitted int64 // not claimed yet
	Active   int64
	Oldest   int64 // order of the first ticket; 0: nobody waits
	Hold     int64 // no admissions before this room time
	Rate     int64 // in force, thousandths per second: the policy's, or the one that an adaptive strategy found
	Target   int64 // the rate that an adaptive strategy found, in force or not; 0: none yet

	Opens     int64 // the newest opening of a lottery that the store has seen, µs of Redis's clock; 0: none
	Drawn     int64 // its order time
	Prequeued int64 // tickets confirmed before it

	Configured *policy.Span  // the configured policy under Policy
	Policy     policy.Policy // in force: the configuration with the live changes over it
	Version    int64         // of the live changes
	Live       []string      // names of the fields that are changed live
	Facts      Facts         // what the room publishes for those who wait
	Events     string        // live events, as policy.EventsText writes them
	Records    int64         // changes of the records of ramps and alarms since the room began in this store

	Front    []int64 // the first orders, exactly
	Sketch   []Rank  // samples behind Front; the last is the end of the queue
	Ceilings []Rank  // orders of the front for which an earlier snapshot showed a smaller rank
	rough    bool    // the sketch has gaps, so that ranks read from it bind no later snapshot

	Silences []Silence // the last ones, ascending
	Pending  []Pending // tickets that are signed and not enrolled yet
	Flow     []Flow    // admissions of the last 900 seconds, ascending; shared, do not change
	// Passed counts the tickets that the front of the queue passed lately, by time in the queue, ascending; Sample some of those
	// that are in it.
	Passed, Sample []AgeCount
	// Holds are the seconds for which each of the first tickets of Front still counts as present: 0 for an absent ticket, -1 less
	// the seconds for a ticket that missed a poll.
	Holds       []int64
	Revocations int64 // since the room began in this store
	Backlog     bool  // the next tick has more to remove
	Since       int64 // when the flow of the room began to be recorded
	Gateways    int64 // that lately ticked the room
	// Totals since the room began in this store.
	Joins, Admissions, Claims, Lapses, Abandons int64
}

// Facts are what an operator or the site publishes for those who wait. The store keeps them with the live changes.
type Facts struct {
	Hash    string // SHA-256 of Text in hexadecimal; empty: there are none
	Text    string // a JSON document; empty while this process has not read it
	SoldOut bool   // every item is sold out
}

// Evacuation is the end of all sessions of a room at one moment. The zero value is none.
type Evacuation struct {
	Fence int64 // order time: sessions that were claimed by then have ended
	At    int64 // Redis's clock, µs
}

// Ends reports whether the session of a pass has ended by the evacuation. claimed is the order time at which the session was claimed, 0
// where the pass has none; issued is the pass's time of issue in seconds of Redis's clock, which then decides.
func (e *Evacuation) Ends(claimed, issued int64) bool {
	switch {
	case e.Fence == 0:
		return false
	case claimed > 0:
		return claimed <= e.Fence
	}
	return issued <= e.At/1e6
}

// Silence is a time without the store: order time ran on, and presence stood still.
type Silence struct {
	Till   int64 // order time of its end
	Length int64 // µs
}

// Rank is a sample of the rank sketch: an order, and the number of waiting tickets with a smaller one.
type Rank struct {
	Rank, Order int64
	came        int64 // Snapshot.Came when the rank was counted
}

// Pending counts the tickets signed in a second of their orders that are not enrolled yet.
type Pending struct{ Second, Count int64 }

// AgeCount counts tickets by time in the queue, in thousandths; counts decay with 300 s of room time, those of Sample with 30 s.
// Bucket i holds times from 2^(i/4)-1 s: of present tickets until now or until their admission, of absent tickets until their
// presence hold ended. Exposure sums the excess of those times over the start of the bucket, in thousandths of a second.
type AgeCount struct{ Bucket, Present, Absent, Exposure int64 }

// Flow is one second of admissions. Busy is the share of it in which tickets waited and the room was not paused, in thousandths.
type Flow struct{ Second, Admitted, Busy int64 }

// Elapsed returns the time from one moment of order time to another, without the silences of the store.
func (s *Snapshot) Elapsed(from, to int64) time.Duration {
	us := to - from
	for _, g := range s.Silences {
		if g.Till > from {
			us -= min(g.Length, g.Till-from)
		}
	}
	return time.Duration(us) * time.Microsecond
}

// After returns the order time at which d has elapsed since a moment, without the silences of the store.
func (s *Snapshot) After(from int64, d time.Duration) int64 {
	left := d.Microseconds()
	for _, g := range s.Silences {
		if g.Till <= from {
			continue
		}
		until := max(g.Till-g.Length, from)
		if until-from >= left {
			break
		}
		left -= until - from
		from = g.Till
	}
	return from + left
}

// Admits reports whether the room admits anybody at all. A lottery that the store has not opened admits nobody.
func (s *Snapshot) Admits() bool {
	p := &s.Policy
	return !p.Paused && !p.Closed() && p.Rate > 0 && !s.Gathering()
}

// AdmitsNow reports whether a newcomer may be admitted without waiting, as far as the snapshot shows. The limiter and max_active decide.
func (s *Snapshot) AdmitsNow() bool {
	return s.Admits() && s.Policy.MinWait == 0 && s.Waiting == 0 && len(s.Pending) == 0
}

// Gathering reports whether the pre-queue of a lottery is open, or the store has not recorded the opening yet: tickets have no
// order.
func (s *Snapshot) Gathering() bool {
	p := &s.Policy
	return p.Method == policy.Lottery && p.OpensAt > 0 && (s.Drawn == 0 || s.Opens < p.OpensAt)
}

// lateAfterOpening is how late a poll at the end of the spread may be; LATE of lua/lib/lottery.lua.
const lateAfterOpening = 3 * time.Second

// Unheard returns how many tickets of the pre-queue may still poll for the first time since the opening: none once the time for
// that has passed.
func (s *Snapshot) Unheard() int64 {
	if s.Drawn == 0 || s.Prequeued == 0 || s.Gathering() || s.Time > s.Drawn+(s.Policy.Spread(s.Prequeued)+lateAfterOpening).Microseconds() {
		return 0
	}
	return max(0, s.Prequeued-s.Ahead(s.Drawn))
}

package admission

import "time"

// Snapshot is what one tick of a room looked like: built in the store, read by
// every gateway, immutable. Times are room time in microseconds, and orders order
// time, unless named otherwise.
type Snapshot struct {
	Known     bool   // false until the store was heard for the first time
	Epoch     string // changes when the store lost data
	Seq       int64
	Fence     int64
	RoomTime  int64 // when it was built; the axis of Flow, Since and Hold
	Time      int64 // the order time then
	RedisTime int64 // Redis's clock then, µs
	ReadAt    int64 // this process's monotonic clock when it was read, ns

	Waiting  int64 // enrolled and present or not yet found absent
	Parked   int64
	Came     int64 // tickets that were put into the line since the room began
	Gone     int64 // tickets that left it at its head since then: admitted, or not heard of there
	Admitted int64 // not claimed yet
	Active   int64
	Oldest   int64 // order of the head; 0 when nobody waits
	Hold     int64 // nobody is admitted before this room time
	Rate     int64 // in force, thousandths a second: the policy's, or what an adaptive one has come to

	Target int64 // what an adaptive one has come to, whether it is in force or not; 0: nothing yet

	Opens     int64 // a lottery's opening that the store has seen, µs of Redis's clock; 0: none
	Drawn     int64 // the order time at it
	Prequeued int64 // tickets that were confirmed before it

	file    *span    // the configured policy that Policy is laid over
	Policy  Policy   // in force: configuration with live changes over it
	Version int64    // of the live changes
	Live    []string // names of the fields that are changed live

	// Front holds the orders at the head, exactly; Sketch knots beyond it, at most
	// 0.5 % of their rank apart, the last being the tail.
	Front  []int64
	Sketch []Rank
	// ceilings are orders of the front that were told a smaller rank before than is theirs.
	ceilings []Rank
	rough    bool // the sketch has gaps still: what is read off there is a guess, and no promise
	// gaps are the last times in which the store was away: order time ran on, and nobody grew older.
	gaps []silence
	// Pending counts arrivals by second of their order that are signed and not
	// enrolled yet.
	Pending []Pending
	// Flow is the last 900 seconds of admissions, ascending; shared, do not change.
	Flow []Flow
	// Heads counts the tickets that the head of the queue reached lately, by time in the queue, ascending, and Sample some of
	// those that are in it.
	Heads, Sample []AgeCount
	// Holds is for how many more seconds each of the first tickets of Front counts as present: 0 for one that is absent, -1 less
	// the seconds for one that missed a poll.
	Holds   []int64
	revokes int64 // revocations since the room began in this store
	backlog bool  // the next tick finds more to drop
	// Since is when the room's flow began to be recorded.
	Since int64
	// Gateways is how many gateways ticked this room lately.
	Gateways int64
	// Totals since the room began in this store.
	Joins, Admissions, Claims, Lapses, Abandons int64
}

// silence is a time without the store.
type silence struct{ till, us int64 }

// age returns for how long a moment of order time has been over at another, without the times in which the store was away.
func (s *Snapshot) age(now, then int64) time.Duration {
	us := now - then
	for _, g := range s.gaps {
		if g.till > then {
			us -= min(g.us, g.till-then)
		}
	}
	return time.Duration(us) * time.Microsecond
}

// after returns the order time at which a moment will have been over for d, without the times in which the store was away.
func (s *Snapshot) after(then int64, d time.Duration) int64 {
	left := d.Microseconds()
	for _, g := range s.gaps { // ascending
		if g.till <= then {
			continue
		}
		until := max(g.till-g.us, then)
		if until-then >= left {
			break
		}
		left -= until - then
		then = g.till
	}
	return then + left
}

// Rank is an order and how many in line have a smaller one.
type Rank struct {
	Rank, Order int64
	came        int64 // Snapshot.came when it was counted
}

// Pending is a second's arrivals that are not enrolled yet.
type Pending struct{ Second, Count int64 }

// AgeCount counts tickets, in thousandths; counts fade with 300 s of room time, of Sample with 30 s. Bucket i
// holds times in the queue from 2^(i/4)-1 s: of the present until now or their admission, of the absent until their hold ran out.
// Exposure adds up by how much those times exceed that, in thousandths of a second.
type AgeCount struct{ Bucket, Present, Absent, Exposure int64 }

// Flow is one second of admissions. Busy is the share of it in which the line
// was not empty and the room not paused, in thousandths.
type Flow struct{ Second, Admitted, Busy int64 }

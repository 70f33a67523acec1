package admission

// Snapshot is what one tick of a room looked like: built in the store, read by
// every gateway, immutable. Times are room time in microseconds unless named
// otherwise.
type Snapshot struct {
	Known     bool   // false until the store was heard for the first time
	Epoch     string // changes when the store lost data
	Seq       int64
	Fence     int64
	RoomTime  int64 // when it was built
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
	Drawn     int64 // the room time at it
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
	// Pending counts arrivals by second of their order that are signed and not
	// enrolled yet.
	Pending []Pending
	// Flow is the last 900 seconds of admissions, ascending; shared, do not change.
	Flow []Flow
	// Since is when the room's flow began to be recorded.
	Since int64
	// Gateways is how many gateways ticked this room lately.
	Gateways int64
	// Totals since the room began in this store.
	Joins, Admissions, Claims, Lapses, Abandons int64
}

// Rank is an order and how many in line have a smaller one.
type Rank struct {
	Rank, Order int64
	came        int64 // Snapshot.came when it was counted
}

// Pending is a second's arrivals that are not enrolled yet.
type Pending struct{ Second, Count int64 }

// Flow is one second of admissions. Busy is the share of it in which the line
// was not empty and the room not paused, in thousandths.
type Flow struct{ Second, Admitted, Busy int64 }

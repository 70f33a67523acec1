package eta

// Bucket is one second of a room's admissions. A second without a bucket counts as one without demand, so a second in which the
// queue was not empty and nobody was admitted needs its bucket too.
type Bucket struct {
	Second   int64   // room time, s
	Admitted int64   // admissions in that second
	Busy     float64 // 0..1: the share of it in which the queue was not empty and the room not paused, so that admission was wanted
}

// MaxBuckets is how many seconds of history a forecast looks at: those before the current one.
const MaxBuckets = 900

// Input is the state of a room at one moment.
type Input struct {
	Now       int64    // room time, µs
	Wall      int64    // µs since 1970 of the clock on the wall, for hours of the day and the age of a model; 0: Now
	Since     int64    // room time at which the room began, µs
	Hold      int64    // nobody is admitted before this room time, µs
	Buckets   []Bucket // ascending; seconds outside the last MaxBuckets, and the current one, are not looked at
	Rate      float64  // the rate in force, visitors/s; under 0.00001, or not a finite number: admits nobody
	Set       float64  // the rate that people or their plans have set, visitors/s; 0: it is found by measuring, or shared out
	Schedule  []Step   // what the rate will be, ascending; those of the past are not looked at
	Paused    bool
	Waiting   int64 // people in the queue
	Parked    int64 // places that were taken out of the queue for absence
	MaxActive int64 // 0: no limit
	Active    int64 // admitted and active, counted against MaxActive

	// Totals since the room began, from which departures are counted. If they fall, as after a loss of the store's data,
	// counting starts again; all 0: no departures are counted.
	Came     int64 // tickets put into the queue
	Gone     int64 // tickets that left it at its head: admitted, or absent there
	Admitted int64 // admissions, those let in at once included

	// Heads are the tickets that the front of the queue reached lately, Sample some of those that wait; nil: none. Holds are those of
	// the first in the queue; nil: not known. OrderAt returns the order of the ticket with
	// that many ahead; without it the queue is taken to have come evenly since Head.
	Heads   []AgeCount
	Sample  []AgeCount
	Holds   []Hold
	OrderAt func(ahead int64) int64

	// Head is the order of the first in the queue, µs; 0: the queue is empty. Tail is the order of a visitor who joins now; 0:
	// Now. Ahead returns how many tickets have a smaller order. A Predictor needs them to follow places to the front; without
	// Ahead it learns nothing of its errors.
	Head  int64
	Tail  int64
	Ahead func(order int64) int64

	hours *Weights // learnt by a Predictor; nil: none
	full  fullness
}

// Step is a rate that is to come.
type Step struct {
	At   int64   // room time, µs
	Rate float64 // visitors/s
}

// Estimate is a wait in seconds, which lies between Low and High with a probability of 80 %. If nothing is known (paused, rate
// 0, no admissions yet) Known is false and the rest is 0.
type Estimate struct {
	Seconds, Low, High float64
	Known              bool
}

// Estimator makes forecasts. prev is the same room's last forecast by the same estimator, or nil; it is not changed.
type Estimator interface {
	Forecast(prev *Forecast, in Input) *Forecast
}

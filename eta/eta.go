package eta

// Bucket is one second of a room's admissions. A second without a bucket counts as one without demand. So a second with a queue
// and without admissions needs its bucket too.
type Bucket struct {
	Second   int64   // room time, s
	Admitted int64   // admissions in that second
	Busy     float64 // 0..1: the share of it in which the queue was not empty and the room not paused, so that admission was wanted
}

// MaxBuckets is the number of seconds of history that a forecast uses, up to the current second.
const MaxBuckets = 900

// Input is the state of a room at one moment.
type Input struct {
	Now       int64    // room time, µs
	Wall      int64    // wall time, µs since 1970, for hours of the day and the age of a model; 0: Now
	Since     int64    // room time at which the room began, µs
	Hold      int64    // no visitor is admitted before this room time, µs
	Buckets   []Bucket // ascending; only the last MaxBuckets seconds before the current one are used
	Rate      float64  // the rate in force, visitors/s; under 0.00001, or not a finite number: admits nobody
	Set       float64  // the rate that operators or events have set, visitors/s; 0: it comes from an adaptive controller or a budget
	Schedule  []Step   // future rates, ascending; steps of the past are ignored
	Paused    bool
	Waiting   int64 // visitors in the queue
	Parked    int64 // absent tickets taken out of the queue
	MaxActive int64 // 0: no limit
	Active    int64 // admitted and active, counted against MaxActive

	// Totals since the room began, from which departures are counted. If they fall, as after a loss of the store's data,
	// counting starts again; all 0: no departures are counted.
	Came     int64 // tickets put into the queue
	Gone     int64 // tickets that left it at its front: admitted, or absent there
	Admitted int64 // admissions, including those without waiting

	// Passed are the tickets that the front of the queue reached lately, and Sample is a sample of the waiting tickets; nil: none.
	// Holds are the presence holds of the first tickets in the queue; nil: unknown. OrderAt returns the order of the ticket with
	// that many ahead. Without it, arrivals are assumed to be even since Oldest.
	Passed  []AgeCount
	Sample  []AgeCount
	Holds   []Hold
	OrderAt func(ahead int64) int64

	// Oldest is the order of the first in the queue, µs; 0: the queue is empty. Tail is the order of a visitor who joins now; 0:
	// Now. Ahead returns how many tickets have a smaller order. A Predictor needs these to follow places to the front; without
	// Ahead it does not learn from its errors.
	Oldest int64
	Tail   int64
	Ahead  func(order int64) int64

	hours *Weights // learned by a Predictor; nil: none
	full  fullness
}

// Step is a future change of the rate.
type Step struct {
	At   int64   // room time, µs
	Rate float64 // visitors/s
}

// Estimate is a wait in seconds. The real wait is between Low and High with a probability of 80 %. Without an estimate (paused,
// rate 0, no admissions yet) Known is false and the rest is 0.
type Estimate struct {
	Seconds, Low, High float64
	Known              bool
}

// Estimator makes forecasts. prev is the same room's last forecast by the same estimator, or nil; it is not changed.
type Estimator interface {
	Forecast(prev *Forecast, in Input) *Forecast
}

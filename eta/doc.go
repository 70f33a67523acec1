// Package eta estimates how long people in a queue will wait.
//
// An Estimator turns what a room has done lately (Input) into a Forecast, once per snapshot; Forecast.At then answers for
// any place in the queue at the cost of a few multiplications. The package is pure: time is a parameter, a Forecast is
// immutable, and what one forecast has to remember of the last is in the last, which is passed in.
package eta

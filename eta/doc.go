// Package eta estimates how long visitors in a queue will wait.
//
// An Estimator makes a Forecast of a room's recent past (Input), once per snapshot. Forecast.At then returns the Estimate for
// any place in the queue, at the cost of a few multiplications. A Predictor makes one forecast after the other and learns from
// their errors. New returns an Estimator by its name in the configuration. The package is pure: time is a parameter, a Forecast
// is immutable, and an Estimator reads the past only from Input and the last Forecast.
//
// Reading order: eta.go (Input, Estimate), window.go (the default estimator), source.go (the parts that all estimators share),
// forecast.go (Forecast.At), predictor.go and ledger.go (learning from errors), spread.go (ranges), steady.go (no jumps). Then
// the other estimators: fixed.go, ema.go, hourly.go, modelled.go; and the visitors who leave: leavers.go, presence.go,
// turnout.go, cohorts.go.
package eta

package forecast

import "time"

// accuracy compares recent announced waits with the actual ones.
type accuracy struct {
	ratios Recent // announced over real
	ranges Recent // failed: the wait was outside the announced range
}

// accuracyWindow is the time for which a wait counts for Error and Coverage.
const accuracyWindow = 15 * time.Minute

// Range is the place of an actual wait relative to the announced range.
type Range uint8

// Places of an actual wait.
const (
	Below  Range = iota // the wait was shorter
	Within              // it was in the range
	Above               // it was longer
)

// Observe compares an announced wait with the real one, in seconds. Waits that were not announced, and those under a second,
// are not counted.
func (f *Forecaster) Observe(announced Wait, real float64) (ratio float64, in Range, counted bool) {
	if !announced.Known || real < 1 {
		return 0, Within, false
	}
	now := time.Now()
	ratio, in = float64(announced.Seconds)/real, Within // figures are rounded up to whole seconds
	switch {
	case real <= float64(announced.Low-1):
		in = Below
	case real > float64(announced.High):
		in = Above
	}
	f.accuracy.ratios.Add(now, ratio, false)
	f.accuracy.ranges.Add(now, 1, in != Within)
	if f.mu.TryLock() { // a sample of the waits is enough
		f.predictor.AddOutcome(float64(announced.Seconds), real)
		f.mu.Unlock()
	}
	return ratio, in, true
}

// Error returns the median of announced over actual waits in the last quarter of an hour; false without any.
func (f *Forecaster) Error() (float64, bool) {
	ratio, _, ok := f.accuracy.ratios.Quantile(time.Now(), accuracyWindow, 0.5)
	return ratio, ok
}

// Coverage returns the share of admissions in the last quarter of an hour whose wait was in the announced range; false without any.
func (f *Forecaster) Coverage() (float64, bool) {
	_, missed, ok := f.accuracy.ranges.Quantile(time.Now(), accuracyWindow, 0.5)
	return 1 - missed, ok
}

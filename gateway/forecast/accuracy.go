package forecast

import (
	"math"
	"sync"
	"time"
)

// accuracy compares recent announced waits with the actual ones.
type accuracy struct {
	ratios Recent // announced over real
	ranges Recent // failed: the wait was outside the announced range

	mu        sync.Mutex
	announced Announcements
}

// Octaves is the number of classes of waits: the class i has waits from 2^i - 1 s to less than 2^(i+1) - 1 s, the last all longer ones.
const Octaves = 21

// Announcements compares the announced waits with the real ones since the start of the process.
type Announcements struct {
	Waits [Octaves]WaitClass // by real wait
	// Ratios counts announced over real waits: the class i has ratios from 2^((i-20)/4), the first all smaller and the last all larger ones.
	Ratios       [41]int64
	Below, Above int64 // waits outside of the announced range
}

// WaitClass has the announced waits of a class of real waits.
type WaitClass struct {
	Count, Within   int64
	Announced, Real int64 // sums, s
}

// Announcements returns the comparison of announced and real waits.
func (f *Forecaster) Announcements() Announcements {
	f.accuracy.mu.Lock()
	defer f.accuracy.mu.Unlock()
	return f.accuracy.announced
}

// add counts an announced wait.
func (t *Announcements) add(announced, real, ratio float64, in Range) {
	w := &t.Waits[min(Octaves-1, int(math.Log2(1+real)))]
	w.Count++
	w.Announced += int64(announced)
	w.Real += int64(math.Round(real))
	switch in {
	case Within:
		w.Within++
	case Below:
		t.Below++
	case Above:
		t.Above++
	}
	t.Ratios[min(len(t.Ratios)-1, max(0, int(math.Floor(4*math.Log2(max(ratio, 1e-9))))+20))]++
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
	f.accuracy.mu.Lock()
	f.accuracy.announced.add(float64(announced.Seconds), real, ratio, in)
	f.accuracy.mu.Unlock()
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

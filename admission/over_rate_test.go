package admission_test

import "fmt"

// OverRate returns an error if an interval of room time has more admissions than
// rate·dt + burst, under a policy that did not change (thousandths, as in Policy).
// It is exact: it follows the bucket that a limiter with those settings would keep.
func OverRate(list []Admission, rate, burst int64) error {
	level := burst * 1_000_000
	var at int64
	for i, a := range list {
		if i > 0 {
			if a.Room < at {
				return fmt.Errorf("admission %d is at %d, before the one before it at %d", i, a.Room, at)
			}
			if dt := a.Room - at; rate > 0 && dt >= (burst*1_000_000-level)/rate {
				level = burst * 1_000_000
			} else {
				level += dt * rate
			}
		}
		at = a.Room
		if level -= 1_000_000_000; level < 0 {
			return fmt.Errorf("admission %d at room time %d is over %d/1000 a second + %d/1000", i, at, rate, burst)
		}
	}
	return nil
}

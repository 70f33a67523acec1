//go:build !linux

package child

import "time"

// Clock returns the processor time that pid has used so far, to the nanosecond, without its descendants'.
func Clock(int) (time.Duration, error) { return 0, ErrNoCPU }

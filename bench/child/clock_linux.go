package child

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// processClock is the last three bits of the id of a process's clock: the processor time of all its threads.
const processClock = 2

// mostPID is the largest process id that Linux gives; the id of a clock has no room for one above 2^28.
const mostPID = 1 << 22

// Clock returns the processor time that pid has used so far, to the nanosecond, without its descendants'.
func Clock(pid int) (time.Duration, error) {
	if pid < 1 || pid > mostPID {
		return 0, fmt.Errorf("%w: no process has the id %d", ErrNoCPU, pid)
	}
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|processClock), &t); err != nil {
		return 0, fmt.Errorf("%w: process %d: %w", ErrNoCPU, pid, err)
	}
	return time.Duration(t.Nano()), nil
}

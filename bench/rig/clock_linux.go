package rig

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// processClock is the clock type in the last three bits of a process's clock ID: the processor time of all threads.
const processClock = 2

// mostPID is the largest process ID on Linux.
const mostPID = 1 << 22

// Clock returns the processor time that pid has used so far, to the nanosecond, without that of its descendants.
func Clock(pid int) (time.Duration, error) {
	if pid < 1 || pid > mostPID {
		return 0, fmt.Errorf("%w: no process has the ID %d", ErrNoCPU, pid)
	}
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|processClock), &t); err != nil {
		return 0, fmt.Errorf("%w: process %d: %w", ErrNoCPU, pid, err)
	}
	return time.Duration(t.Nano()), nil
}

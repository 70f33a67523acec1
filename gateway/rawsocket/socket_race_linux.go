//go:build race

package rawsocket

import (
	"runtime"
	"syscall"
	"unsafe"
)

// The race detector learns from the calls of package syscall who waits for whom: each write comes before each later read. System calls
// that go past it report the same here, and which memory the kernel read or wrote.

// raceReceived reports that the kernel has written p, which it received from fd.
func raceReceived(fd uintptr, p []byte) {
	if len(p) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&p[0]), len(p))
	}
	// The order is known by a variable of package syscall. A read of nothing takes part in it and leaves the socket alone.
	_, _ = syscall.Read(int(fd), nil)
}

// raceSending reports that the kernel is about to read p. A write to no file takes part in the order, and fails.
func raceSending(p []byte) {
	_, _ = syscall.Write(-1, nil)
	if len(p) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&p[0]), len(p))
	}
}

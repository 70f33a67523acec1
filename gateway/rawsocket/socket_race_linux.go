//go:build race

package rawsocket

import (
	"runtime"
	"syscall"
	"unsafe"
)

// Package syscall reports to the race detector that each write happens before each later read, and which memory the kernel reads
// or writes. The raw system calls of this package bypass it, so these functions report the same.

// raceReceived reports that the kernel has written p, which it received from fd.
func raceReceived(fd uintptr, p []byte) {
	if len(p) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&p[0]), len(p))
	}
	// Package syscall holds the order in a variable. A read of 0 bytes takes part in it and leaves the socket alone.
	_, _ = syscall.Read(int(fd), nil)
}

// raceSending reports that the kernel is about to read p. A write to no file takes part in the order, and fails.
func raceSending(p []byte) {
	_, _ = syscall.Write(-1, nil)
	if len(p) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&p[0]), len(p))
	}
}

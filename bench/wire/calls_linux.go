package wire

import (
	"errors"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of a loop go past Go's scheduler: each returns at once or within a quantum, and if the runtime were told of
// them, its monitor would look at this thread every 20 µs, which costs a sixth of what a request does.

func read(fd int, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func write(fd int, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// look finds out which of the sockets are ready, without waiting.
func look(fds []unix.PollFd) error {
	var none unix.Timespec
	_, _, errno := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)), uintptr(unsafe.Pointer(&none)), 0, 0, 0)
	if errno != 0 && !errors.Is(errno, unix.EINTR) {
		return errno
	}
	return nil
}

// pause sleeps without looking at any socket, so that what arrives meanwhile is read in one go.
func pause(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0) // an interrupted pause is a shorter one
}

// sharpen lets this thread's timers fire when they are due, rather than within the 50 µs that the kernel may add.
func sharpen() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

package wire

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is a non-blocking TCP connection.
type Socket int

// Dial begins to connect; the socket becomes writable when that has ended, and Err tells how.
func Dial(to *net.TCPAddr) (Socket, error) {
	var addr unix.Sockaddr
	family := unix.AF_INET
	if ip := to.IP.To4(); ip != nil {
		addr = &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(ip)}
	} else {
		family = unix.AF_INET6
		addr = &unix.SockaddrInet6{Port: to.Port, Addr: [16]byte(to.IP.To16())}
	}
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err = unix.SetNonblock(fd, true); err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		err = unix.Connect(fd, addr)
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", to, err)
	}
	return Socket(fd), nil
}

// Err is what became of a connection attempt.
func (s Socket) Err() error {
	n, err := unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && n != 0 {
		err = unix.Errno(n)
	}
	return err
}

// Stale tells whether the peer has ended the connection, or sent what nobody asked for.
func (s Socket) Stale() bool {
	var b [1]byte
	_, _, err := unix.Recvfrom(int(s), b[:], unix.MSG_PEEK)
	return !errors.Is(err, unix.EAGAIN)
}

// Write sends what the socket takes at once.
func (s Socket) Write(p []byte) (int, error) {
	for {
		n, err := write(int(s), p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		}
		return max(n, 0), err
	}
}

// Close ends it.
func (s Socket) Close() { _ = unix.Close(int(s)) }

// connectAll waits until every socket is connected.
func connectAll(sockets []Socket, timeout time.Duration) error {
	until := time.Now().Add(timeout)
	fds := make([]unix.PollFd, 0, len(sockets))
	for _, s := range sockets {
		fds = append(fds, unix.PollFd{Fd: int32(s), Events: unix.POLLOUT})
	}
	for len(fds) > 0 {
		left := time.Until(until)
		if left <= 0 {
			return fmt.Errorf("%d of %d connections were not made within %s", len(fds), len(sockets), timeout)
		}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll: %w", err)
		}
		rest := fds[:0]
		for _, f := range fds {
			if f.Revents == 0 {
				rest = append(rest, f)
			} else if err := Socket(f.Fd).Err(); err != nil {
				return err
			}
		}
		fds = rest
	}
	return nil
}

// Connected tells whether a connection attempt has ended, well or not.
func (s Socket) Connected() bool {
	fds := [1]unix.PollFd{{Fd: int32(s), Events: unix.POLLOUT}}
	return look(fds[:]) == nil && fds[0].Revents != 0
}

// Cause is an error without what differs from one to the next.
func Cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

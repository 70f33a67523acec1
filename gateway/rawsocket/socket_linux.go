package rawsocket

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"github.com/anteroom/anteroom/gateway/http1"
)

// socket reads and writes a socket by system calls that Go's scheduler does not see. They never block, so the scheduler
// has nothing to arrange around them; if it saw them, it would take a busy thread that the kernel preempts inside one for
// a blocked thread, and start another. Waiting, deadlines and closing stay with the runtime. The zero value is no socket.
// One goroutine may read while another writes.
type socket struct {
	raw syscall.RawConn
	in  receiving
	out sending
	ask asking
}

// receiving is a read under way.
type receiving struct {
	try   func(fd uintptr) bool
	p     []byte
	n     int
	errno syscall.Errno
	lend  int     // bytes of a block to be borrowed for p once there is something to read
	block *[]byte // the block that was borrowed
}

// sending is a write under way.
type sending struct {
	try   func(fd uintptr) bool
	p     []byte
	errno syscall.Errno
}

// asking is the request of a turn under way.
type asking struct {
	try   func(fd uintptr) bool
	p     []byte
	sent  bool // all of it
	errno syscall.Errno
}

// wrap makes s the socket of c if c is a plain TCP or Unix connection. Connections that wrap one have to see its bytes.
func (s *socket) wrap(c net.Conn) {
	switch c := c.(type) {
	case *net.TCPConn:
		s.raw, _ = c.SyscallConn()
	case *net.UnixConn:
		s.raw, _ = c.SyscallConn()
	}
	if s.raw != nil {
		s.in.try, s.out.try, s.ask.try = s.tryRead, s.tryWrite, s.tryTurn
	}
}

func (s *socket) valid() bool { return s.raw != nil }

// read is net.Conn's Read.
func (s *socket) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.in.p = p
	err := s.raw.Read(s.in.try)
	return s.result(err)
}

// readLent reads at most size bytes into a block that it borrows from the pool once there is something to read. The
// caller returns the block unless it is nil.
func (s *socket) readLent(size int) (block *[]byte, n int, err error) {
	s.in.lend = size
	err = s.raw.Read(s.in.try)
	n, err = s.result(err)
	block, s.in.block, s.in.lend = s.in.block, nil, 0
	return block, n, err
}

func (s *socket) result(err error) (int, error) {
	s.in.p = nil
	switch {
	case err != nil:
		return 0, err
	case s.in.errno != 0:
		return 0, os.NewSyscallError("recvfrom", s.in.errno)
	case s.in.n == 0:
		return 0, io.EOF
	}
	return s.in.n, nil
}

func (s *socket) tryRead(fd uintptr) bool {
	in := &s.in
	if in.lend > 0 {
		in.block = http1.GetBlock()
		in.p = (*in.block)[:in.lend]
	}
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&in.p[0])), uintptr(len(in.p)), syscall.MSG_DONTWAIT, 0, 0)
		switch errno {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			if in.lend > 0 {
				http1.PutBlock(in.block)
				in.block, in.p = nil, nil
			}
			return false
		}
		in.n, in.errno = int(n), errno
		if errno == 0 {
			raceReceived(fd, in.p[:n])
		}
		return true
	}
}

// write is net.Conn's Write.
func (s *socket) write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.out.p, s.out.errno = p, 0
	err := s.raw.Write(s.out.try)
	n := len(p) - len(s.out.p)
	s.out.p = nil
	if err == nil && s.out.errno != 0 {
		err = os.NewSyscallError("sendto", s.out.errno)
	}
	return n, err
}

func (s *socket) tryWrite(fd uintptr) bool {
	out := &s.out
	for len(out.p) > 0 {
		n, errno := send(fd, out.p)
		switch errno {
		case 0:
			out.p = out.p[n:]
		case syscall.EAGAIN:
			return false
		default:
			out.errno = errno
			return true
		}
	}
	return true
}

func send(fd uintptr, p []byte) (int, syscall.Errno) {
	raceSending(p)
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}

// turn sends ask and reads the first bytes of the response, without a read that must fail because the response cannot
// be there yet. It suits peers that send only what they are asked for; bytes that came earlier are read as part of the
// response. If the socket does not take all of ask at once, rest is what is left and nothing has been read.
func (s *socket) turn(ask, p []byte) (n int, rest []byte, werr, err error) {
	s.in.p = p
	s.ask.p, s.ask.sent, s.ask.errno = ask, false, 0
	err = s.raw.Read(s.ask.try)
	rest, s.ask.p = s.ask.p, nil
	if s.ask.errno != 0 {
		werr = os.NewSyscallError("sendto", s.ask.errno)
	}
	if len(rest) > 0 { // also if the deadline had passed before anything was sent
		s.in.p = nil
		return 0, rest, nil, nil
	}
	n, err = s.result(err)
	return n, nil, werr, err
}

// tryTurn runs once before the wait for the response, and then whenever the socket may be readable: the runtime forgets
// the socket's state before the first call, and bytes that arrive after that wake it.
func (s *socket) tryTurn(fd uintptr) bool {
	if s.ask.sent {
		return s.tryRead(fd)
	}
	n, errno := send(fd, s.ask.p)
	switch {
	case errno == 0 && n == len(s.ask.p):
		s.ask.p, s.ask.sent = nil, true
		return false
	case errno == 0:
		s.ask.p = s.ask.p[n:]
		return true
	case errno == syscall.EAGAIN:
		return true
	}
	s.ask.p, s.ask.sent, s.ask.errno = nil, true, errno
	return s.tryRead(fd) // the peer may have sent a response before it closed
}

// peek is recvfrom with MSG_PEEK.
func peek(fd uintptr, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	raceReceived(fd, p[:n])
	return int(n), nil
}

package rawsocket

import (
	"github.com/anteroom/anteroom/gateway/http1"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// socket reads and writes a socket by system calls of which Go's scheduler is not told. They never block, so it has
// nothing to arrange around them; told, it takes a busy thread that the kernel put aside in the middle of one for a
// blocked one, and starts another. Waiting, deadlines and closing are the runtime's as ever. The zero value is no
// socket. One goroutine may read while another writes.
type Socket struct {
	raw     syscall.RawConn
	onRead  func(fd uintptr) bool
	onWrite func(fd uintptr) bool
	onTurn  func(fd uintptr) bool

	in    []byte
	got   int
	inErr syscall.Errno
	lend  int     // so much of in is borrowed when there is something to read
	block *[]byte // … and this is it

	out    []byte
	outErr syscall.Errno

	ask    []byte // what turn sends
	sent   bool   // all of it
	askErr syscall.Errno
}

// of makes s the socket of c, if c is one itself: what wraps one has to see what passes.
func (s *Socket) Of(c net.Conn) {
	switch c := c.(type) {
	case *net.TCPConn:
		s.raw, _ = c.SyscallConn()
	case *net.UnixConn:
		s.raw, _ = c.SyscallConn()
	}
	if s.raw != nil {
		s.onRead, s.onWrite, s.onTurn = s.tryRead, s.tryWrite, s.tryTurn
	}
}

func (s *Socket) Valid() bool { return s.raw != nil }

// read is net.Conn's Read.
func (s *Socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.in = p
	err := s.raw.Read(s.onRead)
	return s.result(err)
}

// readLent is read into the first bytes, at most size, of a block from the pool, which is borrowed once there is
// something to read: whoever waits has none. Give it back, unless it is nil.
func (s *Socket) ReadLent(size int) (block *[]byte, n int, err error) {
	s.lend = size
	err = s.raw.Read(s.onRead)
	n, err = s.result(err)
	block, s.block, s.lend = s.block, nil, 0
	return block, n, err
}

func (s *Socket) result(err error) (int, error) {
	s.in = nil
	switch {
	case err != nil:
		return 0, err
	case s.inErr != 0:
		return 0, os.NewSyscallError("recvfrom", s.inErr)
	case s.got == 0:
		return 0, io.EOF
	}
	return s.got, nil
}

func (s *Socket) tryRead(fd uintptr) bool {
	if s.lend > 0 {
		s.block = http1.GetBlock()
		s.in = (*s.block)[:s.lend]
	}
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&s.in[0])), uintptr(len(s.in)), syscall.MSG_DONTWAIT, 0, 0)
		switch errno {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			if s.lend > 0 {
				http1.PutBlock(s.block)
				s.block, s.in = nil, nil
			}
			return false
		}
		s.got, s.inErr = int(n), errno
		if errno == 0 {
			raceReceived(fd, s.in[:n])
		}
		return true
	}
}

// write is net.Conn's Write.
func (s *Socket) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.out, s.outErr = p, 0
	err := s.raw.Write(s.onWrite)
	n := len(p) - len(s.out)
	s.out = nil
	if err == nil && s.outErr != 0 {
		err = os.NewSyscallError("sendto", s.outErr)
	}
	return n, err
}

func (s *Socket) tryWrite(fd uintptr) bool {
	for len(s.out) > 0 {
		n, errno := send(fd, s.out)
		switch errno {
		case 0:
			s.out = s.out[n:]
		case syscall.EAGAIN:
			return false
		default:
			s.outErr = errno
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

// turn sends ask and reads the first of what comes back, without looking in vain for an answer that cannot be there
// yet. For a peer that speaks only when it is asked: what it said before counts as heard when the answer comes. Where
// the socket does not take all of ask at once, rest is what is left; nothing has been read then.
func (s *Socket) Turn(ask, p []byte) (n int, rest []byte, werr, err error) {
	s.ask, s.in, s.sent, s.askErr = ask, p, false, 0
	err = s.raw.Read(s.onTurn)
	rest, s.ask = s.ask, nil
	if s.askErr != 0 {
		werr = os.NewSyscallError("sendto", s.askErr)
	}
	if len(rest) > 0 { // also where the deadline had passed before anything was sent
		s.in = nil
		return 0, rest, nil, nil
	}
	n, err = s.result(err)
	return n, nil, werr, err
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

// tryTurn is called once before the wait for an answer and then whenever something may have come: the runtime forgets
// what it knew of the socket before the first call, and whatever comes after that wakes it.
func (s *Socket) tryTurn(fd uintptr) bool {
	if s.sent {
		return s.tryRead(fd)
	}
	n, errno := send(fd, s.ask)
	switch {
	case errno == 0 && n == len(s.ask):
		s.ask, s.sent = nil, true
		return false
	case errno == 0:
		s.ask = s.ask[n:]
		return true
	case errno == syscall.EAGAIN:
		return true
	}
	s.ask, s.sent, s.askErr = nil, true, errno
	return s.tryRead(fd) // perhaps it said why
}

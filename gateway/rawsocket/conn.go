// Package rawsocket reads and writes connections, with raw system calls where a connection is a plain socket, and has
// what net.Conn lacks: peeking, half-closing, resetting.
package rawsocket

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// Conn is a connection that is read and written with raw system calls if it is a plain TCP or Unix socket on Linux, and
// through its own methods otherwise (TLS, other systems).
type Conn struct {
	net.Conn
	socket socket
}

// Wrap makes c the connection of r.
func (r *Conn) Wrap(c net.Conn) {
	r.Conn = c
	r.socket.wrap(c)
}

// Raw reports whether raw system calls are used. ReadLent and Turn need them.
func (r *Conn) Raw() bool { return r.socket.valid() }

// Read reads into p.
func (r *Conn) Read(p []byte) (int, error) {
	if r.socket.valid() {
		return r.socket.read(p)
	}
	return r.Conn.Read(p)
}

// Write writes p.
func (r *Conn) Write(p []byte) (int, error) {
	if r.socket.valid() {
		return r.socket.write(p)
	}
	return r.Conn.Write(p)
}

// ReadLent reads at most size bytes into a block that it borrows from http1's pool once there is something to read, so
// that a connection that waits holds no buffer. The caller returns the block unless it is nil.
func (r *Conn) ReadLent(size int) (block *[]byte, n int, err error) { return r.socket.readLent(size) }

// Turn sends ask and reads the first bytes of the response. If the socket does not take all of ask at
// once, rest is what is left and nothing has been read.
func (r *Conn) Turn(ask, p []byte) (n int, rest []byte, werr, err error) {
	return r.socket.turn(ask, p)
}

// Socket returns the socket under a connection, which may be TLS.
func Socket(c net.Conn) net.Conn {
	for {
		t, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = t.NetConn()
	}
}

// PeekResult is what a peek found.
type PeekResult uint8

// The results of a peek.
const (
	PeekQuiet  PeekResult = iota // open, nothing to read
	PeekData                     // bytes to read
	PeekClosed                   // closed by the peer, or broken
)

// Peeker reports whether a socket has bytes to read, without reading them or waiting for them. It does not allocate once bound.
type Peeker struct {
	raw    syscall.RawConn
	peek   func(fd uintptr)
	result PeekResult
	probe  [1]byte
}

// Bind sets the connection that p peeks at.
func (p *Peeker) Bind(c net.Conn) error {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return errors.New("rawsocket: the connection has no descriptor")
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	p.raw = raw
	p.peek = func(fd uintptr) {
		n, err := peek(fd, p.probe[:])
		switch {
		case n > 0:
			p.result = PeekData
		case err == syscall.EAGAIN || err == syscall.EINTR:
			p.result = PeekQuiet
		default:
			p.result = PeekClosed
		}
	}
	return nil
}

// Peek returns the state of the connection.
func (p *Peeker) Peek() PeekResult {
	if p.raw.Control(p.peek) != nil {
		return PeekClosed
	}
	return p.result
}

// PeerClosed reports whether the peer has closed the connection c. It returns false if that cannot be determined.
func PeerClosed(c net.Conn) bool {
	var p Peeker
	if p.Bind(Socket(c)) != nil {
		return false
	}
	return p.raw.Control(p.peek) == nil && p.result == PeekClosed
}

// Abort resets a connection: without FIN and without a TLS close, so that the peer can distinguish a body that was
// cut off from a body that ends with the connection.
func Abort(c net.Conn) {
	c = Socket(c)
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		l.SetLinger(0) //nolint:errcheck // it is closed next
	}
	c.Close()
}

// CloseWrite sends FIN (or a TLS close) and keeps the connection readable. It reports whether that was possible.
func CloseWrite(c net.Conn) bool {
	h, ok := c.(interface{ CloseWrite() error })
	return ok && h.CloseWrite() == nil
}

// Past is a deadline that has passed.
var Past = time.Unix(1, 0)

// IsTimeout reports whether err is a time-out.
func IsTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

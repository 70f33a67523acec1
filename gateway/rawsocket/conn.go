package rawsocket

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// socketOf finds the socket under TLS and the like.
func SocketOf(c net.Conn) net.Conn {
	for {
		t, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = t.NetConn()
	}
}

type PeekResult uint8

const (
	PeekQuiet PeekResult = iota // open, nothing to read
	peekData
	peekClosed
)

func RawConn(c net.Conn) (syscall.RawConn, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.New("proxy: the connection has no descriptor")
	}
	return sc.SyscallConn()
}

// peekSocket looks at what a socket would read, without taking it or waiting for it.
func PeekSocket(fd uintptr, probe []byte) PeekResult {
	n, err := peek(fd, probe)
	switch {
	case n > 0:
		return peekData
	case err == nil:
		return peekClosed
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return PeekQuiet
	}
	return peekClosed
}

// peerClosed reports whether the other side of a connection has ended it.
func PeerClosed(c net.Conn) bool {
	raw, err := RawConn(c)
	if err != nil {
		return false
	}
	var result PeekResult
	var probe [1]byte
	return raw.Control(func(fd uintptr) { result = PeekSocket(fd, probe[:]) }) == nil && result == peekClosed
}

// abortConn resets a connection: no FIN, no TLS close, so a body that ends with the connection is
// seen to be cut.
func AbortConn(c net.Conn) {
	c = SocketOf(c)
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		l.SetLinger(0) //nolint:errcheck // it is closed next
	}
	c.Close()
}

// closeWrite sends FIN (or a TLS close) and keeps reading possible.
func CloseWrite(c net.Conn) bool {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite() == nil
	}
	return false
}

// past is a deadline that has passed.
var Past = time.Unix(1, 0)

func IsTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

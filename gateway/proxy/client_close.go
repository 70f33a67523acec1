package proxy

import (
	"errors"
	"net"
	"time"
)

// Close ends the connection. Where the client may still be sending, the answer would be lost to a
// reset if the socket were closed at once, so it is only half closed and read from for a moment.
func (c *clientConn) Close() error {
	for {
		switch state := c.state.Load(); state {
		case connDirect:
			if c.state.CompareAndSwap(connDirect, connClosing) {
				return nil
			}
		case connClosing, connClosed:
			return nil
		default:
			if c.state.CompareAndSwap(state, connClosed) {
				return c.shut()
			}
		}
	}
}

// closeWaiting closes the connection if nobody is being served on it.
func (c *clientConn) closeWaiting(state uint32) {
	if c.state.CompareAndSwap(state, connClosed) {
		c.shut() //nolint:errcheck // it is gone either way
	}
}

func (c *clientConn) shut() error {
	c.l.forget(c)
	if c.unread.CompareAndSwap(true, false) {
		linger(c.Conn)
	}
	return c.Conn.Close()
}

func linger(c net.Conn) {
	if !closeWrite(c) {
		return
	}
	if c.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	block := getBlock()
	defer putBlock(block)
	for n := 0; n < drainBytes; {
		m, err := c.Read(*block)
		if err != nil {
			return
		}
		n += m
	}
}

// abort cuts the connection so that the client cannot take what it has for the whole.
func (c *clientConn) abort() {
	c.gone, c.last = true, true
	c.unread.Store(false)
	abortConn(c.Conn)
}

// abortConn resets a connection: no FIN, no TLS close, so a body that ends with the connection is
// seen to be cut.
func abortConn(c net.Conn) {
	c = socketOf(c)
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		l.SetLinger(0) //nolint:errcheck // it is closed next
	}
	c.Close()
}

// closeWrite sends FIN (or a TLS close) and keeps reading possible.
func closeWrite(c net.Conn) bool {
	if p, ok := c.(*prefacedConn); ok {
		c = p.Conn
	}
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite() == nil
	}
	return false
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

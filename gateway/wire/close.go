package wire

import (
	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
	"net"
	"time"
)

// Close ends the connection. Where the client may still be sending, the answer would be lost to a
// reset if the socket were closed at once, so it is only half closed and read from for a moment.
func (c *conn) Close() error {
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
func (c *conn) closeWaiting(state uint32) {
	if c.state.CompareAndSwap(state, connClosed) {
		c.shut() //nolint:errcheck // it is gone either way
	}
}

func (c *conn) shut() error {
	c.l.forget(c)
	if c.unread.CompareAndSwap(true, false) {
		linger(c.Conn)
	}
	return c.Conn.Close()
}

func linger(c net.Conn) {
	if !rawsocket.CloseWrite(c) {
		return
	}
	if c.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	block := http1.GetBlock()
	defer http1.PutBlock(block)
	for n := 0; n < drainBytes; {
		m, err := c.Read(*block)
		if err != nil {
			return
		}
		n += m
	}
}

// abort cuts the connection so that the client cannot take what it has for the whole.
func (c *conn) abort() {
	c.gone, c.last = true, true
	c.unread.Store(false)
	rawsocket.AbortConn(c.Conn)
}

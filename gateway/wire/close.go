package wire

import (
	"net"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// How much of an unread body is read and dropped so that the connection can go on, and for how long.
const (
	drainBytes = 256 << 10
	drainTime  = 3 * time.Second
)

// How much is read from a connection that is closed so that the client receives the response, and for how long. Proxies
// forward headers of 1 MiB, and some forward a request without a check if they cannot write all of the check.
const (
	lingerBytes = 2 << 20
	lingerTime  = time.Second
)

// Close closes the connection. During activityDirect it only sets activityClosing, and the connection ends after the response.
func (c *conn) Close() error {
	for {
		switch activity := c.doing.Load(); activity {
		case activityDirect:
			if c.doing.CompareAndSwap(activityDirect, activityClosing) {
				return nil
			}
		case activityClosing, activityClosed:
			return nil
		default:
			if c.doing.CompareAndSwap(activity, activityClosed) {
				return c.shut()
			}
		}
	}
}

// closeIf closes the connection if its activity is the given one.
func (c *conn) closeIf(activity uint32) {
	if c.doing.CompareAndSwap(activity, activityClosed) {
		c.shut() //nolint:errcheck // it is closed either way
	}
}

// shut closes the socket. If the client may still be sending, a reset would destroy the response on its way, so the
// socket is first half-closed and read from for a moment.
func (c *conn) shut() error {
	c.listener.forget(c)
	if c.unread.CompareAndSwap(true, false) {
		linger(c.link.Conn)
	}
	return c.link.Close()
}

func linger(c net.Conn) {
	if !rawsocket.CloseWrite(c) || c.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	block := http1.GetBlock()
	defer http1.PutBlock(block)
	for n := 0; n < lingerBytes; {
		m, err := c.Read(*block)
		if err != nil {
			return
		}
		n += m
	}
}

package wire

import (
	"github.com/anteroom/anteroom/gateway/rawsocket"
	"net"
)

// TakeOver gives the socket (or the TLS connection) under a connection that a handler has hijacked, so that nothing of the
// server's is held as long as it lasts. Whoever takes it closes it.
func TakeOver(c net.Conn) net.Conn {
	if h, ok := c.(interface{ UnsafeConn() net.Conn }); ok {
		c = h.UnsafeConn()
	}
	var cc *conn
	switch t := c.(type) {
	case *conn:
		cc = t
	case *quietConn:
		cc = t.conn
	case *tlsClientConn:
		cc = t.conn
	default:
		return c
	}
	cc.l.forget(cc)
	return cc.Conn
}

// Socket is what a connection, which may be TLS, writes to.
func Socket(c net.Conn) net.Conn { return rawsocket.SocketOf(c) }

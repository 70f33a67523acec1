package proxy

import "net"

// TakeOver gives the socket (or the TLS connection) under a connection that a handler has hijacked, so that nothing of the
// server's is held as long as it lasts. Whoever takes it closes it.
func TakeOver(c net.Conn) net.Conn {
	if h, ok := c.(interface{ UnsafeConn() net.Conn }); ok {
		c = h.UnsafeConn()
	}
	var cc *clientConn
	switch t := c.(type) {
	case *clientConn:
		cc = t
	case *quietConn:
		cc = t.clientConn
	case *tlsClientConn:
		cc = t.clientConn
	default:
		return c
	}
	cc.l.forget(cc)
	return cc.Conn
}

// Socket is what a connection, which may be TLS, writes to.
func Socket(c net.Conn) net.Conn { return socketOf(c) }

package wire

import (
	"github.com/anteroom/anteroom/gateway/rawsocket"
	"net"
	"time"
)

// Response writes the response to a request byte for byte, header included. The caller frames it.
type Response struct{ c *conn }

// Closing reports whether the connection ends with this response, which then has to say so.
func (w *Response) Closing() bool { return w.c.head.Close || w.c.last || w.c.l.stopping.Load() }

// Begin marks the beginning of the final response: what fasthttp writes from now on is discarded.
func (w *Response) Begin() {
	w.c.begin()
	w.c.answered = true
}

// Write sends a part of the final response. now is the current time.
func (w *Response) Write(p []byte, now time.Time) error { return w.c.send(p, now) }

// WriteInterim sends an informational response.
func (w *Response) WriteInterim(p []byte) error { return w.c.sendInterim(p) }

// Fail ends the connection after a write that failed.
func (w *Response) Fail() { w.c.last, w.c.gone = true, true }

// Abort resets the connection, so that the client does not take what it has received for a whole response.
func (w *Response) Abort() { w.c.abort() }

// End must be called once the response has been sent or given up. With closing the connection serves no further request.
func (w *Response) End(closing bool) {
	c := w.c
	c.settle()
	if c.in.Buffered() == 0 {
		c.in.Release()
	}
	c.last = c.last || closing
}

// ClientLeft reports whether the client has closed its side of the connection.
func (w *Response) ClientLeft() bool { return rawsocket.PeerClosed(rawsocket.SocketOf(w.c.Conn)) }

// Detach takes the connection from the server, for a tunnel. It returns the connection and what the client has sent
// behind the request, which is valid until Release.
func (w *Response) Detach() (net.Conn, []byte) {
	c := w.c
	c.answered, c.last, c.gone = true, true, true
	return c.Conn, c.in.Pending()
}

// Release frees what Detach returned beside the connection.
func (w *Response) Release() { w.c.in.Release() }

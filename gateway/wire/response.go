package wire

import (
	"net"
	"time"

	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// Response writes the response to a request byte for byte, header included. The caller frames it.
type Response struct{ c *conn }

// Closing reports whether the connection ends with this response, which then has to say so.
func (w *Response) Closing() bool {
	return w.c.request.header.Connection.Close || w.c.last || w.c.listener.stopping.Load()
}

// Begin marks the beginning of the final response: what fasthttp writes from now on is discarded.
func (w *Response) Begin() {
	w.c.writer.begin()
	w.c.phase = phaseAnswered
}

// Write writes a part of the final response. now is the current time.
func (w *Response) Write(p []byte, now time.Time) error { return w.c.writer.send(p, now) }

// WriteInterim writes an informational response.
func (w *Response) WriteInterim(p []byte) error { return w.c.writer.sendInterim(p) }

// Fail ends the connection after a write that failed.
func (w *Response) Fail() { w.c.detach() }

// Abort resets the connection, so that the client does not take what it has received for a whole response.
func (w *Response) Abort() {
	w.c.detach()
	w.c.unread.Store(false)
	rawsocket.Abort(w.c.link.Conn)
}

// End must be called when the response has been written or given up. With closing the connection serves no further
// request.
func (w *Response) End(closing bool) {
	w.c.noteBodyEnd()
	w.c.reader.releaseEmpty()
	w.c.last = w.c.last || closing
}

// ClientLeft reports whether the client has closed the connection.
func (w *Response) ClientLeft() bool { return rawsocket.PeerClosed(w.c.link.Conn) }

// Detach takes the connection from the server, for a tunnel. It returns the connection and the bytes that the client has
// sent behind the request, which are valid until Release.
func (w *Response) Detach() (net.Conn, []byte) {
	w.c.detach()
	return w.c.link.Conn, w.c.reader.buffer.Pending()
}

// Release frees the bytes that Detach has returned.
func (w *Response) Release() { w.c.reader.buffer.Release() }

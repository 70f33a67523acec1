package proxy

import (
	"io"
	"os"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// originConn is a connection to a server of an origin. While it is idle it holds no buffer.
type originConn struct {
	link      rawsocket.Conn
	under     *underTLS // nil without TLS
	server    *server
	in        http1.Buffer // what was read and not consumed; its source is the connection
	peeker    rawsocket.Peeker
	until     time.Time // it is not reused after this time
	idleSince time.Time
	reused    bool
	readBy    time.Time // the deadlines in force
	writeBy   time.Time
	wait      originWait
	ask       pendingAsk
	probe     [1]byte // of usable
}

// originWait bounds the wait of Read.
type originWait struct {
	patience time.Duration // 0: as long as onSlice allows
	slice    time.Duration // how often onSlice is called meanwhile
	begun    time.Time     // when the next wait began, if that is known
	onSlice  func() error  // called while Read waits; an error ends the wait
}

// pendingAsk is a request that the next read sends, in one system call with its own.
type pendingAsk struct {
	request []byte
	idle    time.Duration // how long the server may take nothing of it
	err     error         // of sending it
}

// waitSlice is the interval at which a waiting Read checks whether the client is still connected.
const waitSlice = 5 * time.Second

// Close closes the connection.
func (c *originConn) Close() error { return c.link.Close() }

// usable reports whether an idle connection is open and silent. A server that has sent bytes without a request must not
// respond to the next visitor.
func (c *originConn) usable() bool {
	if c.peeker.Peek() != rawsocket.PeekQuiet {
		return false
	}
	if c.server.tls == nil {
		return true
	}
	// TLS may hold records that arrived with the last response. A read with a past deadline returns those only.
	c.setReadBy(rawsocket.Past)
	n, err := c.link.Read(c.probe[:])
	return n == 0 && rawsocket.IsTimeout(err)
}

func (c *originConn) setReadBy(t time.Time) {
	c.readBy = t
	c.link.SetReadDeadline(t) //nolint:errcheck // a closed connection fails at the next read
}

// Read reads what there is, and waits for at most the patience. A deadline that is near enough is kept, because comparing
// costs less than setting, so a wait may end an eighth early.
func (c *originConn) Read(p []byte) (int, error) {
	w := &c.wait
	begun := w.begun
	if begun.IsZero() {
		begun = time.Now()
	}
	w.begun = time.Time{}
	slice := w.slice
	if w.patience > 0 && w.patience < slice {
		slice = w.patience
	}
	for now := begun; ; now = time.Now() {
		by := now.Add(slice)
		if later := by.Sub(c.readBy); later < 0 || later > slice/8 {
			c.setReadBy(by)
		}
		n, err := c.receive(p)
		if n > 0 {
			return n, nil
		}
		if !rawsocket.IsTimeout(err) {
			return 0, err
		}
		c.readBy = time.Time{}
		if w.onSlice != nil {
			if err := w.onSlice(); err != nil {
				return 0, err
			}
		}
		if waited := time.Since(begun); w.patience > 0 && waited >= w.patience-w.patience/8 {
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// receive reads once. A pending request is sent first.
func (c *originConn) receive(p []byte) (int, error) {
	if !c.link.Raw() {
		n, err := c.link.Read(p)
		if err == io.EOF && c.under != nil && c.under.ended {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	request := c.ask.request
	if request == nil {
		return c.link.Read(p)
	}
	c.ask.request = nil
	n, rest, werr, err := c.link.Turn(request, p)
	if len(rest) > 0 {
		werr = c.write(rest, c.ask.idle, time.Now())
		n, err = c.link.Read(p)
	}
	c.ask.err = werr
	return n, err
}

// write writes p. It fails if the server takes nothing for d.
func (c *originConn) write(p []byte, d time.Duration, now time.Time) error {
	if d > 0 {
		if left := c.writeBy.Sub(now); left < d*3/4 || left > d {
			c.writeBy = now.Add(d)
			if err := c.link.SetWriteDeadline(c.writeBy); err != nil {
				return err
			}
		}
	}
	_, err := c.link.Write(p)
	return err
}

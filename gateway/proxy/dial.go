package proxy

import (
	"context"
	"crypto/tls"
	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// originConn is a connection to a server. While idle it holds no buffer.
type originConn struct {
	net.Conn
	sock      rawsocket.Socket
	under     *underTLS // nil without TLS
	srv       *server
	in        http1.Buffer
	until     time.Time // not kept for reuse after it
	idleSince time.Time
	reused    bool

	raw      syscall.RawConn
	peek     func(fd uintptr)
	peeked   rawsocket.PeekResult
	probe    [1]byte
	patience time.Duration // how long Read waits; 0: as long as onSlice lets it
	slice    time.Duration // how often onSlice is asked meanwhile
	begun    time.Time     // when the next wait began, if that is known
	readBy   time.Time
	writeBy  time.Time
	onSlice  func() error // asked while Read waits long; an error ends the wait

	ask     []byte        // the request, if the next read is to send it
	askIdle time.Duration // how long the socket may refuse to take it
	askErr  error         // what came of it
}

// dial connects to s within the time that is left.
func (o *Origin) dial(ctx context.Context, s *server, deadline time.Time) (*originConn, string, error) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.ConnectTimeout)
	defer cancel()
	if !deadline.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, deadline)
		defer stop()
	}
	c, err := o.connect(ctx, s)
	if err != nil {
		return nil, KindConnect, err
	}
	raw, err := rawsocket.RawConn(c)
	if err != nil {
		c.Close()
		return nil, KindConnect, err
	}
	var under *underTLS
	if s.tls != nil {
		under = &underTLS{Conn: c}
		t := tls.Client(under, s.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, KindTLS, err
		}
		c = t
	}
	oc := &originConn{Conn: c, under: under, srv: s, until: lifeEnd(time.Now()), raw: raw}
	rawsocket.BoundUnsent(rawsocket.SocketOf(c))
	oc.sock.Of(c)
	oc.in.Src = oc
	oc.peek = func(fd uintptr) { oc.peeked = rawsocket.PeekSocket(fd, oc.probe[:]) }
	return oc, "", nil
}

// underTLS is a connection that carries TLS. Its own end, without one that TLS announced, says nothing of the answer's:
// whoever can cut it could shorten what has no other end (RFC 9112 §9.8), which crypto/tls does not tell apart.
type underTLS struct {
	net.Conn
	ended bool
}

func (c *underTLS) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.ended = c.ended || err == io.EOF
	return n, err
}

// NetConn is the connection itself.
func (c *underTLS) NetConn() net.Conn { return c.Conn }

// usable tells whether an idle connection is open and silent. An origin that has sent bytes nobody
// asked for may not speak to the next visitor.
func (c *originConn) usable() bool {
	if c.raw.Control(c.peek) != nil || c.peeked != rawsocket.PeekQuiet {
		return false
	}
	if c.srv.tls == nil {
		return true
	}
	// TLS may hold records that came with the last answer. A read that has no time gives those alone.
	c.setReadBy(rawsocket.Past)
	n, err := c.Conn.Read(c.probe[:])
	return n == 0 && rawsocket.IsTimeout(err)
}

func (c *originConn) setReadBy(t time.Time) {
	c.readBy = t
	c.Conn.SetReadDeadline(t) //nolint:errcheck // a closed connection says so at the next read
}

// A wait for an origin is cut into slices, between which the client is looked after.
const waitSlice = 5 * time.Second

// Read reads what there is, waiting for at most patience. A deadline that is near enough is
// left as it is, because looking at it costs less than setting it; so a wait may end an eighth early.
func (c *originConn) Read(p []byte) (int, error) {
	begun := c.begun
	if begun.IsZero() {
		begun = time.Now()
	}
	c.begun = time.Time{}
	slice := c.slice
	if c.patience > 0 && c.patience < slice {
		slice = c.patience
	}
	for now := begun; ; now = time.Now() {
		by := now.Add(slice)
		if later := by.Sub(c.readBy); later < 0 || later > slice/8 {
			c.setReadBy(by)
		}
		n, err := c.recv(p)
		if n > 0 {
			return n, nil
		}
		if !rawsocket.IsTimeout(err) {
			return 0, err
		}
		c.readBy = time.Time{}
		if c.onSlice != nil {
			if err := c.onSlice(); err != nil {
				return 0, err
			}
		}
		if waited := time.Since(begun); c.patience > 0 && waited >= c.patience-c.patience/8 {
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// write sends p, giving up when the origin takes nothing for d.
func (c *originConn) write(p []byte, d time.Duration, now time.Time) error {
	if d > 0 {
		if left := c.writeBy.Sub(now); left < d*3/4 || left > d {
			c.writeBy = now.Add(d)
			if err := c.Conn.SetWriteDeadline(c.writeBy); err != nil {
				return err
			}
		}
	}
	if c.sock.Valid() {
		_, err := c.sock.Write(p)
		return err
	}
	_, err := c.Conn.Write(p)
	return err
}

// recv reads once. A request that is still to be sent goes out first.
func (c *originConn) recv(p []byte) (int, error) {
	if !c.sock.Valid() {
		n, err := c.Conn.Read(p)
		if err == io.EOF && c.under != nil && c.under.ended {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	ask := c.ask
	if ask == nil {
		return c.sock.Read(p)
	}
	c.ask = nil
	n, rest, werr, err := c.sock.Turn(ask, p)
	if len(rest) > 0 {
		werr = c.write(rest, c.askIdle, time.Now())
		n, err = c.sock.Read(p)
	}
	c.askErr = werr
	return n, err
}

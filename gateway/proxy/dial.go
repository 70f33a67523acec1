package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"time"

	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// dial connects to s within a time-out and before a deadline, if that is not zero. With an error it returns its kind.
func (s *server) dial(ctx context.Context, timeout time.Duration, deadline time.Time) (*originConn, string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if !deadline.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, deadline)
		defer stop()
	}
	c, err := s.connect(ctx)
	if err != nil {
		return nil, KindConnect, err
	}
	oc := &originConn{server: s, until: lifeEnd(time.Now())}
	if err := oc.peeker.Bind(c); err != nil {
		c.Close()
		return nil, KindConnect, err
	}
	rawsocket.BoundUnsent(c)
	if s.tls != nil {
		oc.under = &underTLS{Conn: c}
		t := tls.Client(oc.under, s.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, KindTLS, err
		}
		c = t
	}
	oc.link.Wrap(c)
	oc.in.Source = oc
	return oc, "", nil
}

// underTLS is the connection under TLS. If it ends without a TLS close, nothing is known of the end of a response without
// a length: an attacker who can cut the connection could truncate it (RFC 9112 §9.8). crypto/tls returns io.EOF for both.
type underTLS struct {
	net.Conn
	ended bool
}

func (c *underTLS) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.ended = c.ended || err == io.EOF
	return n, err
}

// NetConn returns the connection itself.
func (c *underTLS) NetConn() net.Conn { return c.Conn }

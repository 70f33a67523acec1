package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/anteroom/anteroom/gateway/rawsocket"
	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"
)

// Preface says which versions of the PROXY protocol's header a connection has to begin with.
type ProxyProtocol uint8

// The versions; both may be asked for at once. 0 is none: what looks like a header is then a malformed request.
const (
	ProxyProtocolV1 ProxyProtocol = 1 << iota
	ProxyProtocolV2
)

// Why a connection was closed for its preface.
const (
	ProxyHeaderMissing   = "missing"   // something else came
	ProxyHeaderVersion   = "version"   // a header of a version that is not taken
	ProxyHeaderMalformed = "malformed" // or cut off
	ProxyHeaderLong      = "too_long"
	ProxyHeaderSlow      = "timeout"
)

// PrefaceErrors are all of them.
func ProxyHeaderErrors() []string {
	return []string{ProxyHeaderMissing, ProxyHeaderVersion, ProxyHeaderMalformed, ProxyHeaderLong, ProxyHeaderSlow}
}

// PrefaceOptions are those of PrefaceListener. Both functions may be called concurrently.
type ProxyProtocolOptions struct {
	// Wanted is asked about the other end of each connection: from whom a header is wanted it is believed.
	Wanted func(peer netip.Addr) ProxyProtocol
	// Refused is told of connections that were closed for theirs, and why.
	Refused func(peer net.Addr, reason string, err error)
}

// PrefaceListener wraps ln so that connections begin with a header of the PROXY protocol where it is wanted. The header
// is read where the connection is, not where it is accepted, within the time that a header has; what it says is then
// the connection's other end. Put it innermost, under TLS and Listener.
func ProxyProtocolListener(ln net.Listener, o ProxyProtocolOptions) net.Listener {
	return &proxyProtocolListener{ln, o}
}

type proxyProtocolListener struct {
	net.Listener
	o ProxyProtocolOptions
}

func (l *proxyProtocolListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return c, nil
	}
	wanted := l.o.Wanted(tcp.AddrPort().Addr().Unmap().WithZone("")) // as peerAddr has it
	if wanted == 0 {
		return c, nil
	}
	return &proxyProtocolConn{Conn: c, o: &l.o, wanted: wanted}, nil
}

// prefacedConn is a connection whose preface has not been read yet, or that of TLS with what came behind it.
type proxyProtocolConn struct {
	net.Conn
	o      *ProxyProtocolOptions
	wanted ProxyProtocol
	rest   []byte // what was read beyond the header
}

// NetConn is the connection below.
func (c *proxyProtocolConn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the connection for writing.
func (c *proxyProtocolConn) CloseWrite() error {
	if !rawsocket.CloseWrite(c.Conn) {
		return errors.ErrUnsupported
	}
	return nil
}

// Read is TLS's way to the socket, once the preface has been read.
func (c *proxyProtocolConn) Read(p []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		if c.rest = c.rest[n:]; len(c.rest) == 0 {
			c.rest = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// prefaceOf finds the preface of a connection, plain or below TLS, that still has to be read.
func proxyProtocolOf(c net.Conn) *proxyProtocolConn {
	if p, ok := c.(*proxyProtocolConn); ok {
		return p
	}
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		p, _ := t.NetConn().(*proxyProtocolConn)
		return p
	}
	return nil
}

// readPreface takes the preface from the connection. Any error is its end; that of one which never said a word, as
// balancers make to see whether somebody listens, is not told of. The deadline is the caller's.
func (c *conn) readProxyHeader() error {
	p := c.proxyProtocol
	c.proxyProtocol = nil
	origin, err := p.receive()
	var refused *proxyHeaderError
	switch {
	case errors.As(err, &refused):
		p.o.Refused(p.Conn.RemoteAddr(), refused.reason, err)
	case rawsocket.IsTimeout(err):
		p.o.Refused(p.Conn.RemoteAddr(), ProxyHeaderSlow, err)
	}
	if err != nil {
		c.last = true
		return io.EOF
	}
	c.proxied = origin
	return nil
}

// begunByPreface takes the preface of a connection without TLS; what came with it is the beginning of a request.
func (c *conn) beginWithProxyHeader() error {
	p := c.proxyProtocol
	if err := c.await(); err != nil {
		return err
	}
	if err := c.readProxyHeader(); err != nil {
		return err
	}
	if len(p.rest) > 0 {
		c.in.Load(p.rest)
	}
	return nil
}

// prefaceOrigin is what a preface tells.
type proxyHeader struct {
	addr   *net.TCPAddr // nil: the connection is the peer's own
	secure bool         // it came to the peer by TLS
}

// receive reads up to the header's last byte, and perhaps beyond.
func (c *proxyProtocolConn) receive() (proxyHeader, error) {
	b := make([]byte, 0, 256)
	for {
		n, err := c.wanted.measure(b)
		if err != nil {
			return proxyHeader{}, err
		}
		if n > 0 && n <= len(b) {
			c.rest = b[n:]
			return parseProxyHeader(b[:n])
		}
		if room := max(n, len(b)+1); room > cap(b) {
			b = append(make([]byte, 0, room), b...)
		}
		m, err := c.Conn.Read(b[len(b):cap(b)])
		if b = b[:len(b)+m]; m > 0 {
			continue
		}
		if len(b) > 0 && !rawsocket.IsTimeout(err) {
			return proxyHeader{}, &proxyHeaderError{ProxyHeaderMalformed, err}
		}
		return proxyHeader{}, err
	}
}

// prefaceError is a preface that is not taken.
type proxyHeaderError struct {
	reason string
	cause  error
}

func (e *proxyHeaderError) Error() string {
	return fmt.Sprintf("PROXY header %s: %v", e.reason, e.cause)
}
func (e *proxyHeaderError) Unwrap() error { return e.cause }

// The largest headers. Version 2 has room for 64 KiB; a certificate in it takes two.
const (
	longestV1 = 107
	fixedV2   = 16
	longestV2 = fixedV2 + 4096
)

// measure tells how long the header is that b begins with, 0 while that cannot be told.
func (w ProxyProtocol) measure(b []byte) (int, error) {
	v1, v2 := begins(b, proxyproto.SIGV1), begins(b, proxyproto.SIGV2)
	switch {
	case len(b) == 0:
		return 0, nil
	case v1 && w&ProxyProtocolV1 != 0:
		end := bytes.IndexByte(b[:min(len(b), longestV1)], '\n')
		if end < 0 && len(b) >= longestV1 {
			return 0, &proxyHeaderError{ProxyHeaderLong, errors.New("its line has no end within 107 bytes")}
		}
		return end + 1, nil
	case v2 && w&ProxyProtocolV2 != 0:
		if len(b) < fixedV2 {
			return 0, nil
		}
		n := fixedV2 + int(binary.BigEndian.Uint16(b[14:]))
		if n > longestV2 {
			return 0, &proxyHeaderError{ProxyHeaderLong, fmt.Errorf("it announces %d bytes, more than 4096", n-fixedV2)}
		}
		return n, nil
	case v1 && len(b) >= len(proxyproto.SIGV1), v2 && len(b) >= len(proxyproto.SIGV2):
		return 0, &proxyHeaderError{ProxyHeaderVersion, errors.New("it is of the version that proxy_protocol does not take")}
	case v1, v2:
		return 0, nil
	}
	return 0, &proxyHeaderError{ProxyHeaderMissing, errors.New("the connection begins with something else")}
}

// begins tells whether b begins with a signature, or may still become one that does.
func begins(b, signature []byte) bool {
	n := min(len(b), len(signature))
	return string(b[:n]) == string(signature[:n])
}

// parsePreface reads a whole header.
func parseProxyHeader(b []byte) (proxyHeader, error) {
	malformed := func(err error) (proxyHeader, error) {
		return proxyHeader{}, &proxyHeaderError{ProxyHeaderMalformed, err}
	}
	h, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(b), len(b)))
	if err != nil {
		return malformed(err)
	}
	if h.Version == 1 && b[len(proxyproto.SIGV1)] != ' ' {
		return malformed(errors.New("its first word is another"))
	}
	if h.Command.IsLocal() {
		return proxyHeader{}, nil
	}
	if h.Version == 1 && bytes.Count(b, []byte(" ")) != 5 {
		return malformed(errors.New("its line has more than six words"))
	}
	var o proxyHeader
	switch a := h.SourceAddr.(type) {
	case *net.TCPAddr:
		o.addr = a
	case *net.UnixAddr: // no address that anybody could be known by
	default:
		return malformed(errors.New("it tells of no stream"))
	}
	tlvs, err := h.TLVs()
	if err != nil {
		return malformed(err)
	}
	for _, t := range tlvs {
		if t.Type == proxyproto.PP2_TYPE_SSL {
			ssl, err := tlvparse.SSL(t)
			if err != nil {
				return malformed(err)
			}
			o.secure = ssl.ClientSSL()
		}
	}
	return o, nil
}

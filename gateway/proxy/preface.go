package proxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"
)

// Preface says which versions of the PROXY protocol's header a connection has to begin with.
type Preface uint8

// The versions; both may be asked for at once. 0 is none: what looks like a header is then a malformed request.
const (
	PrefaceV1 Preface = 1 << iota
	PrefaceV2
)

// Why a connection was closed for its preface.
const (
	PrefaceMissing   = "missing"   // something else came
	PrefaceVersion   = "version"   // a header of a version that is not taken
	PrefaceMalformed = "malformed" // or cut off
	PrefaceLong      = "too_long"
	PrefaceSlow      = "timeout"
)

// PrefaceErrors are all of them.
func PrefaceErrors() []string {
	return []string{PrefaceMissing, PrefaceVersion, PrefaceMalformed, PrefaceLong, PrefaceSlow}
}

// PrefaceOptions are those of PrefaceListener. Both functions may be called concurrently.
type PrefaceOptions struct {
	// Wanted is asked about the other end of each connection: from whom a header is wanted it is believed.
	Wanted func(peer netip.Addr) Preface
	// Refused is told of connections that were closed for theirs, and why.
	Refused func(peer net.Addr, reason string, err error)
}

// PrefaceListener wraps ln so that connections begin with a header of the PROXY protocol where it is wanted. The header
// is read where the connection is, not where it is accepted, within the time that a header has; what it says is then
// the connection's other end. Put it innermost, under TLS and Listener.
func PrefaceListener(ln net.Listener, o PrefaceOptions) net.Listener { return &prefaceListener{ln, o} }

type prefaceListener struct {
	net.Listener
	o PrefaceOptions
}

func (l *prefaceListener) Accept() (net.Conn, error) {
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
	return &prefacedConn{Conn: c, o: &l.o, wanted: wanted}, nil
}

// prefacedConn is a connection whose preface has not been read yet, or that of TLS with what came behind it.
type prefacedConn struct {
	net.Conn
	o      *PrefaceOptions
	wanted Preface
	rest   []byte // what was read beyond the header
}

// NetConn is the connection below.
func (c *prefacedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the connection for writing.
func (c *prefacedConn) CloseWrite() error {
	if !closeWrite(c.Conn) {
		return errors.ErrUnsupported
	}
	return nil
}

// Read is TLS's way to the socket, once the preface has been read.
func (c *prefacedConn) Read(p []byte) (int, error) {
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
func prefaceOf(c net.Conn) *prefacedConn {
	if p, ok := c.(*prefacedConn); ok {
		return p
	}
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		p, _ := t.NetConn().(*prefacedConn)
		return p
	}
	return nil
}

// readPreface takes the preface from the connection. Any error is its end; that of one which never said a word, as
// balancers make to see whether somebody listens, is not told of. The deadline is the caller's.
func (c *clientConn) readPreface() error {
	p := c.preface
	c.preface = nil
	origin, err := p.receive()
	var refused *prefaceError
	switch {
	case errors.As(err, &refused):
		p.o.Refused(p.Conn.RemoteAddr(), refused.reason, err)
	case isTimeout(err):
		p.o.Refused(p.Conn.RemoteAddr(), PrefaceSlow, err)
	}
	if err != nil {
		c.last = true
		return io.EOF
	}
	c.origin = origin
	return nil
}

// begunByPreface takes the preface of a connection without TLS; what came with it is the beginning of a request.
func (c *clientConn) begunByPreface() error {
	p := c.preface
	if err := c.await(); err != nil {
		return err
	}
	if err := c.readPreface(); err != nil {
		return err
	}
	if len(p.rest) > 0 {
		c.in.load(p.rest)
	}
	return nil
}

// prefaceOrigin is what a preface tells.
type prefaceOrigin struct {
	addr   *net.TCPAddr // nil: the connection is the peer's own
	secure bool         // it came to the peer by TLS
}

// receive reads up to the header's last byte, and perhaps beyond.
func (c *prefacedConn) receive() (prefaceOrigin, error) {
	b := make([]byte, 0, 256)
	for {
		n, err := c.wanted.measure(b)
		if err != nil {
			return prefaceOrigin{}, err
		}
		if n > 0 && n <= len(b) {
			c.rest = b[n:]
			return parsePreface(b[:n])
		}
		if room := max(n, len(b)+1); room > cap(b) {
			b = append(make([]byte, 0, room), b...)
		}
		m, err := c.Conn.Read(b[len(b):cap(b)])
		if b = b[:len(b)+m]; m > 0 {
			continue
		}
		if len(b) > 0 && !isTimeout(err) {
			return prefaceOrigin{}, &prefaceError{PrefaceMalformed, err}
		}
		return prefaceOrigin{}, err
	}
}

// prefaceError is a preface that is not taken.
type prefaceError struct {
	reason string
	cause  error
}

func (e *prefaceError) Error() string { return fmt.Sprintf("PROXY header %s: %v", e.reason, e.cause) }
func (e *prefaceError) Unwrap() error { return e.cause }

// The largest headers. Version 2 has room for 64 KiB; a certificate in it takes two.
const (
	longestV1 = 107
	fixedV2   = 16
	longestV2 = fixedV2 + 4096
)

// measure tells how long the header is that b begins with, 0 while that cannot be told.
func (w Preface) measure(b []byte) (int, error) {
	v1, v2 := begins(b, proxyproto.SIGV1), begins(b, proxyproto.SIGV2)
	switch {
	case len(b) == 0:
		return 0, nil
	case v1 && w&PrefaceV1 != 0:
		end := bytes.IndexByte(b[:min(len(b), longestV1)], '\n')
		if end < 0 && len(b) >= longestV1 {
			return 0, &prefaceError{PrefaceLong, errors.New("its line has no end within 107 bytes")}
		}
		return end + 1, nil
	case v2 && w&PrefaceV2 != 0:
		if len(b) < fixedV2 {
			return 0, nil
		}
		n := fixedV2 + int(binary.BigEndian.Uint16(b[14:]))
		if n > longestV2 {
			return 0, &prefaceError{PrefaceLong, fmt.Errorf("it announces %d bytes, more than 4096", n-fixedV2)}
		}
		return n, nil
	case v1 && len(b) >= len(proxyproto.SIGV1), v2 && len(b) >= len(proxyproto.SIGV2):
		return 0, &prefaceError{PrefaceVersion, errors.New("it is of the version that proxy_protocol does not take")}
	case v1, v2:
		return 0, nil
	}
	return 0, &prefaceError{PrefaceMissing, errors.New("the connection begins with something else")}
}

// begins tells whether b begins with a signature, or may still become one that does.
func begins(b, signature []byte) bool {
	n := min(len(b), len(signature))
	return string(b[:n]) == string(signature[:n])
}

// parsePreface reads a whole header.
func parsePreface(b []byte) (prefaceOrigin, error) {
	malformed := func(err error) (prefaceOrigin, error) {
		return prefaceOrigin{}, &prefaceError{PrefaceMalformed, err}
	}
	h, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(b), len(b)))
	if err != nil {
		return malformed(err)
	}
	if h.Version == 1 && b[len(proxyproto.SIGV1)] != ' ' {
		return malformed(errors.New("its first word is another"))
	}
	if h.Command.IsLocal() {
		return prefaceOrigin{}, nil
	}
	if h.Version == 1 && bytes.Count(b, []byte(" ")) != 5 {
		return malformed(errors.New("its line has more than six words"))
	}
	var o prefaceOrigin
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

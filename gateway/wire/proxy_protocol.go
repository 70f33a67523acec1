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

	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"

	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// ProxyProtocol is the set of versions of the PROXY protocol that a connection may begin with.
type ProxyProtocol uint8

// The versions. 0 is none: a PROXY header is then a malformed request.
const (
	ProxyProtocolV1 ProxyProtocol = 1 << iota
	ProxyProtocolV2
)

// Why a connection was closed for its PROXY header.
const (
	ProxyHeaderMissing   = "missing"   // the connection begins with something else
	ProxyHeaderVersion   = "version"   // the header is of a version that is not accepted
	ProxyHeaderMalformed = "malformed" // or cut off
	ProxyHeaderLong      = "too_long"
	ProxyHeaderSlow      = "timeout"
)

// ProxyHeaderErrors returns the reasons ProxyHeader…, why a connection is closed for its PROXY header.
func ProxyHeaderErrors() []string {
	return []string{ProxyHeaderMissing, ProxyHeaderVersion, ProxyHeaderMalformed, ProxyHeaderLong, ProxyHeaderSlow}
}

// ProxyProtocolOptions configure a ProxyProtocolListener. Both functions may be called concurrently.
type ProxyProtocolOptions struct {
	// Wanted returns the versions that connections from peer have to begin with; 0 for peers that are not trusted.
	Wanted func(peer netip.Addr) ProxyProtocol
	// Refused is called when a connection is closed for its header.
	Refused func(peer net.Addr, reason string, err error)
}

// ProxyProtocolListener wraps ln so that connections begin with a PROXY header where it is wanted. The header is read in
// the connection's goroutine, not in Accept, within HeaderTimeout, and its address replaces the peer's. It has to be
// innermost, under TLS and Listener.
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

// proxyProtocolConn is a connection whose PROXY header has not been read yet, or one under TLS with the bytes behind it.
type proxyProtocolConn struct {
	net.Conn
	o      *ProxyProtocolOptions
	wanted ProxyProtocol
	rest   []byte // what was read beyond the header
}

// NetConn returns the connection below.
func (c *proxyProtocolConn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the connection for writing.
func (c *proxyProtocolConn) CloseWrite() error {
	if !rawsocket.CloseWrite(c.Conn) {
		return errors.ErrUnsupported
	}
	return nil
}

// Read is called by TLS once the PROXY header has been read.
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

// proxyProtocolOf returns the connection, c or the one under its TLS, whose PROXY header has to be read; nil if none has.
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

// readProxyHeader reads the PROXY header, within the deadline that is set. Any error ends the connection. A connection
// that ends without a byte, like the checks of load balancers, is not reported.
func (c *conn) readProxyHeader() error {
	p := c.peer.pending
	c.peer.pending = nil
	header, err := p.receive()
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
	c.peer.proxied = header
	return nil
}

// beginWithProxyHeader reads the PROXY header of a connection without TLS. Bytes behind it are the beginning of a request.
func (c *conn) beginWithProxyHeader() error {
	p := c.peer.pending
	if err := c.reader.awaitHeader(true); err != nil {
		return err
	}
	if err := c.readProxyHeader(); err != nil {
		return err
	}
	if len(p.rest) > 0 {
		c.reader.buffer.Load(p.rest)
	}
	return nil
}

// proxyHeader is the content of a PROXY header.
type proxyHeader struct {
	addr   *net.TCPAddr // nil: the connection is the peer's own
	secure bool         // it reached the peer over TLS
}

// receive reads the header, and perhaps bytes behind it into c.rest.
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

// proxyHeaderError is why a PROXY header is refused.
type proxyHeaderError struct {
	reason string
	cause  error
}

func (e *proxyHeaderError) Error() string {
	return fmt.Sprintf("PROXY header %s: %v", e.reason, e.cause)
}
func (e *proxyHeaderError) Unwrap() error { return e.cause }

// The largest headers. Version 2 allows 64 KiB; a certificate in it takes two.
const (
	longestV1 = 107
	fixedV2   = 16
	longestV2 = fixedV2 + 4096
)

// measure returns the length of the header that b begins with, 0 while it is not known.
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
		return 0, &proxyHeaderError{ProxyHeaderVersion, errors.New("it is of a version that proxy_protocol does not accept")}
	case v1, v2:
		return 0, nil
	}
	return 0, &proxyHeaderError{ProxyHeaderMissing, errors.New("the connection begins with something else")}
}

// begins reports whether b begins with a signature, or may do so once more bytes arrive.
func begins(b, signature []byte) bool {
	n := min(len(b), len(signature))
	return string(b[:n]) == string(signature[:n])
}

// parseProxyHeader parses a whole header.
func parseProxyHeader(b []byte) (proxyHeader, error) {
	malformed := func(err error) (proxyHeader, error) {
		return proxyHeader{}, &proxyHeaderError{ProxyHeaderMalformed, err}
	}
	h, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(b), len(b)))
	if err != nil {
		return malformed(err)
	}
	if h.Version == 1 && b[len(proxyproto.SIGV1)] != ' ' {
		return malformed(errors.New("its first word is not PROXY"))
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
	case *net.UnixAddr: // identifies no visitor
	default:
		return malformed(errors.New("it is not about a stream"))
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

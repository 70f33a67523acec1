package wire

import (
	"io"
	"net/netip"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/http1"
)

// Request is a request whose header was accepted, until its handler returns. Its byte slices are parts of the header as
// the client sent it and must not be kept. It is used by one goroutine at a time.
type Request struct {
	c       *conn
	header  http1.RequestHeader
	refusal *http1.Refusal
	values  [][]byte   // of PeekAll
	from    *described // of a request that a Description made; else nil
}

// described is what a Description reports instead of a connection.
type described struct {
	peer   netip.Addr
	secure bool
}

// RequestOf returns the request of a handler whose server listens through Listener, and nil for any other. Call
// CheckRequest first: of a refused request only the peer is known.
func RequestOf(ctx *fasthttp.RequestCtx) *Request {
	if c := connOf(ctx.Conn()); c != nil {
		return &c.request
	}
	return nil
}

// Header returns the request's header. It is valid until the handler returns.
func (r *Request) Header() *http1.RequestHeader { return &r.header }

// Body returns the request's body.
func (r *Request) Body() *Body { return &r.c.body }

// Response returns the way to the client, for a response that is written byte for byte.
func (r *Request) Response() *Response { return &r.c.response }

// Refusal returns why the request is refused, or nil.
func (r *Request) Refusal() *http1.Refusal {
	if r.c.phase < phaseRead {
		return refuseUnprotected
	}
	return r.refusal
}

// Method returns the method.
func (r *Request) Method() []byte { return r.header.Method() }

// Is reports whether the method is m.
func (r *Request) Is(m string) bool { return string(r.header.Method()) == m }

// Host returns the value of Host; it is empty on HTTP/1.0 only.
func (r *Request) Host() []byte { return r.header.Host() }

// Protocol returns "HTTP/1.1" or "HTTP/1.0".
func (r *Request) Protocol() string {
	if r.header.HTTP10 {
		return "HTTP/1.0"
	}
	return "HTTP/1.1"
}

// Target returns the target in origin form, byte for byte: the authority of an absolute target is cut off.
func (r *Request) Target() []byte {
	if t := r.header.Target(); len(t) > 0 && t[0] == '/' || len(r.header.Raw) == 0 {
		return t
	}
	return r.header.AppendTarget(nil)
}

// Peek returns the value of the first field with a name, which is in lower case; nil if there is none.
func (r *Request) Peek(name string) []byte {
	if h := &r.header; h.MayHave(name) {
		return firstValue(h, name)
	}
	return nil
}

func firstValue(h *http1.RequestHeader, name string) []byte {
	for i := range h.Lines {
		if l := &h.Lines[i]; h.Named(l, name) {
			return h.Value(l)
		}
	}
	return nil
}

// PeekAll returns the values of all fields with a name, which is in lower case, in their order. They are valid until the
// next call.
func (r *Request) PeekAll(name string) [][]byte {
	h := &r.header
	r.values = r.values[:0]
	if !h.MayHave(name) {
		return r.values
	}
	for i := range h.Lines {
		if l := &h.Lines[i]; h.Named(l, name) {
			r.values = append(r.values, h.Value(l))
		}
	}
	return r.values
}

// HasBody reports whether the request has a body, or may have one because it is chunked.
func (r *Request) HasBody() bool { return r.header.Length != 0 }

// HasAlias reports whether there is a field whose name http1.IsAlias of name, which is in lower case.
func (r *Request) HasAlias(name string) bool {
	h := &r.header
	for i := range h.Lines {
		if l := &h.Lines[i]; http1.IsAlias(h.Name(l), name) {
			return true
		}
	}
	return false
}

// Peer returns the address of the connection's other end, or the one in the PROXY header.
func (r *Request) Peer() netip.Addr {
	if r.from != nil {
		return r.from.peer
	}
	return r.c.peerAddr()
}

// Forwarded reports whether the request has a Forwarded or X-Forwarded-… field.
func (r *Request) Forwarded() bool { return r.header.Forwarded }

// Secure reports whether the request arrived over TLS: here, or according to the PROXY header at the peer.
func (r *Request) Secure() bool {
	if r.from != nil {
		return r.from.secure
	}
	return r.c.peer.tls || r.c.peer.proxied.secure
}

// ReadBody reads the whole request body, at most limit bytes of it, into dst's capacity or more. It answers an
// expectation first.
func (r *Request) ReadBody(dst []byte, limit int) ([]byte, error) {
	body := &r.c.body
	if body.ended && !body.consumed {
		return nil, nil
	}
	if body.length > int64(limit) {
		return nil, ErrBodyTooLarge
	}
	for b := dst[:0]; ; {
		b = slices.Grow(b, 256)
		n, err := body.Read(b[len(b):min(cap(b), limit+1)])
		b = b[:len(b)+n]
		switch {
		case len(b) > limit:
			return nil, ErrBodyTooLarge
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

// Drain is called before a response to a request whose body was not read. It reports whether the connection ends with the
// response, which then has to say so: it does if the body is too long to be dropped, or the client holds it back. A
// shorter body is dropped after the response.
func (r *Request) Drain() (closing bool) {
	if r.from != nil {
		return false
	}
	c := r.c
	if !c.body.ended && c.body.cannotDrain() {
		c.last = true
	}
	return c.last || r.header.Connection.Close
}

// CloseAfter makes the response the last on its connection.
func (r *Request) CloseAfter() {
	if r.from == nil {
		r.c.last = true
	}
}

// ParseRequest reads a header as a connection from peer would, with the default Limits, for checks of what a handler
// would see. The result has no connection and can only be read.
func ParseRequest(header []byte, peer netip.Addr) (*Request, *http1.Refusal) {
	l := newListener(nil, Limits{}, nil)
	c := newConn(l, nil)
	c.peer.addr = peer
	switch n, refusal := c.request.header.Scan(header, &l.headers); {
	case refusal != nil:
		return nil, refusal
	case n == 0:
		return nil, refuseSlow
	}
	return &c.request, nil
}

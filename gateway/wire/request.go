package wire

import (
	"io"
	"net/netip"
	"slices"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/valyala/fasthttp"
)

// Request is a request whose header has been let in, until its handler returns. Its byte slices are parts of that
// header, as the client sent it, and may be kept no longer. It is used by one goroutine at a time.
type Request struct{ c *conn }

// RequestOf is the request of a handler whose server listens through Listener, nil of any other. Call CheckRequest
// first: of a request that is not let in only the peer is known.
func RequestOf(ctx *fasthttp.RequestCtx) *Request {
	if c := clientOf(ctx); c != nil {
		return &c.req
	}
	return nil
}

// Header returns the request's header. It is valid until the handler returns.
func (r *Request) Header() *http1.RequestHeader { return &r.c.head }

// Body returns the request's body.
func (r *Request) Body() *Body { return &r.c.body }

// Response returns the way to the client, for a response that is written byte for byte.
func (r *Request) Response() *Response { return &r.c.res }

// Refusal returns why the request is not let in, or nil.
func (r *Request) Refusal() *http1.Refusal {
	if !r.c.delivered {
		return refuseUnprotected
	}
	return r.c.refusal
}

// Method is the request's method.
func (r *Request) Method() []byte { return r.c.head.MethodBytes() }

// Is tells whether the method is m.
func (r *Request) Is(m string) bool { return string(r.c.head.MethodBytes()) == m }

// Host is the value of Host; empty only on HTTP/1.0.
func (r *Request) Host() []byte { return r.c.head.HostBytes() }

// Protocol is "HTTP/1.1" or "HTTP/1.0".
func (r *Request) Protocol() string {
	if r.c.head.Http10 {
		return "HTTP/1.0"
	}
	return "HTTP/1.1"
}

// Target is the request's target in origin form, byte for byte (the authority of an absolute target is cut off).
func (r *Request) Target() []byte {
	h := &r.c.head
	if t := h.TargetBytes(); len(t) > 0 && t[0] == '/' || len(h.Raw) == 0 {
		return t
	}
	return h.AppendTarget(nil)
}

// Peek is the value of the first field of that name, nil without one. The name is in lower case.
func (r *Request) Peek(name string) []byte {
	h := &r.c.head
	for i := range h.Lines {
		if l := &h.Lines[i]; int(l.Colon-l.Start) == len(name) && http1.EqualFold(h.Name(l), name) {
			return h.Value(l)
		}
	}
	return nil
}

// PeekAll are the values of all fields of that name, which is in lower case, in their order. It is valid until the next
// call.
func (r *Request) PeekAll(name string) [][]byte {
	h, c := &r.c.head, r.c
	c.values = c.values[:0]
	for i := range h.Lines {
		if l := &h.Lines[i]; int(l.Colon-l.Start) == len(name) && http1.EqualFold(h.Name(l), name) {
			c.values = append(c.values, h.Value(l))
		}
	}
	return c.values
}

// HasBody reports whether the request has a body, or may have one of chunks.
func (r *Request) HasBody() bool { return r.c.head.Length != 0 }

// HasAlias reports whether there is a field of that name, which is in lower case, or one that IsAlias of it.
func (r *Request) HasAlias(name string) bool {
	h := &r.c.head
	for i := range h.Lines {
		if l := &h.Lines[i]; http1.IsAlias(h.Name(l), name) {
			return true
		}
	}
	return false
}

// Peer is the address of the connection's other end.
func (r *Request) Peer() netip.Addr { return r.c.peerAddr() }

// Forwarded tells whether the request has anything to say of those before the peer (Forwarded, X-Forwarded-…).
func (r *Request) Forwarded() bool { return r.c.head.Forwarded }

// Secure tells whether the request came by TLS: ours, or by the word of the PROXY protocol that of the peer before us.
func (r *Request) Secure() bool { return r.c.secure || r.c.proxied.secure }

// ReadBody reads the whole request body, at most limit bytes of it, into dst's room or more. It answers an expectation
// first.
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

// Drain is called before an answer of our own to a request whose body was not read. It tells whether the connection
// ends with the answer, which has to say so: it does where the body is too long to be dropped, or the client holds it
// back. Anything shorter is dropped after the answer has been sent.
func (r *Request) Drain() (closing bool) {
	c := r.c
	if !c.body.Ended() && (c.body.err != nil || !c.body.asked || c.body.left > drainBytes) {
		c.last = true
	}
	return c.last || c.head.Close
}

// CloseAfter makes the answer the last on its connection, and say so.
func (r *Request) CloseAfter() { r.c.last = true }

// ParseRequest reads a header as a connection from peer would, with the default Limits: for whoever wants to know what
// a handler would see. The result can only be looked at.
func ParseRequest(header []byte, peer netip.Addr) (*Request, *http1.Refusal) {
	l := newListener(nil, Limits{}, nil)
	c := &conn{l: l, lim: &l.lim, peer: peer}
	c.req.c, c.res.c = c, c
	switch n, r := c.head.Scan(header, &l.heads); {
	case r != nil:
		return nil, r
	case n == 0:
		return nil, refuseSlow
	}
	return &c.req, nil
}

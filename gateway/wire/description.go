package wire

import (
	"net/netip"

	"github.com/anteroom/anteroom/gateway/http1"
)

// Description builds the header of a request that another proxy has received and describes, and reads it by the rules for
// requests that arrive here. Call Begin, then Add for each field, then Request. A Description is reused; its methods are for
// one goroutine at a time.
type Description struct {
	raw     []byte
	request Request
	from    described
	broken  bool
}

// Blank forgets the description and returns its request without a header: only the address of its peer is known until Request.
func (d *Description) Blank(peer netip.Addr) *Request {
	d.from = described{peer: peer}
	d.request.header.Reset()
	d.request.from = &d.from
	return &d.request
}

// Begin starts the description of a request from a client. secure reports whether the client's connection uses TLS.
func (d *Description) Begin(method, target, host []byte, peer netip.Addr, secure bool) {
	d.from, d.broken = described{peer, secure}, false
	d.raw = append(append(d.raw[:0], method...), ' ')
	d.raw = append(append(d.raw, target...), " HTTP/1.1\r\nHost: "...)
	d.raw = append(append(d.raw, host...), "\r\n"...)
	d.check(method)
	d.check(target)
	d.check(host)
}

// Add adds a field. The name is a token.
func (d *Description) Add(name, value []byte) {
	d.raw = append(append(d.raw, name...), ": "...)
	d.raw = append(append(d.raw, value...), "\r\n"...)
	d.check(name)
	d.check(value)
}

// check notes bytes that would end a line: what follows them would be read as another field.
func (d *Description) check(b []byte) {
	for _, c := range b {
		if c == '\r' || c == '\n' {
			d.broken = true
		}
	}
}

// Request returns the described request, or why it would be refused here. The request has no connection and no body, and can
// only be read, until the next Begin.
func (d *Description) Request(limits *http1.Limits) (*Request, *http1.Refusal) {
	if d.broken {
		return nil, refuseDescription
	}
	d.raw = append(d.raw, "\r\n"...)
	q := &d.request
	n, refusal := q.header.Scan(d.raw, limits)
	switch {
	case refusal != nil:
		return nil, refusal
	case n != len(d.raw): // an empty line within it
		return nil, refuseDescription
	}
	q.from = &d.from
	return q, nil
}

// refuseDescription is the refusal of a description that is not one header.
var refuseDescription = http1.NewRefusal(400, http1.CodeHeader, "The description of the request holds a line break.")

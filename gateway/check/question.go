package check

import (
	"net/netip"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/wire"
)

// Question is a check that does not arrive as an HTTP request.
type Question interface {
	// Peer returns the address of the proxy that asks.
	Peer() netip.Addr
	// Describe describes to into the request that the proxy asks about. proxies are the networks whose X-Forwarded-For is believed.
	Describe(into *wire.Description, proxies []netip.Prefix) *Fault
	// Answer takes the decision, once. The memory of a is valid until it returns.
	Answer(a *Answer)
}

// Answer is the answer to a Question: the response that an HTTP check would receive.
type Answer struct {
	Room     string // empty: the request belongs to no room
	Response *fasthttp.Response
}

// Passes reports whether the request may go on.
func (a *Answer) Passes() bool { return a.Response.StatusCode() == fasthttp.StatusOK }

package check

import (
	"net/netip"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/gateway/wire"
)

// Call is a check that arrives as a remote procedure call instead of an HTTP request.
type Call interface {
	// Peer returns the address of the proxy.
	Peer() netip.Addr
	// Describe writes the request that the proxy asks about into d. proxies are the networks whose X-Forwarded-For is believed.
	Describe(d *wire.Description, proxies []netip.Prefix) *Fault
	// Respond receives the response, once. It must not keep r.
	Respond(r *Response)
}

// Response is the response to a check.
type Response struct {
	Room string             // id; empty: the described request belongs to no room
	HTTP *fasthttp.Response // as an HTTP check would receive it
}

// Passes reports whether the described request may go on.
func (r *Response) Passes() bool { return r.HTTP.StatusCode() == fasthttp.StatusOK }

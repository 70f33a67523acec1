package wire

import "github.com/anteroom/anteroom/gateway/http1"

// The codes of refusals that are not about the content of a header.
const (
	CodeTimeout     = "request_timeout" // 408: the header did not arrive in time
	CodeUnprotected = "listener"        // 500: the server does not listen through Listener
)

var (
	refuseSlow        = http1.NewRefusal(408, CodeTimeout, "The request header did not arrive in time.")
	refuseUnprotected = http1.NewRefusal(500, CodeUnprotected, "The server does not listen through wire.Listener.")
)

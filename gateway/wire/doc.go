// Package wire serves visitors' connections: it accepts them, reads a PROXY header, reads one strict request header at a
// time, reads or drops the body, and writes the response. Origins are in package proxy.
//
// A server is set up in three steps, and every handler begins with the fourth:
//
//	s := &fasthttp.Server{Handler: handler}
//	wire.ServerOptions(s)
//	s.Serve(wire.Listener(ln, wire.Limits{}, nil))
//
//	func handler(ctx *fasthttp.RequestCtx) {
//		if r := wire.CheckRequest(ctx); r != nil { … respond with r.Status, then return }
//		out := origin.Forward(wire.RequestOf(ctx), &proxy.Forward{…})
//	}
//
// With a direct handler in place of nil, fasthttp and its handler see only the requests that the direct handler leaves to them.
//
// # Reading order
//
// listener.go (limits, accept), conn.go (the connection as fasthttp sees it, its phases), header.go (reading a header),
// reader.go and writer.go (deadlines), body.go, request.go and response.go (what handlers and proxies use), answer.go
// (responses in one piece), close.go, proxy_protocol.go.
//
// # Below fasthttp
//
// A conn passes fasthttp exactly one request header at a time, after one strict pass over its bytes; bodies never enter
// fasthttp's buffers. Three things follow. One place decides on the framing. A body that nothing has read is dropped, or
// the connection is closed, before the next header is read, so its bytes never run as a request. And a proxied body
// streams in both directions at once, because this package reads it.
//
// The loop of a connection, with its phases:
//
//	          Accept
//	            │
//	            ▼
//	      ┌─ phaseFresh        the first header has HeaderTimeout; a PROXY header comes before it
//	      │
//	      │  ┌─ phaseIdle ◀──────────────────────────┐ finish: the rest of the body is dropped
//	      ▼  ▼                                       │
//	next: read, scan, deliver or refuse              │
//	      │                                          │
//	      ▼                                          │
//	   phaseRead                                     │
//	      │ direct handler, or CheckRequest          │
//	      ▼                                          │
//	   phaseHandled ──── response by fasthttp ───────┤
//	      │                                          │
//	      │ Response.Begin, Answer, Send             │
//	      ▼                                          │
//	   phaseAnswered ─── fasthttp's is discarded ────┘
//	      │
//	      │ Response.Abort, Fail, Detach
//	      ▼
//	   phaseDetached          nothing is read or written any more
//
// A request in phaseRead that no handler has accepted ends its connection, and so do a refusal, "Connection: close" and
// every error: conn.last is then set, and next returns io.EOF. A response of phaseHandled and later may be the last too.
//
// A plain conn passes for TLS (earlyConn): fasthttp then calls Handshake before it allocates buffers, and Handshake serves
// requests directly, by the same loop, until one is left to fasthttp.
//
// Shutdown closes connections from another goroutine, which may use only conn.doing, the activity:
//
//	activityFresh, activityIdle   waiting for bytes: CloseFresh and CloseWaiting close these
//	activityBusy                  Close closes at once
//	activityDirect                a handler or a drain is running: Close only sets activityClosing,
//	activityClosing               and the connection ends after the response
//	activityClosed                the socket is closed
package wire

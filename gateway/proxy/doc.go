// Package proxy carries one request to an origin and its answer back, behind a fasthttp server.
//
// It owns what stands between two HTTP parsers: which bytes count as a request, which headers
// travel, when a connection may be used again, and what a broken peer means to the other side.
//
// A server is set up in three steps, and every handler begins with the fourth:
//
//	s := &fasthttp.Server{Handler: handler}
//	proxy.ServerOptions(s)
//	s.Serve(proxy.Listener(ln, proxy.Limits{}))
//
//	func handler(ctx *fasthttp.RequestCtx) {
//		if r := proxy.CheckRequest(ctx); r != nil { … answer r.Status, then return }
//		out := proxy.RequestOf(ctx).Forward(origin, &proxy.Forward{…})
//	}
//
// With Direct in place of Listener, fasthttp and its handler see only what a handler of ours leaves to them.
//
// # How it sits under fasthttp
//
// The listener's connections hand fasthttp exactly one request header at a time, after one strict
// pass over its raw bytes; bodies never enter fasthttp's buffers. Three things follow. The framing
// that counts is decided in one place. A body that nobody read is drained or the connection is
// closed before the next header is looked at, whatever the handler did, so what is in it never runs
// as a request. And a proxied body streams in both directions at once, because its reader is ours.
//
// Forward writes the origin's answer to the client itself, as it arrives, informational answers
// included; what fasthttp writes after the handler returns is then swallowed. Where Forward has sent
// nothing, ctx.Response is untouched and the handler answers as usual.
package proxy

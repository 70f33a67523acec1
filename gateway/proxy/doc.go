// Package proxy forwards a request to an origin and its response back, streaming both. It has the origins' side: their
// servers, connections, limits and health. Package wire has the visitors' side, package http1 the grammar of both.
//
//	o, err := proxy.New(proxy.Config{…})
//	o.Start()
//	out := o.Forward(wire.RequestOf(ctx), &proxy.Forward{…})
//
// Forward writes the origin's response to the client itself, as it arrives, informational responses included. If it has
// sent nothing, ctx.Response is untouched and the handler responds as usual.
//
// # Reading order
//
// origin.go (configuration, start and end), exchange.go (Forward: slot, server, request, response header), outgoing.go
// (the request header that the origin receives), upload.go (the request's body), relay.go (the response's body), response.go
// (the response header that the client receives), tunnel.go (upgraded connections).
//
// Below: pool.go and shares.go (slots, the queue for them, each client's share), balance.go and health.go (which server,
// and which are out), resolve.go, dial.go and origin_conn.go (names, connections).
package proxy

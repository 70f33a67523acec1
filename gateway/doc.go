// Package gateway serves visitors. A request is routed, decided about and answered, in this order and once each:
//
//   - request.go collects its facts: where it leads, who asks, which cookies and account it has;
//   - a handler returns a decision (decision.go) or a problem: enter.go for paths of a room, endpoints.go for those below
//     /.waiting-room, join.go for a new ticket, ticket.go for one that the client brings;
//   - write.go carries out the decision: it forwards the request, or writes the response.
//
// Reading order: serve.go, which is that way on one page; request.go, decision.go, enter.go, ticket.go, write.go. tokens.go
// verifies and grant.go signs tokens. gateway.go and reload.go build what all requests share. The packages below this one
// stand alone: client, route, forecast, answer, page, guard, identity, proxy.
package gateway

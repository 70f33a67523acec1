// Package gateway serves visitors. Each request passes these steps once:
//
//   - request.go collects its facts: the destination, the client, cookies and account;
//   - a handler returns a decision (decision.go) or a problem: enter.go for paths of a room, endpoints.go for paths below
//     /.waiting-room, join.go for a new ticket, ticket.go for an existing one;
//   - check.go decides, by the same functions, about requests that another proxy asks about;
//   - write.go carries out the decision: it forwards the request, or writes the response.
//
// Reading order: serve.go, which has these steps on one page; request.go, decision.go, enter.go, ticket.go, write.go. tokens.go
// verifies tokens and grant.go signs them; account.go finds the account of a request, comeback.go the ended session of a visitor
// who returns, prove.go requires a proof of work or CAPTCHA, steps.go a permit; explain.go answers the URL tester. gateway.go and
// reload.go build what all requests share, shutdown.go ends it. The packages below gateway do not import it; docs/architecture.md has
// them in a table.
package gateway

// Package extauthz answers checks over gRPC: it is a server of envoy.service.auth.v3.Authorization, by which Envoy asks about each
// request that it forwards. The decision is that of checks over HTTP, which package gateway makes; this package reads the
// description of the request from a CheckRequest (describe.go), writes the decision as a CheckResponse (respond.go), and runs the
// server within its limits (server.go).
package extauthz

// Package extauthz is the server for checks over gRPC, the service envoy.service.auth.v3.Authorization. It reads the description of a
// request from a CheckRequest (describe.go), writes the decision as a CheckResponse (respond.go), and runs the server within its limits
// (server.go). Package gateway decides, as about checks over HTTP.
package extauthz

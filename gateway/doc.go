// Package gateway is a request's way through the room: which room it falls in, who asks, whether it may go on to the
// origin, and what it is told when it has to wait.
//
// Reading order: server.go sets the server up, gate.go decides about a request to a protected path, visitor.go answers
// under /.waiting-room/, problem.go holds the one table of everything that is refused.
package gateway

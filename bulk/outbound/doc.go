// Package outbound is how the bulk worker calls HTTP servers: a client that is bounded in every direction, a guard that keeps
// addresses given by outsiders away from private networks, and the signature that a receiver can check.
package outbound

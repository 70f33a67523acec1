// Package outbound is the bulk worker's HTTP client: bounded in time and size, with a guard that keeps addresses
// given by outsiders away from private networks, and signatures that receivers can verify.
package outbound

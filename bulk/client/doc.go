// Package client is a client of a bulk worker's HTTP API.
//
// Each call is retried while the server is down or asks to wait, for Options.Patience. Retries are safe: the client
// chooses a group's id where the caller does not, and each chunk of an upload has an idempotency key. Uploads and
// downloads of any length take constant memory.
package client

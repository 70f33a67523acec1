// Package client talks to a bulk worker over HTTP.
//
// Every call is tried again while the server is away or asks to wait, for as long as Options.Patience says, and so made that
// a repetition changes nothing: a group's id is drawn here where the caller gives none, and each chunk of an upload carries an
// idempotency key. Uploads and downloads of any length take constant memory.
package client

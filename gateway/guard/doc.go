// Package guard checks proofs of work (ALTCHA) and CAPTCHAs, which a room can require before a join. It keeps no state of the rooms,
// and uses HTTP only for requests to the providers of CAPTCHAs.
package guard

//go:generate go run ./gen

// Package guard checks proofs of work (ALTCHA) and CAPTCHAs, which a room can require before a join. It keeps no state of the rooms,
// and uses HTTP only for requests to the providers of CAPTCHAs.
//
// Reading order: proof.go (challenges and solutions), effort.go (how much work), captcha.go, script.go with pow.js and search.js (what
// a page loads), gen (the WebAssembly module).
package guard

//go:generate go run ./gen

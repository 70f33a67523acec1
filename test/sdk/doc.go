// Package sdk holds the tests of the SDKs in sdk/: each runs the cases of sdk/vectors.json, fetches keys and revoked sessions from
// a server as its comments describe, and agrees with package token about tokens that are broken at random.
//
// The package is a module of its own because sdk/go is one. A language whose toolchain is missing is left out, unless
// SDK_REQUIRED is set.
package sdk

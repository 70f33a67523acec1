// Package sdk tests the SDKs in sdk/: each passes the cases of sdk/vectors.json, fetches keys and revoked sessions as sdk/README.md
// describes, and agrees with package token about randomly broken tokens.
//
// The package is a module of its own because sdk/go is one. A language whose toolchain is missing is skipped, unless
// SDK_REQUIRED is set.
package sdk

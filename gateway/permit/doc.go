// Package permit parses requests for permits and redeems permits. A permit is a token with which a session takes one step;
// see docs/permits.md.
//
// Package gateway issues permits, package console redeems them.
package permit

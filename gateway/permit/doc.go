// Package permit reads the orders of permits, and redeems permits. A permit is a token with which a session takes
// one step of a flow; see docs/permits.md.
//
// The package is shared by the visitors' side, which issues permits, and the operators' side, which redeems them.
package permit

// Package token mints and verifies Anteroom's two JSON Web Tokens: the waiting token, which is a visitor's place in a
// line, and the pass, which lets an admitted visitor reach the origin.
//
// A token's header is {"alg","kid","typ"} and nothing else. The type ("wait+jwt" or "pass+jwt") keeps one from being
// shown as the other, the audience (the room, a string) keeps it to its room, and the key named by kid decides the only
// algorithm that is accepted for it (RFC 8725 §3.1, §3.9, §3.11). Times are seconds of the store's clock; orders are
// microseconds of order time: that clock plus a lead, which never goes back.
//
// A pass says when its visitor arrived (ord, fn), so that one who has to wait again keeps the order of arrival. An origin that
// checks passes has no use for these two claims.
//
// The package is pure: time is a parameter, nothing is started, and neither the network nor the store is touched, so an
// origin may import it to check passes by itself.
package token

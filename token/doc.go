// Package token signs and verifies Anteroom's three JSON Web Tokens: the waiting token, which is a visitor's place in a
// queue, the pass, with which an admitted visitor reaches the origin, and the permit, with which a session takes one step.
//
// NewRing makes a Ring of keys. Its AppendWaiting, AppendPass and AppendPermit sign, its VerifyWaiting, VerifyPass and
// VerifyPermit verify. A Cache remembers verified waiting tokens and passes. AccountKeys verify the JWTs of a site, which name accounts.
//
// A token's header is {"alg","kid","typ"} without further members. A token of one type ("wait+jwt", "pass+jwt" or "permit+jwt") is never
// accepted as the other, nor for a room that is not its audience. The key named by kid decides the only accepted algorithm (RFC
// 8725 §3.1, §3.9, §3.11). Times are seconds of the store's clock; orders are microseconds of order time: that clock plus a
// lead, which never goes back.
//
// A pass has the order and fence of its visitor's arrival (ord, fn), so that a visitor who has to wait again keeps the order.
// An origin that checks passes does not need these two claims.
//
// A pass with the claim live is signed once. Its session also ends when its visitor is silent, which only gateways can find; the pass
// itself verifies until exp.
//
// The package is pure: time is a parameter, no goroutine is started, and neither the network nor the store is used, so an
// origin may import it to check passes itself.
package token

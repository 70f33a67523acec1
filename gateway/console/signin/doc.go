// Package signin signs operators in through a provider of OpenID Connect: authorization code with PKCE, state and nonce. A session is
// a sealed cookie. The gateway keeps no record of it, so any gateway with the same client secret accepts it.
//
// Reading order: Options and New in signin.go, flow.go for the redirects, session.go for the cookie, roles.go for the grants.
package signin

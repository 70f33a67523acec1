// Package suite tests a proxy beside the gateway: the built gateway, a proxy with the configuration that `gateway snippet`
// prints, and an origin that records what reaches it.
//
// Contract is a table of what each proxy has to do with the responses of the check endpoint, Spoofing a table of requests of
// which none may reach the origin. Run runs both against one Proxy: a program, or a client transcribed from a proxy's source.
package suite

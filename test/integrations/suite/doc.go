// Package suite tests a proxy beside the gateway: the built gateway, a proxy with the configuration that `gateway snippet`
// prints, and an origin that records what reaches it.
//
// Contract is a table of what each proxy has to do with the responses to its checks, Faults one of parts that are away, and Spoof sends requests
// of which none may reach the origin. Run runs all three against one Proxy: a program, or a proxy of package checktest.
package suite

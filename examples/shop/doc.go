// Command shop is a small ticket shop to stand a waiting room in front of: pages, assets, a checkout, and a seat map that
// is live over server-sent events and WebSocket. Its state is in memory; --delay and --capacity make it as slow as a real one.
package main

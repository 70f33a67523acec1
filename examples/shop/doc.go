// Command shop is a small ticket shop for a demonstration of a waiting room: pages, assets, a checkout, and a seat map that
// is updated over server-sent events and WebSocket. Its state is in memory; --delay and --capacity make it as slow as a real
// shop.
package main

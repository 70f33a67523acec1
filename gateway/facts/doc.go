// Package facts describes what a room publishes for those who wait: the items on sale with their states and prices, and notices. It is
// the document that the store keeps, gateways serve and the waiting page shows.
//
// Reading order: document.go (the document), check.go (its bounds), view.go (the version that requests are answered with).
package facts

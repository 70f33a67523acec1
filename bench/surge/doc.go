// Command surge raises the rate of a room while visitors wait at two gateways, and reports who was overtaken and how long
// the room took to admit every visitor.
package main

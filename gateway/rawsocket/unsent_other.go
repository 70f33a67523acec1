//go:build !linux

package rawsocket

import "net"

// BoundUnsent is for Linux alone: elsewhere the kernel decides what it takes for a peer.
func BoundUnsent(net.Conn) {}

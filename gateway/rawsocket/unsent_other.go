//go:build !linux

package rawsocket

import "net"

// BoundUnsent does nothing: only Linux can bound the bytes that the kernel holds for a peer.
func BoundUnsent(net.Conn) {}

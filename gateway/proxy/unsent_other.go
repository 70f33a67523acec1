//go:build !linux

package proxy

import "net"

// boundUnsent is for Linux alone: elsewhere the kernel decides what it takes for a peer.
func boundUnsent(net.Conn) {}

//go:build !linux

package listener

import "net"

func dropNew(net.Listener) {}

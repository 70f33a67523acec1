package rawsocket

import (
	"net"
	"syscall"
)

const (
	tcpNotSentLowat = 25       // TCP_NOTSENT_LOWAT
	maxUnsent       = 64 << 10 // two writes' worth
)

// BoundUnsent bounds the bytes that the kernel holds for a peer. The send buffer grows to megabytes otherwise, and a write
// that waits until a third of them has left cannot show whether the peer still reads, which write time-outs need to know.
// Thousands of slow readers would also hold that much memory each.
func BoundUnsent(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := t.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { //nolint:errcheck // a closed connection fails at the first read
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, maxUnsent) //nolint:errcheck // a kernel without it decides alone
		})
	}
}

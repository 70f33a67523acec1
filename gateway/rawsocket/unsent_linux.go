package rawsocket

import (
	"net"
	"syscall"
)

const (
	tcpNotSentLowat = 25       // TCP_NOTSENT_LOWAT
	mostUnsent      = 64 << 10 // two writes' worth
)

// boundUnsent has the kernel take no more for a peer than it can soon send. Its buffer grows to megabytes otherwise, and
// a write that waits until a third of them has gone out cannot tell whether the peer takes what it is sent, which is what
// WriteIdle is about; and thousands who read slowly would hold as many megabytes.
func BoundUnsent(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := t.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { //nolint:errcheck // a closed connection says so at the first read
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, mostUnsent) //nolint:errcheck // a kernel without it decides alone
		})
	}
}

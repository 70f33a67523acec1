package listener

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// dropNew makes the system drop the first packets of new connections, so that Accept can reach the end of the established ones.
// A client whose packet was dropped tries again after a second, when the socket is closed.
func dropNew(ln net.Listener) {
	sc, ok := ln.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	none := [...]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	_ = raw.Control(func(fd uintptr) {
		// Without the filter some new connections are reset, which their clients can repeat.
		_ = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &none[0]})
	})
}

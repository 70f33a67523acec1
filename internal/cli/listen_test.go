package cli

import (
	"fmt"
	"net"
	"syscall"
	"testing"
)

func TestCannotListen_NamesTheWayOut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	addr := ln.Addr().String()
	_, taken := net.Listen("tcp", addr)
	_, elsewhere := net.Listen("tcp", "192.0.2.1:0") // TEST-NET-1 is nobody's own address
	for _, row := range []struct {
		err  error
		want string
	}{
		{taken, fmt.Sprintf("listen: %q is taken by another program; stop that one, or choose another address", addr)},
		{syscall.EACCES, fmt.Sprintf("listen: %q may not be listened on (permission denied); choose a port above 1023, or give the program CAP_NET_BIND_SERVICE", addr)},
		{elsewhere, fmt.Sprintf("listen: %q: %v", addr, elsewhere)},
	} {
		if row.err == nil {
			t.Fatal("it could be listened on")
		}
		if got := CannotListen("listen", addr, row.err).Error(); got != row.want {
			t.Errorf("got  %s\nwant %s", got, row.want)
		}
	}
}

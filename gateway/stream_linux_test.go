package gateway

import (
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/anteroom/anteroom/gateway/wire"
)

// A stream counts as hearing of its visitor: one to a machine that is gone is not kept for as long as the system would try.
func TestStreamToAMachineThatIsGoneEndsSoon(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	listenTo(t, b.addr, b.call("POST /.waiting-room/sale/tickets").field("token"))
	b.streams.mu.Lock()
	defer b.streams.mu.Unlock()
	for _, st := range b.streams.open {
		raw, err := wire.Socket(st.conn).(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var ms int
		if e := raw.Control(func(fd uintptr) { ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); e != nil || err != nil {
			t.Fatal(e, err)
		}
		if after := time.Duration(ms) * time.Millisecond; after != streamSilent {
			t.Errorf("given up after %s, want %s", after, streamSilent)
		}
		return
	}
	t.Error("no stream is open")
}

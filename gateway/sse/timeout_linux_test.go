package sse

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"github.com/anteroom/anteroom/gateway/wire"
)

// A stream counts as the presence of its visitor, so a stream to a machine that is gone has to end soon.
func TestStart_SetsUserTimeout(t *testing.T) {
	s, _ := running(t, 10)
	server := &fasthttp.Server{KeepHijackedConns: true, Handler: func(ctx *fasthttp.RequestCtx) {
		if err := s.Reserve([16]byte{}); err != nil {
			t.Error(err)
		}
		s.Start(ctx, []byte("HTTP/1.1 200 OK\r\nConnection: close\r\n"), NewStream(&source{}, [16]byte{1}, [16]byte{}))
	}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(ln) }()
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n")
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "data: ") {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.counts.newest {
		raw, err := wire.Socket(st.conn).(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var ms int
		if e := raw.Control(func(fd uintptr) { ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); e != nil || err != nil {
			t.Fatal(e, err)
		}
		if after := time.Duration(ms) * time.Millisecond; after != silentTimeout {
			t.Errorf("the timeout is %s, want %s", after, silentTimeout)
		}
		return
	}
	t.Error("no stream is open")
}

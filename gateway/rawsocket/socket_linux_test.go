package rawsocket

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

// A connection holds no block while it waits, and returns the bytes that it reads in one.
func TestConn_ReadLentBorrowsOnData(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	var s Conn
	s.Wrap(near)
	near.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if block, n, err := s.ReadLent(100); block != nil || n != 0 || !IsTimeout(err) || s.socket.in.block != nil || s.socket.in.p != nil {
		t.Errorf("silence: %v %d %v", block, n, err)
	}
	near.SetReadDeadline(time.Now().Add(wiretest.Wait))
	io.WriteString(far, "hello")
	if block, n, err := s.ReadLent(3); err != nil || string((*block)[:n]) != "hel" || s.socket.in.block != nil {
		t.Errorf("a part: %d %v", n, err)
	}
	b := make([]byte, 10)
	if n, err := s.Read(b); err != nil || string(b[:n]) != "lo" {
		t.Errorf("the rest, into a buffer of our own: %q %v", b[:n], err)
	}
	far.Close()
	if block, n, err := s.ReadLent(3); block == nil || n != 0 || err != io.EOF {
		t.Errorf("the end: %d %v", n, err)
	}
}

package wire

import (
	"github.com/anteroom/anteroom/gateway/http1"
	"net"
	"testing"
)

// An answer that overtakes 100 Continue is not waited behind: the client may never send the body, or send a request in its
// place, so nothing more is read of it.
func TestAnswerOvertakesContinue(t *testing.T) {
	c, s := net.Pipe()
	defer c.Close()
	defer s.Close()
	lim := Limits{}.withDefaults()
	conn := &conn{Conn: s, lim: &lim}
	conn.in.Src, conn.body.c = bodySource{conn}, conn
	if n, r := conn.head.Scan([]byte("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"), &http1.Limits{Header: 16 << 10, Target: 8 << 10, Lines: 100}); n == 0 || r != nil {
		t.Fatal(n, r)
	}
	conn.body.begin(&conn.head)
	conn.begin()
	if n, err := conn.body.Read(make([]byte, 10)); n != 0 || err != ErrInterrupted {
		t.Errorf("%d, %v", n, err)
	}
	if conn.body.drain() {
		t.Error("the connection would go on")
	}
}

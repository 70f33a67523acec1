package wire

import (
	"net"
	"testing"
)

// After a response that overtakes 100 Continue no more bytes are read: the client may never send the body, or may send a
// request in its place.
func TestRequest_ResponseOvertakesContinue(t *testing.T) {
	c, s := net.Pipe()
	defer c.Close()
	defer s.Close()
	conn := newConn(newListener(nil, Limits{}, nil), s)
	if n, r := conn.request.header.Scan([]byte("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"), &conn.listener.headers); n == 0 || r != nil {
		t.Fatal(n, r)
	}
	conn.deliver()
	conn.writer.begin()
	if n, err := conn.body.Read(make([]byte, 10)); n != 0 || err != ErrInterrupted {
		t.Errorf("%d, %v", n, err)
	}
	if conn.body.drain() {
		t.Error("the connection would serve another request")
	}
}

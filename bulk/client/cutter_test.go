package client

import (
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
)

// cutter is a proxy between a client and a server that resets connections after so many bytes.
type cutter struct {
	l      net.Listener
	server string
	copies sync.WaitGroup

	mu       sync.Mutex
	up, down []int64 // what is let through of the next connections, in either direction; then everything
	conns    map[net.Conn]struct{}
	cuts     int
}

// cut starts a cutter in front of a server.
func cut(t testing.TB, s *httptest.Server) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{l: l, server: s.Listener.Addr().String(), conns: map[net.Conn]struct{}{}}
	c.copies.Go(c.accept)
	t.Cleanup(func() {
		_ = l.Close()
		c.reset()
		c.copies.Wait()
	})
	return c
}

func (c *cutter) url() string { return "http://" + c.l.Addr().String() }

// sending resets the next connections when the client has sent so many bytes; receiving, when it has received so many.
func (c *cutter) sending(bytes ...int64)   { c.plan(&c.up, bytes) }
func (c *cutter) receiving(bytes ...int64) { c.plan(&c.down, bytes) }

func (c *cutter) plan(to *[]int64, bytes []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*to = append(*to, bytes...)
}

// done returns how many connections were cut.
func (c *cutter) done() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

// reset resets every connection that is open.
func (c *cutter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

func (c *cutter) accept() {
	for {
		client, err := c.l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		c.mu.Lock()
		up, down := next(&c.up), next(&c.down)
		c.conns[client], c.conns[server] = struct{}{}, struct{}{}
		c.mu.Unlock()
		pipe := func(to, from net.Conn, limit int64) {
			var n int64
			if limit < 0 {
				n, _ = io.Copy(to, from)
			} else {
				n, _ = io.CopyN(to, from, limit)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if n == limit {
				c.cuts++
				_ = client.(*net.TCPConn).SetLinger(0)
			}
			delete(c.conns, client)
			delete(c.conns, server)
			_ = client.Close()
			_ = server.Close()
		}
		c.copies.Go(func() { pipe(server, client, up) })
		c.copies.Go(func() { pipe(client, server, down) })
	}
}

// next takes the first of a plan; -1: no limit.
func next(plan *[]int64) int64 {
	if len(*plan) == 0 {
		return -1
	}
	n := (*plan)[0]
	*plan = (*plan)[1:]
	return n
}

package gateway

import (
	"bufio"
	"context"
	"net"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// An idle connection may send one more request during Shutdown; the response ends the connection.
func TestShutdown_ServesLastRequestOfIdleConnection(t *testing.T) {
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, LastRequest: time.Minute,
	})
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	if a, err := exchange(c, r, "GET /"); err != nil || a.closed {
		t.Fatalf("%+v %v", a, err)
	}
	down := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { down <- b.Gateway.Shutdown(ctx) }()
	eventually(t, "no new connection is accepted", func() bool {
		n, err := net.Dial("tcp", b.addr)
		if err == nil {
			n.Close()
		}
		return err != nil
	})
	if a, err := exchange(c, r, "GET /"); err != nil || a.status != 200 || !a.closed {
		t.Errorf("the last request: %+v %v", a, err)
	}
	select {
	case err := <-down:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Shutdown waits without a connection")
	}
}

// A connection without a request delays Shutdown by a few seconds at most, whatever the header timeout.
func TestShutdown_ClosesSilentConnections(t *testing.T) {
	short.Skip(t, "waits for the clock")
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Limits: wire.Limits{HeaderTimeout: time.Hour},
	})
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b.call("GET /").code(t, 200) // returns after the silent connection was accepted
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.Gateway.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

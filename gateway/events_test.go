package gateway

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

// slowEnd is a connection whose client makes its closing take a while.
type slowEnd struct {
	net.Conn
	closing, release chan struct{}
}

func (c *slowEnd) Close() error {
	close(c.closing)
	<-c.release
	return nil
}

func TestStreamThatEndsSlowlyHoldsUpNoOther(t *testing.T) {
	s := newStreams(&Gateway{metrics: NewMetrics(nil, "")}, 2)
	if p := s.reserve(); p != nil {
		t.Fatal(p.code)
	}
	c := &slowEnd{closing: make(chan struct{}), release: make(chan struct{})}
	ended, reserved := make(chan struct{}), make(chan *problem, 1)
	go func() {
		s.end(&stream{conn: c})
		close(ended)
	}()
	<-c.closing
	go func() { reserved <- s.reserve() }()
	select {
	case p := <-reserved:
		if p != nil {
			t.Errorf("no place for another stream: %s", p.code)
		}
	case <-time.After(5 * time.Second):
		t.Error("another stream waits for one that ends")
	}
	close(c.release)
	<-ended
}

func TestEventsReadTheRequestToItsEnd(t *testing.T) {
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(0)}}, MaxStreams: 1,
	})
	token := "X-Waiting-Room-Token: " + b.call("POST /.waiting-room/sale/tickets").field("token")
	b.call("GET /.waiting-room/sale/events", token, "", strings.Repeat("x", bodyLimit+1)).code(t, 413)
}

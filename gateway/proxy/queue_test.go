package proxy

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/gateway/wire/wiretest"
)

func still() error { return nil }

// Requests are served in order of arrival. A request that leaves the queue, by time-out or without its client, moves those
// behind it up.
func TestQueue_IsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := New(Config{Servers: []string{"http://192.0.2.1"}, MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		o.enter(nil, 0, nil)
		type end struct {
			who int
			err error
		}
		ends := make(chan end, 10)
		left := errors.New("left")
		for who, w := range []struct {
			Wait time.Duration
			gone func() error
		}{
			{time.Minute, still}, {time.Second, still}, {time.Minute, func() error { return left }}, {time.Minute, still}, {time.Minute, still},
		} {
			go func() {
				_, err := o.enter(nil, w.Wait, w.gone)
				ends <- end{who, err}
			}()
			synctest.Wait()
		}
		if n := o.Stats().Waiting; n != 5 {
			t.Fatalf("%d wait, want 5", n)
		}
		if e := <-ends; e.who != 2 || e.err != left {
			t.Errorf("%+v, want the one whose client has left", e)
		}
		if e := <-ends; e.who != 1 || e.err != errQueueFull {
			t.Errorf("%+v, want the one whose time is over", e)
		}
		for _, who := range []int{0, 3, 4} {
			o.leave(nil)
			if e := <-ends; e.who != who || e.err != nil {
				t.Errorf("%+v, want %d", e, who)
			}
		}
		o.leave(nil)
		if st := o.Stats(); st.InUse != 0 || st.Waiting != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A slot granted to a request whose client has left is passed on to the next request.
func TestQueue_PassesOnSlotOfLeftClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := New(Config{Servers: []string{"http://192.0.2.1"}, MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		o.enter(nil, 0, nil)
		left := errors.New("left")
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { _, err := o.enter(nil, time.Minute, func() error { return left }); first <- err }()
		synctest.Wait()
		go func() { _, err := o.enter(nil, time.Minute, still); second <- err }()
		synctest.Wait()
		o.leave(nil)
		if err := <-first; err != left {
			t.Error(err)
		}
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

func TestQueue_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := New(Config{Servers: []string{"http://192.0.2.1"}, MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		if o.Stats().MaxWaiting != 4096 {
			t.Errorf("%+v", o.Stats())
		}
		o.slots.maxWaiting = 2
		o.enter(nil, 0, nil)
		done := make(chan error, 2)
		for range 2 {
			go func() { _, err := o.enter(nil, time.Minute, still); done <- err }()
		}
		synctest.Wait()
		begun := time.Now()
		if _, err := o.enter(nil, time.Minute, still); err != errQueueLong || time.Since(begun) != 0 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if _, err := o.enter(nil, 0, still); err != errQueueFull {
			t.Error(err)
		}
		o.leave(nil)
		o.leave(nil)
		if a, b := <-done, <-done; a != nil || b != nil {
			t.Error(a, b)
		}
	})
}

// The wait in the queue is bounded by the origin's timeout.
func TestQueue_WithinTimeout(t *testing.T) {
	o := newRecorder(t, silent)
	cfg := to(o)
	cfg.MaxConns, cfg.QueueTimeout, cfg.Timeout = 1, time.Hour, 300*time.Millisecond
	g := newGate(t, cfg, wire.Limits{}, nil)
	g.origin.enter(nil, 0, nil)
	c := g.dial()
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if status, _, body := c.Answer("GET"); status != 503 || body != KindQueueFull {
		t.Errorf("%d %s", status, body)
	}
	g.origin.leave(nil)
}

// The request of a client that leaves the queue is not sent to the origin.
func TestQueue_ClientLeaves(t *testing.T) {
	release := make(chan struct{})
	o := newRecorder(t, func(s *session) {
		for s.head() != "" {
			<-release
			s.write(okAnswer)
		}
	})
	cfg := to(o)
	cfg.MaxConns, cfg.QueueTimeout = 1, wiretest.Wait
	g := newGate(t, cfg, wire.Limits{}, nil)
	a, b, c := g.dial(), g.dial(), g.dial()
	a.Send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
	wiretest.Eventually(t, "the first is with the origin", func() bool { return len(o.requests()) == 1 })
	b.Send("GET /b HTTP/1.1\r\nHost: a\r\n\r\n")
	wiretest.Eventually(t, "the second waits", func() bool { return g.origin.Stats().Waiting == 1 })
	c.Send("GET /c HTTP/1.1\r\nHost: a\r\n\r\n")
	wiretest.Eventually(t, "the third waits", func() bool { return g.origin.Stats().Waiting == 2 })
	b.Close()
	wiretest.Eventually(t, "its place is free", func() bool { return g.origin.Stats().Waiting == 1 })
	if out := g.outcome(0); out.Kind != KindClientGone {
		t.Errorf("%+v", out)
	}
	close(release)
	a.Answer("GET")
	c.Answer("GET")
	if n := len(o.requests()); n != 2 {
		t.Errorf("the origin saw %d requests, want 2", n)
	}
}

package sse

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/short"
)

// observer records the last calls.
type observer struct {
	mu     sync.Mutex
	open   int
	faults int
}

func (o *observer) StreamsOpen(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = n
}

func (o *observer) StreamRefused() {}

func (o *observer) StreamFault(Source, any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults++
}

// source sends one event at its start.
type source struct {
	sent bool
	due  bool // also later
}

func (s *source) Due(time.Duration) (bool, time.Duration) { return !s.sent || s.due, NextCheck }

func (s *source) AppendEvents(_ context.Context, b []byte, _ time.Duration) ([]byte, time.Duration, bool) {
	if s.sent && !s.due {
		return b, NextCheck, true
	}
	s.sent = true
	return append(b, "data: x\n\n"...), NextCheck, true
}

// broken is a source with a fault.
type broken struct{}

func (broken) Due(time.Duration) (bool, time.Duration) { panic("a fault of the test") }

func (broken) AppendEvents(context.Context, []byte, time.Duration) ([]byte, time.Duration, bool) {
	panic("a fault of the test")
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// running returns streams whose loop runs until the test ends.
func running(t *testing.T, limit int) (*Streams, *observer) {
	o := &observer{}
	ctx, cancel := context.WithCancel(context.Background())
	s := New(ctx, limit, o)
	var loop sync.WaitGroup
	loop.Go(func() { s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		loop.Wait()
	})
	return s, o
}

// open returns the number of open streams, or -1 if the counts of Streams differ.
func (s *Streams) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, st := range s.counts.newest {
		for ; st != nil; st = st.older {
			n++
		}
	}
	if n != s.counts.all {
		return -1
	}
	return n
}

// pair returns both ends of a TCP connection.
func pair(t *testing.T) (server, client net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return server, client
}

func (s *Streams) addOn(t *testing.T, c net.Conn, from Source, ticket [16]byte) {
	t.Helper()
	if err := s.Reserve([16]byte{}); err != nil {
		t.Fatal(err)
	}
	st := NewStream(from, ticket, [16]byte{})
	st.conn = c
	s.add(st)
}

func TestStreams_NewestOfTicketStay(t *testing.T) {
	s, o := running(t, 10)
	ticket := [16]byte{1}
	first, client := pair(t)
	s.addOn(t, first, &source{}, ticket)
	for range streamsPerTicket {
		c, _ := pair(t)
		s.addOn(t, c, &source{}, ticket)
	}
	if _, err := io.ReadAll(client); err != nil { // ended by the last one
		t.Error(err)
	}
	if n := s.open(); n != streamsPerTicket {
		t.Errorf("%d streams are open, want %d", n, streamsPerTicket)
	}
	s.Close()
	if err := s.Reserve([16]byte{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if n := s.open(); n != 0 || o.open != 0 {
		t.Errorf("%d streams are left, %d observed", n, o.open)
	}
}

func TestStreams_FaultEndsStream(t *testing.T) {
	s, o := running(t, 10)
	c, client := pair(t)
	s.addOn(t, c, broken{}, [16]byte{1})
	if _, err := io.ReadAll(client); err != nil {
		t.Error(err)
	}
	if n := s.open(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.faults != 1 {
		t.Errorf("%d faults observed", o.faults)
	}
}

// Clients that do not read are skipped, then ended: more of them than there are workers delay no other client.
func TestStreams_ClientsThatDoNotReadDelayNoOther(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	s, _ := running(t, 1000)
	const deaf = streamWorkers + 20
	for times := 1; ; times++ {
		var full []net.Conn
		for range deaf {
			server, client := pair(t)
			server.(*net.TCPConn).SetWriteBuffer(4096)
			client.(*net.TCPConn).SetReadBuffer(4096)
			eventually(t, "the connection is full", func() bool {
				server.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
				for err := error(nil); err == nil; {
					_, err = server.Write(make([]byte, 64<<10))
				}
				return !writable(server)
			})
			full = append(full, server)
		}
		for i, c := range full {
			s.addOn(t, c, &source{}, [16]byte{byte(i), byte(i >> 8), 7})
		}
		c, client := pair(t)
		s.addOn(t, c, &source{}, [16]byte{1, 1, 1})
		if _, err := client.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		n := s.open()
		eventually(t, "only the client that reads is left", func() bool { return s.open() == 1 })
		if n >= deaf/2 { // had its event waited for workers, most of the others were ended by now
			return
		}
		if times == 3 { // a busy machine may delay one attempt
			t.Fatalf("%d streams of %d are open at the first event: it waited for clients that do not read", n, deaf+1)
		}
		c.Close()
		client.Close()
		eventually(t, "no stream is left", func() bool { return s.open() == 0 })
	}
}

// slowEnd is a connection whose Close blocks until release.
type slowEnd struct {
	net.Conn
	closing, release chan struct{}
}

func (c *slowEnd) Close() error {
	close(c.closing)
	<-c.release
	return nil
}

func TestStreams_SlowCloseDelaysNoOther(t *testing.T) {
	s := New(t.Context(), 2, &observer{})
	if err := s.Reserve([16]byte{}); err != nil {
		t.Fatal(err)
	}
	c := &slowEnd{closing: make(chan struct{}), release: make(chan struct{})}
	ended, reserved := make(chan struct{}), make(chan error, 1)
	go func() {
		s.end(&Stream{conn: c})
		close(ended)
	}()
	<-c.closing
	go func() { reserved <- s.Reserve([16]byte{}) }()
	select {
	case err := <-reserved:
		if err != nil {
			t.Errorf("another stream: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("Reserve waits for a stream that ends")
	}
	close(c.release)
	<-ended
}

// The streams of one client address have a limit of their own, which LimitEach changes.
func TestStreams_OfOneAddressAreLimited(t *testing.T) {
	s := New(t.Context(), 100, &observer{})
	s.LimitEach(2)
	one, other := [16]byte{1}, [16]byte{2}
	for i, row := range []struct {
		address [16]byte
		want    error
	}{{one, nil}, {one, nil}, {one, ErrFull}, {other, nil}} {
		if err := s.Reserve(row.address); !errors.Is(err, row.want) {
			t.Errorf("stream %d: %v, want %v", i, err, row.want)
		}
	}
	c, _ := net.Pipe()
	s.end(&Stream{conn: c, address: one})
	if err := s.Reserve(one); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	s.LimitEach(3)
	if err := s.Reserve(one); err != nil {
		t.Errorf("after the limit was raised: %v", err)
	}
	s.LimitEach(0)
	for range 10 {
		if err := s.Reserve(one); err != nil {
			t.Errorf("without a limit: %v", err)
		}
	}
}

// resting is a source that wants to be asked rarely.
type resting struct{ asked atomic.Int64 }

func (r *resting) Due(time.Duration) (bool, time.Duration) {
	r.asked.Add(1)
	return false, 15 * time.Second
}

func (r *resting) AppendEvents(_ context.Context, b []byte, _ time.Duration) ([]byte, time.Duration, bool) {
	return append(b, "data: first\n\n"...), 15 * time.Second, true
}

// A change that concerns every stream has each asked at once, also those that are not due.
func TestStreams_ChangeAsksEverySource(t *testing.T) {
	var changes atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	s := New(ctx, 10, &observer{})
	s.Watch(func() bool { return changes.Swap(0) > 0 })
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	from := &resting{}
	server, client := pair(t)
	s.addOn(t, server, from, [16]byte{1})
	if _, err := client.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	if n := from.asked.Load(); n != 0 {
		t.Fatalf("asked %d times before the change", n)
	}
	eventually(t, "the source is asked", func() bool {
		changes.Store(1)
		return from.asked.Load() > 0
	})
}

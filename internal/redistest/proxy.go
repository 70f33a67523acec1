package redistest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// FaultProxy forwards connections of clients to a server and injects faults on demand. A fault affects open and new connections until
// Heal. Commands reach the server during every fault except Cut and Hold.
type FaultProxy struct {
	l      net.Listener
	server string // unix socket
	done   chan struct{}
	copies sync.WaitGroup

	mu    sync.Mutex
	fault fault
	conns map[net.Conn]net.Conn // client's side, server's side

	dropped atomic.Int64
}

type fault struct {
	delay  time.Duration
	slice  int
	drop   func(command []byte) bool
	reads  bool // drop is for another protocol than Redis's
	half   bool
	hold   bool
	refuse bool
}

// Proxy starts a FaultProxy on a free loopback port in front of a server's unix socket. It is stopped when the test ends.
func Proxy(t testing.TB, socket string) *FaultProxy {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &FaultProxy{l: l, server: socket, done: make(chan struct{}), conns: map[net.Conn]net.Conn{}}
	p.copies.Go(p.accept)
	t.Cleanup(func() {
		close(p.done)
		_ = l.Close()
		p.Reset()
		p.copies.Wait()
	})
	return p
}

// Addr returns the host:port that clients connect to.
func (p *FaultProxy) Addr() string { return p.l.Addr().String() }

// Heal ends every fault. Connections that a fault has damaged stay damaged.
func (p *FaultProxy) Heal() { p.set(func(f *fault) { *f = fault{} }) }

// Delay delays every reply by d.
func (p *FaultProxy) Delay(d time.Duration) { p.set(func(f *fault) { f.delay = d }) }

// Slice sends replies n bytes at a time.
func (p *FaultProxy) Slice(n int) { p.set(func(f *fault) { f.slice = n }) }

// Half sends the first half of each reply and then resets the connection.
func (p *FaultProxy) Half() { p.set(func(f *fault) { f.half = true }) }

// Drop forwards commands and drops the replies to those that match, which is called with the first bytes of a command; nil matches all.
// The connection stays open.
func (p *FaultProxy) Drop(match func(command []byte) bool) {
	if match == nil {
		match = func([]byte) bool { return true }
	}
	p.set(func(f *fault) { f.drop = match })
}

// DropReads is Drop for another protocol than Redis's: match is called with whatever is read at once.
func (p *FaultProxy) DropReads(match func(read []byte) bool) {
	p.set(func(f *fault) { f.drop, f.reads = match, true })
}

// Dropped returns how many replies, or parts of replies, Drop has dropped.
func (p *FaultProxy) Dropped() int64 { return p.dropped.Load() }

// Hold stops both directions; connections stay open and new ones are accepted (half-open).
func (p *FaultProxy) Hold() { p.set(func(f *fault) { f.hold = true }) }

// Cut resets every connection, and each new one immediately.
func (p *FaultProxy) Cut() {
	p.set(func(f *fault) { f.refuse = true })
	p.Reset()
}

// Reset resets every connection that is open; new ones are served.
func (p *FaultProxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, s := range p.conns {
		reset(c)
		_ = s.Close()
	}
}

func (p *FaultProxy) set(change func(*fault)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.fault)
}

func (p *FaultProxy) now() fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // closes with RST
	}
	_ = c.Close()
}

func (p *FaultProxy) accept() {
	for {
		c, err := p.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		s, err := net.Dial("unix", p.server)
		p.mu.Lock()
		ended := false
		select {
		case <-p.done:
			ended = true
		default:
		}
		if err != nil || ended || p.fault.refuse {
			p.mu.Unlock()
			reset(c)
			if err == nil {
				_ = s.Close()
			}
			continue
		}
		p.conns[c] = s
		p.mu.Unlock()
		w := &wire{p: p, client: c, server: s}
		p.copies.Go(func() { w.commands() })
		p.copies.Go(func() { w.replies() })
	}
}

// wire is one connection through the proxy.
type wire struct {
	p              *FaultProxy
	client, server net.Conn
	mu             sync.Mutex
	mute           bool // the reply to the last command is dropped
}

func (w *wire) close() {
	w.p.mu.Lock()
	delete(w.p.conns, w.client)
	w.p.mu.Unlock()
	reset(w.client)
	_ = w.server.Close()
}

// held waits while Hold is in force, and reports false if the proxy has ended.
func (w *wire) held() bool {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for w.p.now().hold {
		select {
		case <-w.p.done:
			return false
		case <-t.C:
		}
	}
	return true
}

func (w *wire) commands() {
	defer w.close()
	b := make([]byte, 64<<10)
	for {
		n, err := w.client.Read(b)
		if err != nil || !w.held() {
			return
		}
		// A command begins with *; later reads without one continue it.
		if f := w.p.now(); f.reads || bytes.HasPrefix(b[:n], []byte("*")) {
			mute := f.drop != nil && f.drop(b[:n])
			w.mu.Lock()
			w.mute = mute
			w.mu.Unlock()
		}
		if _, err := w.server.Write(b[:n]); err != nil {
			return
		}
	}
}

func (w *wire) replies() {
	defer w.close()
	b := make([]byte, 64<<10)
	for {
		n, err := w.server.Read(b)
		if err != nil || !w.held() {
			return
		}
		f := w.p.now()
		if f.delay > 0 {
			t := time.NewTimer(f.delay)
			select {
			case <-w.p.done:
				t.Stop()
				return
			case <-t.C:
			}
		}
		w.mu.Lock()
		mute := w.mute
		w.mu.Unlock()
		if mute {
			w.p.dropped.Add(1)
			continue
		}
		if err := w.send(b[:n], f); err != nil {
			return
		}
	}
}

func (w *wire) send(reply []byte, f fault) error {
	if f.half {
		_, _ = w.client.Write(reply[:len(reply)/2])
		return io.ErrUnexpectedEOF
	}
	step := len(reply)
	if f.slice > 0 {
		step = f.slice
	}
	for len(reply) > 0 {
		n := min(step, len(reply))
		if _, err := w.client.Write(reply[:n]); err != nil {
			return err
		}
		reply = reply[n:]
	}
	return nil
}

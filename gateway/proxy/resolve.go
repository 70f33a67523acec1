package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Lookups of the names of servers. A result is used for lookupLife. If a lookup fails or takes longer than
// lookupPatience, the last result stays in use, and the next lookup follows after lookupRetry.
const (
	lookupLife     = 10 * time.Second
	lookupPatience = 200 * time.Millisecond
	lookupRetry    = time.Second
	lookupTimeout  = 5 * time.Second
	addressRest    = 10 * time.Second // an address that could not be connected to comes last for this long
)

// resolver is the part of net.Resolver that is used.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

var _ resolver = (*net.Resolver)(nil)

// name is the host name of a server, with the addresses of its last lookup.
type name struct {
	o    *Origin
	host string

	mu     sync.Mutex
	addrs  []netip.Addr
	failed map[netip.Addr]time.Time // when an address last could not be connected to
	at     time.Time                // when addrs was found
	retry  time.Time                // after a failure: no lookup before
	err    error                    // of the last lookup
	turn   int
	flight *flight
}

// flight is a lookup in progress, shared by all that need it.
type flight struct {
	began time.Time
	done  chan struct{}
}

// addresses returns the addresses in the order in which to try them. Each call starts with another one, so that
// connections spread.
func (n *name) addresses(ctx context.Context) ([]netip.Addr, error) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	known := len(n.addrs) > 0
	if known && now.Sub(n.at) < lookupLife || now.Before(n.retry) {
		return n.order(now)
	}
	f := n.flight
	if f == nil {
		f = &flight{began: now, done: make(chan struct{})}
		if !n.o.background.run(func() { n.lookUp(n.o.background.ctx, f) }) {
			return n.lookUpAlone(ctx, now)
		}
		n.flight = f
	}
	n.mu.Unlock()
	var late <-chan time.Time
	if known {
		t := time.NewTimer(time.Until(f.began.Add(lookupPatience)))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-f.done:
	case <-late:
	case <-ctx.Done():
	}
	n.mu.Lock()
	switch {
	case len(n.addrs) > 0:
	case ctx.Err() != nil:
		return nil, fmt.Errorf("proxy: looking up %s: %w", n.host, ctx.Err())
	case n.o.background.ctx.Err() != nil: // which cancelled the lookup
		return n.lookUpAlone(ctx, now)
	}
	return n.order(now)
}

// adopt copies the addresses of the same name, which are looked up before they are used.
func (n *name) adopt(old *name) {
	old.mu.Lock()
	defer old.mu.Unlock()
	n.addrs = old.addrs
}

// lookUpAlone looks up for requests that are still running after Close. It is called with mu held.
func (n *name) lookUpAlone(ctx context.Context, now time.Time) ([]netip.Addr, error) {
	n.mu.Unlock()
	n.lookUp(ctx, &flight{done: make(chan struct{})})
	n.mu.Lock()
	return n.order(now)
}

// lookUp calls the resolver once.
func (n *name) lookUp(ctx context.Context, f *flight) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := n.o.resolver.LookupNetIP(ctx, "ip", n.host)
	for i := range found {
		found[i] = found[i].Unmap()
	}
	if err == nil && len(found) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: n.host, IsNotFound: true}
	}
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.flight == f {
		n.flight = nil
	}
	if n.err = err; err != nil && n.o.background.ctx.Err() == nil {
		n.retry = now.Add(lookupRetry)
	} else if err == nil {
		n.addrs, n.at = found, now
		for a, at := range n.failed {
			if now.Sub(at) >= addressRest {
				delete(n.failed, a)
			}
		}
	}
	close(f.done)
}

// order returns the addresses in the order in which to try them. It is called with mu held.
func (n *name) order(now time.Time) ([]netip.Addr, error) {
	if len(n.addrs) == 0 {
		return nil, n.err
	}
	n.turn = (n.turn + 1) % len(n.addrs)
	out := slices.Concat(n.addrs[n.turn:], n.addrs[:n.turn])
	slices.SortStableFunc(out, func(a, b netip.Addr) int { return n.resting(a, now) - n.resting(b, now) })
	return out, nil
}

func (n *name) resting(a netip.Addr, now time.Time) int {
	if at, ok := n.failed[a]; ok && now.Sub(at) < addressRest {
		return 1
	}
	return 0
}

// note records whether an address could be connected to.
func (n *name) note(a netip.Addr, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ok {
		delete(n.failed, a)
		return
	}
	if n.failed == nil {
		n.failed = map[netip.Addr]time.Time{}
	}
	n.failed[a] = time.Now()
}

// connect opens a connection to the server: to one address after the other, each with half of the time that is left.
func (s *server) connect(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	if s.name == nil {
		return d.DialContext(ctx, "tcp", s.addr)
	}
	addrs, err := s.name.addresses(ctx)
	if err != nil {
		return nil, err
	}
	var first error
	for i, a := range addrs {
		c, err := connectTo(ctx, net.JoinHostPort(a.String(), s.port), i == len(addrs)-1)
		if err == nil {
			s.name.note(a, true)
			return c, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			return nil, first
		}
		s.name.note(a, false)
	}
	return nil, first
}

func connectTo(ctx context.Context, addr string, last bool) (net.Conn, error) {
	var d net.Dialer
	if by, ok := ctx.Deadline(); ok && !last {
		d.Deadline = time.Now().Add(time.Until(by) / 2)
	}
	return d.DialContext(ctx, "tcp", addr)
}

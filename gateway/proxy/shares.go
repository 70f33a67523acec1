package proxy

import (
	"errors"
	"net/netip"
)

// Shares bound how many of an origin's MaxConns one client may use. They bind only while more than half of MaxConns is in
// use. A zero field means no limit.
type Shares struct {
	Address int // requests of one client address; an IPv6 /64 is one address
	Session int // requests of one session
	Tunnels int // upgraded connections of one client address, which do not count as requests
}

var (
	errShare     = errors.New("proxy: the client has its share of max_conns in use")
	errSlowShare = errors.New("proxy: too many requests are in progress whose bodies have not arrived")
)

// clientKey identifies a client address or a session.
type clientKey = [16]byte

// ClientKey returns what a limit for each client address counts under: an IPv4 address, or the /64 of an IPv6 address.
func ClientKey(a netip.Addr) [16]byte {
	key := a.As16()
	if a.Is6() && !a.Is4In6() {
		clear(key[8:])
	}
	return key
}

// claim is a request's share of an origin's connections.
type claim struct {
	address, session clientKey // session is zero without one
	tunnel           bool      // the request asks for another protocol
	slow             bool      // its body has not arrived
	held             bool
	entered          bool   // it has a slot
	before, next     *claim // in claims
}

// holders counts the claims of each client.
type holders map[clientKey]int

// claims are the claims on an origin's connections, including those of requests in the queue.
//
// Shares bind only while more than half of MaxConns is in use, and counting by client costs several map accesses a
// request. So the claims are kept in a list, and counted by client only from a quarter of MaxConns on.
type claims struct {
	shares                       Shares
	first                        *claim
	slow                         int  // claims without their bodies
	counting                     bool // the fields below are up to date
	addresses, sessions, tunnels holders
	crowds                       int // clients that hold more than a quarter of MaxConns
}

func newClaims() claims {
	return claims{addresses: holders{}, sessions: holders{}, tunnels: holders{}}
}

// SetShares replaces the shares of the clients. Requests in progress are not affected.
func (o *Origin) SetShares(s Shares) {
	o.mu.Lock()
	o.slots.claims.shares = s
	o.mu.Unlock()
}

// hold adds a claim, unless it exceeds a share.
func (s *slots) hold(c *claim) error {
	most := s.max
	if c == nil || most <= 0 {
		return nil
	}
	k := &s.claims
	if c.slow && k.slow >= max(1, most/4) {
		return errSlowShare
	}
	if !k.counting && s.inUse >= most/4 {
		k.counting = true
		for held := k.first; held != nil; held = held.next {
			k.count(held, most)
		}
	}
	if s.inUse > most/2 && k.spent(c) {
		return errShare
	}
	if k.counting {
		k.count(c, most)
	}
	if c.slow {
		k.slow++
	}
	if c.next = k.first; c.next != nil {
		c.next.before = c
	}
	k.first, c.held = c, true
	return nil
}

// release removes a claim.
func (s *slots) release(c *claim) {
	if c == nil || !c.held {
		return
	}
	k := &s.claims
	if c.next != nil {
		c.next.before = c.before
	}
	if c.before != nil {
		c.before.next = c.next
	} else {
		k.first = c.next
	}
	c.before, c.next, c.held = nil, nil, false
	if c.slow {
		k.slow--
	}
	switch {
	case !k.counting:
	case s.inUse < s.max/8:
		clear(k.addresses)
		clear(k.sessions)
		clear(k.tunnels)
		k.counting, k.crowds = false, 0
	default:
		k.uncount(c, s.max)
	}
}

// spent reports whether the client of a claim has its share in use.
func (k *claims) spent(c *claim) bool {
	by, limit := k.of(c)
	return limit > 0 && by[c.address] >= limit || c.counted() && k.shares.Session > 0 && k.sessions[c.session] >= k.shares.Session
}

func (k *claims) count(c *claim, most int) {
	by, _ := k.of(c)
	by[c.address]++
	if by[c.address] == most/4+1 {
		k.crowds++
	}
	if c.counted() {
		k.sessions[c.session]++
	}
}

func (k *claims) uncount(c *claim, most int) {
	by, _ := k.of(c)
	if by[c.address] == most/4+1 {
		k.crowds--
	}
	by.remove(c.address)
	if c.counted() {
		k.sessions.remove(c.session)
	}
}

// of returns the counts of the claim's kind, and their limit.
func (k *claims) of(c *claim) (holders, int) {
	if c.tunnel {
		return k.tunnels, k.shares.Tunnels
	}
	return k.addresses, k.shares.Address
}

// counted reports whether the claim counts as a request of a session.
func (c *claim) counted() bool { return !c.tunnel && c.session != clientKey{} }

func (h holders) remove(key clientKey) {
	if n := h[key]; n > 1 {
		h[key] = n - 1
	} else {
		delete(h, key)
	}
}

// arrived notes that the body of a claim has arrived, so that it is not slow any more.
func (o *Origin) arrived(c *claim) {
	o.mu.Lock()
	if c.slow && c.held {
		o.slots.claims.slow--
	}
	c.slow = false
	o.mu.Unlock()
}

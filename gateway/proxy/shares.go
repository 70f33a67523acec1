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
	errSlowShare = errors.New("proxy: as many requests as may be sent on without their bodies are")
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

// claim is what one request holds of an origin's connections.
type claim struct {
	address, session clientKey // session is zero without one
	tunnel           bool      // it asks for another protocol
	slow             bool      // the body has not arrived
	held             bool
}

// holders counts the claims of each client.
type holders map[clientKey]int

// claims are those on an origin's connections, those of requests in the queue included. They are guarded by Origin.mu.
type claims struct {
	shares                       Shares
	addresses, sessions, tunnels holders
	slow                         int // without their bodies
	crowds                       int // clients that hold more than a quarter of MaxConns
}

func newClaims() claims {
	return claims{addresses: holders{}, sessions: holders{}, tunnels: holders{}}
}

// SetShares replaces the shares of the clients. Requests that are running stay.
func (o *Origin) SetShares(s Shares) {
	o.mu.Lock()
	o.claims.shares = s
	o.mu.Unlock()
}

// hold adds a claim, unless it exceeds a share. Call it with mu held.
func (o *Origin) hold(c *claim) error {
	most := o.cfg.MaxConns
	if c == nil || most <= 0 {
		return nil
	}
	k := &o.claims
	if c.slow && k.slow >= max(1, most/4) {
		return errSlowShare
	}
	by, limit := k.of(c)
	if o.inUse > most/2 {
		if limit > 0 && by[c.address] >= limit || c.counted() && k.shares.Session > 0 && k.sessions[c.session] >= k.shares.Session {
			return errShare
		}
	}
	by[c.address]++
	if by[c.address] == most/4+1 {
		k.crowds++
	}
	if c.counted() {
		k.sessions[c.session]++
	}
	if c.slow {
		k.slow++
	}
	c.held = true
	return nil
}

// release takes a claim back. Call it with mu held.
func (o *Origin) release(c *claim) {
	if c == nil || !c.held {
		return
	}
	k := &o.claims
	by, _ := k.of(c)
	if by[c.address] == o.cfg.MaxConns/4+1 {
		k.crowds--
	}
	by.remove(c.address)
	if c.counted() {
		k.sessions.remove(c.session)
	}
	if c.slow {
		k.slow--
	}
	c.held = false
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

// arrived ends the share of the slow in a claim whose body has come.
func (o *Origin) arrived(c *claim) {
	o.mu.Lock()
	if c.slow && c.held {
		o.claims.slow--
	}
	c.slow = false
	o.mu.Unlock()
}

package ophttp

import (
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	attemptBurst = 10              // wrong tokens at once
	attemptEvery = 6 * time.Second // and one more each
	attemptPeers = 4096            // networks remembered; more share one allowance
)

// Attempts limits wrong tokens by network, with one GCRA time each. Only wrong tokens count: operators and tenants
// may share an address behind a proxy, and the holder of a correct token must not wait because others send wrong tokens.
type Attempts struct {
	mu sync.Mutex
	at map[netip.Prefix]time.Time // when the network's allowance is full again
}

// NewAttempts returns empty Attempts.
func NewAttempts() *Attempts { return &Attempts{at: map[netip.Prefix]time.Time{}} }

// Wrong counts a wrong token. It returns 0 while the network has allowance left, and otherwise the time until the
// network has some again.
func (a *Attempts) Wrong(now time.Time, r *http.Request) time.Duration {
	return a.wrong(now, network(r))
}

func (a *Attempts) wrong(now time.Time, peer netip.Prefix) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	whole, known := a.at[peer]
	if !known && len(a.at) >= attemptPeers {
		for p, t := range a.at {
			if !t.After(now) {
				delete(a.at, p)
			}
		}
		if len(a.at) >= attemptPeers {
			peer = netip.Prefix{} // new networks share one
			whole = a.at[peer]
		}
	}
	if whole.Before(now) {
		whole = now
	}
	if wait := whole.Sub(now) - (attemptBurst-1)*attemptEvery; wait > 0 {
		return wait
	}
	a.at[peer] = whole.Add(attemptEvery)
	return 0
}

// network returns the network that a wrong token counts for: an address, or the /64 that usually belongs to one IPv6
// host. It is zero if the peer is unknown.
func network(r *http.Request) netip.Prefix {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr := ap.Addr().Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

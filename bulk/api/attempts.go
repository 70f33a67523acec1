package api

import (
	"net/netip"
	"sync"
	"time"
)

const (
	attemptBurst = 10              // wrong tokens at once
	attemptEvery = 6 * time.Second // and one more each
	attemptPeers = 4096            // networks remembered; more share one allowance
)

// attempts limits wrong tokens by network: GCRA, one time each.
type attempts struct {
	mu sync.Mutex
	at map[netip.Prefix]time.Time // when the network's allowance is whole again
}

func newAttempts() *attempts { return &attempts{at: map[netip.Prefix]time.Time{}} }

// judge counts a wrong token, and says how long the network has to wait until its next one is looked at. A right token waits
// too once the allowance is used up: otherwise guessing would go on unhindered.
func (a *attempts) judge(now time.Time, peer netip.Prefix, right bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	whole, known := a.at[peer]
	if !known && !right && len(a.at) >= attemptPeers {
		for p, t := range a.at {
			if !t.After(now) {
				delete(a.at, p)
			}
		}
		if len(a.at) >= attemptPeers {
			peer = netip.Prefix{}
			whole = a.at[peer]
		}
	}
	if whole.Before(now) {
		whole = now
	}
	if wait := whole.Sub(now) - (attemptBurst-1)*attemptEvery; wait > 0 {
		return wait
	}
	if !right {
		a.at[peer] = whole.Add(attemptEvery)
	}
	return 0
}

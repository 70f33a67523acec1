package gateway

import (
	"time"

	"github.com/anteroom/anteroom/gateway/meter"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/recent"
	"github.com/anteroom/anteroom/token"
)

// meters count requests of sessions, and forgeries of client addresses, and remember the addresses of tickets.
type meters struct {
	requests  meter.Requests // of sessions, and preflights
	forgeries meter.Requests // by client address
	touched   meter.Touches  // of sessions
	clients   *recent.Clients
	began     time.Time
}

func newMeters() meters {
	return meters{meter.NewRequests(), meter.NewRequests(), meter.NewTouches(), &recent.Clients{}, time.Now()}
}

// at returns a time since the gateway began, as the meters count it.
func (m *meters) at(t time.Time) time.Duration { return t.Sub(m.began) }

// permitKey returns the id under which the permits of a session are counted. It differs from that of the session's requests.
func permitKey(q meter.Quota, session token.ID) token.ID {
	id := q.Key(session)
	id[15] ^= 0xff
	return id
}

// forgeryQuota bounds the checks of wrong signatures, and those of wrong CAPTCHA solutions, for one client address. Each check costs
// as much as ten plain requests.
var forgeryQuota = meter.Quota{N: 20, Per: time.Second}

// Kinds of forgeries. Each kind has a quota of its own.
const (
	forgedToken = iota + 1
	forgedAnswer
)

// forgerID returns the id under which the forgeries of a client address are counted.
func forgerID(r *request, kind byte) token.ID {
	id := proxy.ClientKey(r.peer.Addr)
	id[8] ^= kind // which no address uses
	return id
}

// forges reports whether the client address has used up its quota of forgeries, so that nothing more is checked.
func (m *meters) forges(r *request, kind byte) bool {
	return m.forgeries.Exhausted(forgerID(r, kind), m.at(r.start), forgeryQuota, 1) > 0
}

// forged counts a forgery.
func (m *meters) forged(r *request, kind byte) {
	m.forgeries.Take(forgerID(r, kind), m.at(r.start), forgeryQuota, 1)
}

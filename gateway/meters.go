package gateway

import (
	"encoding/binary"
	"time"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/table"
	"github.com/anteroom/anteroom/token"
)

// meters count what single sessions and client addresses do.
type meters struct {
	requests  requests // of sessions, and preflights
	forgeries requests // by client address
	touched   touches
	began     time.Time
}

func newMeters() meters {
	return meters{newRequests(), newRequests(), newTouches(), time.Now()}
}

// at returns a time as the meters count it.
func (m *meters) at(t time.Time) time.Duration { return t.Sub(m.began) }

// forgeryQuota bounds how many wrong signatures, and how many wrong answers to a CAPTCHA, are checked for one client address: each
// costs as much as ten plain requests.
var forgeryQuota = Quota{N: 20, Per: time.Second}

// Kinds of forgeries. Each has an allowance of its own.
const (
	forgedToken = iota + 1
	forgedAnswer
)

// forgerID returns the id by which the forgeries of a client address are metered.
func forgerID(r *request, kind byte) token.ID {
	id := proxy.ClientKey(r.peer.Addr)
	id[8] ^= kind // which no address uses
	return id
}

// forges reports whether the client address has forged so much that no more is checked.
func (m *meters) forges(r *request, kind byte) bool {
	return m.forgeries.exhausted(forgerID(r, kind), m.at(r.start), forgeryQuota, 1) > 0
}

// forged counts a forgery.
func (m *meters) forged(r *request, kind byte) {
	m.forgeries.take(forgerID(r, kind), m.at(r.start), forgeryQuota, 1)
}

// Quota is a number of requests in a time. The zero value is no limit.
type Quota struct {
	N   int64
	Per time.Duration
}

// key returns the id by which the quota meters a session. A reload that changes the quota counts from zero, because the time at
// which the former budget would be whole again means nothing for the new one.
func (q Quota) key(session token.ID) token.ID {
	binary.LittleEndian.PutUint64(session[:8], binary.LittleEndian.Uint64(session[:8])^uint64(q.N)<<40^uint64(q.Per))
	return session
}

// requests meters the requests of sessions. It does not use the store, and its memory is fixed: where it is full, the session whose
// budget is nearest to whole gets it back early.
type requests struct{ table.Meter }

func newRequests() requests { return requests{table.NewMeter(1 << 17)} }

// meterStep is the resolution of the meter's times.
const meterStep = time.Microsecond

// take counts a request of a session at a time since the gateway began, or returns how long the request has to wait.
func (r requests) take(sid token.ID, now time.Duration, q Quota, gateways int64) (wait time.Duration) {
	interval, tolerance := q.gcra(gateways)
	return time.Duration(r.Take(r.Key(sid[:]), int64(now/meterStep), interval, tolerance)) * meterStep
}

// exhausted returns what take would return, without counting.
func (r requests) exhausted(sid token.ID, now time.Duration, q Quota, gateways int64) (wait time.Duration) {
	_, tolerance := q.gcra(gateways)
	return time.Duration(r.Wait(r.Key(sid[:]), int64(now/meterStep), tolerance)) * meterStep
}

// gcra returns the quota of each of so many gateways, in steps of the meter.
func (q Quota) gcra(gateways int64) (interval, tolerance int64) {
	per := int64(q.Per / meterStep)
	interval = max(1, per*max(1, gateways)/q.N)
	return interval, max(0, per-interval)
}

// touches remembers which sessions were reported to the store lately, so that a request with a pass does not report its session
// again.
type touches struct{ *table.Table[struct{}] }

func newTouches() touches { return touches{table.New[struct{}](1 << 14)} }

// due reports whether a session was not reported for every seconds, and if so records that it is now. now is in seconds.
func (t touches) due(sid token.ID, now, every int64) (due bool) {
	t.Update(t.Key(sid[:]), now, func(_ *struct{}, next *int64) {
		if due = *next <= now || *next > now+every; due { // the clock may have gone back
			*next = now + every
		}
	})
	return due
}

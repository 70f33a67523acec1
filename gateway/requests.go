package gateway

import (
	"encoding/binary"
	"time"

	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/internal/table"
	"github.com/anteroom/anteroom/token"
)

// Quota is so many of something in a time. The zero value is no limit.
type Quota struct {
	N   int64
	Per time.Duration
}

// key returns the id by which the quota meters a session. A reload that changes the quota counts anew: what was used of the
// former one says nothing about the time until the new one is whole again.
func (q Quota) key(session token.ID) token.ID {
	binary.LittleEndian.PutUint64(session[:8], binary.LittleEndian.Uint64(session[:8])^uint64(q.N)<<40^uint64(q.Per))
	return session
}

// requests meters the requests of sessions. It asks no store, and its memory is fixed: where it is full, the session whose budget is
// nearest to whole gets it back early.
type requests struct{ table.Meter }

func newRequests() requests { return requests{table.NewMeter(1 << 17)} }

// meterStep is the resolution of the meter's times.
const meterStep = time.Microsecond

// take counts a request of a session at a time since the gateway began, or returns how long the request has to wait.
func (r requests) take(sid token.ID, now time.Duration, q Quota, gateways int64) (wait time.Duration) {
	interval, tolerance := q.gcra(gateways)
	return time.Duration(r.Take(r.Key(sid[:]), int64(now/meterStep), interval, tolerance)) * meterStep
}

// exhausted returns what take would, and counts nothing.
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

// tooMany answers a request beyond what one session may make. The session goes on.
func (v *visit) tooMany(wait time.Duration) {
	v.who = client.KindOf(v.req)
	v.room.metrics.overQuota.Inc()
	v.refuse(problemRequests.after(seconds(wait)), "", "")
}

// Package meter limits requests by quotas, and remembers when sessions were last reported to the store, both in fixed memory.
package meter

import (
	"encoding/binary"
	"time"

	"github.com/anteroom/anteroom/internal/table"
	"github.com/anteroom/anteroom/token"
)

// Quota is a number of requests in a time. The zero value is no limit.
type Quota struct {
	N   int64
	Per time.Duration
}

// Key returns the id under which the quota counts a session. It differs between quotas, so that a reload that changes the quota
// counts from zero.
func (q Quota) Key(session token.ID) token.ID {
	binary.LittleEndian.PutUint64(session[:8], binary.LittleEndian.Uint64(session[:8])^uint64(q.N)<<40^uint64(q.Per))
	return session
}

// Requests counts requests against a quota, by id. It does not use the store, and its memory is fixed: when it is full, the id that
// has used the least of its quota is forgotten.
type Requests struct{ table.Meter }

// NewRequests returns an empty meter.
func NewRequests() Requests { return Requests{table.NewMeter(1 << 17)} }

// step is the resolution of times.
const step = time.Microsecond

// Take counts a request at now, a time since the program began, or returns how long the request has to wait. Each of the gateways
// has an equal share of the quota.
func (r Requests) Take(sid token.ID, now time.Duration, q Quota, gateways int64) (wait time.Duration) {
	interval, tolerance := q.gcra(gateways)
	return time.Duration(r.Meter.Take(r.Key(sid[:]), int64(now/step), interval, tolerance)) * step
}

// Exhausted returns the result of Take without counting.
func (r Requests) Exhausted(sid token.ID, now time.Duration, q Quota, gateways int64) (wait time.Duration) {
	_, tolerance := q.gcra(gateways)
	return time.Duration(r.Wait(r.Key(sid[:]), int64(now/step), tolerance)) * step
}

// gcra returns the parameters of the limiter (GCRA) of one of so many gateways, in steps.
func (q Quota) gcra(gateways int64) (interval, tolerance int64) {
	per := int64(q.Per / step)
	interval = max(1, per*max(1, gateways)/q.N)
	return interval, max(0, per-interval)
}

// Touches records when sessions were last reported to the store, so that not every request with a pass reports its session.
type Touches struct{ *table.Table[struct{}] }

// NewTouches returns an empty record.
func NewTouches() Touches { return Touches{table.New[struct{}](1 << 14)} }

// Fresh reports whether Due has recorded a report of a session less than every seconds ago. Due would return false.
func (t Touches) Fresh(sid token.ID, now, every int64) bool {
	_, next, ok := t.Get(t.Key(sid[:]), now)
	return ok && next <= now+every
}

// Due reports whether the last report of a session is at least every seconds old, and then records a report at now, in seconds.
func (t Touches) Due(sid token.ID, now, every int64) (due bool) {
	t.Update(t.Key(sid[:]), now, func(_ *struct{}, next *int64) {
		if due = *next <= now || *next > now+every; due { // the clock may have gone back
			*next = now + every
		}
	})
	return due
}

package gateway

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/gateway/client"
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

// requests meters the requests of sessions by GCRA (ITU-T I.371): a session is one number, the time at which its budget
// would be whole again. It takes no lock, allocates nothing and asks no store. Memory is fixed: where a set is full, the
// session goes whose budget is nearest to whole, and at most gets it back early. The zero value is ready.
type requests struct {
	sets [1 << 15][4]atomic.Uint64 // 1 MiB; each is a tag of 20 bits and a time of 44
}

// meterStep is the resolution of the meter's times, of which 44 bits last for four years.
const (
	meterStep = 8 * time.Microsecond
	meterBits = 44
)

// take counts a request of a session when it is now (since the gateway began), or tells after what time it may come again.
func (r *requests) take(sid token.ID, now time.Duration, q Quota, gateways int64) (wait time.Duration) {
	return r.meter(sid, now, q, gateways, true)
}

// exhausted returns what take would, and counts nothing.
func (r *requests) exhausted(sid token.ID, now time.Duration, q Quota, gateways int64) (wait time.Duration) {
	return r.meter(sid, now, q, gateways, false)
}

func (r *requests) meter(sid token.ID, now time.Duration, q Quota, gateways int64, counts bool) (wait time.Duration) {
	// Client addresses differ in a few bytes alone: every bit of an id counts in every bit of the hash.
	h := binary.LittleEndian.Uint64(sid[:]) ^ binary.LittleEndian.Uint64(sid[8:])*0x9e3779b97f4a7c15
	h = (h ^ h>>32) * 0xff51afd7ed558ccd
	h ^= h >> 32
	tag := h >> 45 << 1 // of 20 bits, and never 0
	tag = (tag | 1) << meterBits
	const times = 1<<meterBits - 1
	set := &r.sets[h&uint64(len(r.sets)-1)]
	at := int64(now / meterStep)
	interval := max(1, int64(q.Per/meterStep)*max(1, gateways)/q.N)
	tolerance := max(0, int64(q.Per/meterStep)-interval)
	for {
		var into *atomic.Uint64
		var old uint64
		mine := false
		for i := range set {
			w := set[i].Load()
			if w&^times == tag {
				into, old, mine = &set[i], w, true
				break
			}
			if into == nil || w&times < old&times {
				into, old = &set[i], w
			}
		}
		whole := at
		if mine {
			whole = max(at, int64(old&times))
		}
		if over := whole - at - tolerance; over > 0 {
			return time.Duration(over) * meterStep
		}
		if !counts {
			return 0
		}
		if into.CompareAndSwap(old, tag|uint64(whole+interval)&times) {
			return 0
		}
	}
}

// tooMany answers a request beyond what one session may make. The session goes on.
func (v *visit) tooMany(wait time.Duration) {
	v.who = client.KindOf(v.req)
	v.room.metrics.overQuota.Inc()
	v.refuse(problemRequests.after(seconds(wait)), "", "")
}

package published

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/admission"
)

// Max is the largest number of sessions in a list, about 55 bytes each.
const Max = 50_000

// Minimum ages at which a version is replaced.
const (
	changePause = 250 * time.Millisecond // because the source has changed
	expiryPause = 10 * time.Second       // because passes of sessions in the list have ended
)

// Source is the source of the revoked sessions of a room.
type Source interface {
	// Revocations returns a number that changes with every revocation.
	Revocations() uint64
	// EachRevoked calls f for every revoked session of which a pass may still verify. until is the time from which none does, in seconds of
	// Redis's clock.
	EachRevoked(f func(sid admission.ID, until int64))
	// Evacuation returns the last evacuation of the room.
	Evacuation() admission.Evacuation
	// RedisNow returns the time by Redis's clock in µs.
	RedisNow() int64
}

// Revoked is the published list of the revoked sessions of one room. The zero value is ready for use; its methods are safe for
// concurrent use.
type Revoked struct {
	mu      sync.Mutex // held while a version is made
	version atomic.Pointer[version]
}

// version is a version of the list, with the facts that decide whether it is outdated.
type version struct {
	*Document
	list    []byte // the members evacuated and revoked in Body
	changes uint64 // Source.Revocations when the list was made
	fence   int64  // of Source.Evacuation then
	made    time.Time
	ends    int64 // the earliest until in the list; 0: the list is empty
}

// Document returns the list at now, or one that is up to a quarter of a second old.
func (r *Revoked) Document(room string, from Source, now time.Time) *Document {
	v := r.version.Load()
	if v != nil && !v.outdated(from, now) {
		return v.Document
	}
	if v == nil {
		r.mu.Lock()
	} else if !r.mu.TryLock() {
		return v.Document // another request is making the next version
	}
	defer r.mu.Unlock()
	if v = r.version.Load(); v == nil || v.outdated(from, now) {
		v = v.next(room, from, now)
		r.version.Store(v)
	}
	return v.Document
}

func (v *version) outdated(from Source, now time.Time) bool {
	age := now.Sub(v.made)
	return age >= changePause && (v.changes != from.Revocations() || v.fence != from.Evacuation().Fence) ||
		age >= expiryPause && v.ends > 0 && v.ends <= from.RedisNow()/1e6
}

// entry is a session in the list.
type entry struct {
	sid   admission.ID
	until int64
}

// next returns the version after v, which may be nil. It has the document of v if the sessions are the same.
func (v *version) next(room string, from Source, now time.Time) *version {
	e := from.Evacuation()
	next := &version{changes: from.Revocations(), fence: e.Fence, made: now}
	var all []entry
	from.EachRevoked(func(sid admission.ID, until int64) { all = append(all, entry{sid, until}) })
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.until, a.until), bytes.Compare(a.sid[:], b.sid[:])) // the longest first: the others are dropped above Max
	})
	complete := len(all) <= Max
	all = all[:min(len(all), Max)]
	list := make([]byte, 0, 56*len(all)+80)
	if e.Fence > 0 {
		list = strconv.AppendInt(append(list, `"evacuated":{"ct":`...), e.Fence, 10)
		list = append(strconv.AppendInt(append(list, `,"iat":`...), e.At/1e6, 10), "},"...)
	}
	list = append(list, `"revoked":[`...)
	for i, e := range all {
		if i > 0 {
			list = append(list, ',')
		}
		list = base64.RawURLEncoding.AppendEncode(append(list, `{"sid":"`...), e.sid[:])
		list = append(strconv.AppendInt(append(list, `","until":`...), e.until, 10), '}')
		next.ends = e.until
	}
	next.list = append(list, ']')
	if v != nil && bytes.Equal(v.list, next.list) {
		next.Document = v.Document
		return next
	}
	b := append(make([]byte, 0, len(next.list)+160), `{"room":"`...)
	b = append(append(b, room...), `","generated_at":"`...) // ids of rooms need no escaping
	b = time.UnixMicro(from.RedisNow()).UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	b = strconv.AppendBool(append(b, `","complete":`...), complete)
	b = append(append(b, ','), next.list...)
	next.Document = New(append(b, '}'))
	return next
}

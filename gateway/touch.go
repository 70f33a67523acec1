package gateway

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/anteroom/anteroom/token"
)

// touches remembers which sessions were reported lately, so that a request with a pass costs a load and no lock. It is a
// fixed table: two sessions that share a slot are reported more often, which harms nothing. The zero value is ready.
type touches struct{ slots [1 << 14]atomic.Uint64 }

// due tells whether a session was not reported for every seconds, and if so notes that it is now. now is in seconds.
func (t *touches) due(sid token.ID, now, every int64) bool {
	slot := &t.slots[binary.LittleEndian.Uint64(sid[:])%uint64(len(t.slots))]
	tag := uint64(binary.LittleEndian.Uint32(sid[8:])) << 32
	old := slot.Load()
	if old&^uint64(1<<32-1) == tag {
		if age := int64(uint32(now) - uint32(old)); age >= 0 && age < every {
			return false
		}
	}
	return slot.CompareAndSwap(old, tag|uint64(uint32(now)))
}

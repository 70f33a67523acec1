package remote

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// Handle has all that a process needs to extend the lease of a job and to record its verdict. The store decides by key and
// fence whether the lease still holds.
type Handle struct {
	Shard   int
	Key     string // of the shard
	Fence   int64
	Type    string
	Attempt int64
	Began   time.Time // by the clock of the process that leased it
}

// The first byte of a handle distinguishes its forms. One of shard 0 has no number, as before there were several shards.
const (
	handleForm        = 1
	shardedHandleForm = 2 // followed by the number of the shard
)

// newHandle returns the handle of a job of a shard that was leased at now.
func newHandle(shard int, j *store.Leased, now time.Time) Handle {
	return Handle{Shard: shard, Key: j.Key, Fence: j.Fence, Type: j.Type, Attempt: j.Attempt, Began: now}
}

// String returns the handle as one word, which ParseHandle reads.
func (h Handle) String() string {
	b := make([]byte, 0, 32+len(h.Type)+len(h.Key))
	if h.Shard == 0 {
		b = append(b, handleForm)
	} else {
		b = binary.AppendUvarint(append(b, shardedHandleForm), uint64(h.Shard))
	}
	b = binary.AppendUvarint(b, uint64(h.Fence))
	b = binary.AppendUvarint(b, uint64(h.Attempt))
	b = binary.AppendUvarint(b, uint64(h.Began.UnixMilli()))
	b = binary.AppendUvarint(b, uint64(len(h.Type)))
	b = append(b, h.Type...)
	b = append(b, h.Key...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// JobID returns the id of the job.
func (h Handle) JobID() string {
	_, id, _ := strings.Cut(h.Key, "/")
	return id
}

var errHandle = errors.New("not a lease")

// ParseHandle reads a handle.
func ParseHandle(text string) (h Handle, err error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) == 0 || b[0] != handleForm && b[0] != shardedHandleForm {
		return Handle{}, errHandle
	}
	sharded := b[0] == shardedHandleForm
	b = b[1:]
	if sharded {
		n, size := binary.Uvarint(b)
		if size <= 0 || n == 0 || n >= store.MaxShards {
			return Handle{}, errHandle
		}
		h.Shard, b = int(n), b[size:]
	}
	var n [4]uint64
	for i := range n {
		v, size := binary.Uvarint(b)
		if size <= 0 || v > 1<<62 {
			return Handle{}, errHandle
		}
		n[i], b = v, b[size:]
	}
	if n[0] == 0 || n[1] == 0 || n[3] == 0 || n[3] >= uint64(len(b)) {
		return Handle{}, errHandle
	}
	h = Handle{Shard: h.Shard, Key: string(b[n[3]:]), Fence: int64(n[0]), Type: string(b[:n[3]]), Attempt: int64(n[1]), Began: time.UnixMilli(int64(n[2]))}
	return h, nil
}

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
	Key     string // of the store
	Fence   int64
	Type    string
	Attempt int64
	Began   time.Time // by the clock of the process that leased it
}

// handleForm is the first byte of a handle. It distinguishes this form from later ones.
const handleForm = 1

// newHandle returns the handle of a job that was leased at now.
func newHandle(j *store.Leased, now time.Time) Handle {
	return Handle{Key: j.Key, Fence: j.Fence, Type: j.Type, Attempt: j.Attempt, Began: now}
}

// String returns the handle as one word, which ParseHandle reads.
func (h Handle) String() string {
	b := make([]byte, 0, 32+len(h.Type)+len(h.Key))
	b = append(b, handleForm)
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
	if err != nil || len(b) == 0 || b[0] != handleForm {
		return Handle{}, errHandle
	}
	b = b[1:]
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
	h = Handle{Key: string(b[n[3]:]), Fence: int64(n[0]), Type: string(b[:n[3]]), Attempt: int64(n[1]), Began: time.UnixMilli(int64(n[2]))}
	return h, nil
}

package adaptive

import (
	"bytes"
	"errors"
	"time"
)

// What is measured counts for so many seconds: the short span, or the long one where the short has too few requests to judge by.
const (
	ShortSpan = 3
	LongSpan  = 30
)

// Recent is what was measured lately, second by second. Its Recorder may be used from any goroutine, Turn from one at a time.
// The zero value is ready.
type Recent struct {
	Recorder
	seconds [LongSpan]*Histogram // a ring; nil: nothing
	next    int
}

// Turn ends a second and gives what there is to say of the last ones.
func (r *Recent) Turn() *Report {
	h := r.Take()
	if r.seconds[r.next] = h; h.Requests == 0 {
		r.seconds[r.next] = nil
	}
	r.next = (r.next + 1) % LongSpan
	var said Report
	for i := range LongSpan {
		h := r.seconds[(r.next-1-i+2*LongSpan)%LongSpan]
		if h == nil {
			continue
		}
		if i < ShortSpan {
			said.Short.Merge(h)
		}
		said.Long.Merge(h)
	}
	return &said
}

// Report is what one process says of the last seconds. Those of several add up. The zero value says nothing.
type Report struct{ Short, Long Histogram }

// Merge adds another process's.
func (r *Report) Merge(o *Report) {
	r.Short.Merge(&o.Short)
	r.Long.Merge(&o.Long)
}

// Health is that of the short span, or of the long one where the short has too few requests.
func (r *Report) Health() Health {
	if r.Short.Requests >= Enough {
		return r.Short.Health(ShortSpan * time.Second)
	}
	return r.Long.Health(LongSpan * time.Second)
}

// MarshalText writes the form of the store: the short span's histogram, |, the long one's.
func (r *Report) MarshalText() ([]byte, error) {
	text, err := r.Short.AppendText(nil)
	if err != nil {
		return nil, err
	}
	return r.Long.AppendText(append(text, '|'))
}

// UnmarshalText reads it.
func (r *Report) UnmarshalText(text []byte) error {
	short, long, _ := bytes.Cut(text, []byte("|"))
	return errors.Join(r.Short.UnmarshalText(short), r.Long.UnmarshalText(long))
}

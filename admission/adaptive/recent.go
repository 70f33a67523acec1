package adaptive

import (
	"bytes"
	"errors"
	"time"
)

// Spans of a measurement in seconds. The long one counts where the short one has fewer than Enough requests.
const (
	ShortSpan = 3
	LongSpan  = 30
)

// Recent holds the measurements of the last LongSpan seconds. Its Recorder may be used from any goroutine, Turn from one at a time.
// The zero value is ready.
type Recent struct {
	Recorder
	seconds [LongSpan]*Histogram // a ring; nil: nothing
	next    int
}

// Turn ends a second and returns the report on the last ones.
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

// Report is what one process measured in the last seconds. Merge adds up several. The zero value is empty.
type Report struct{ Short, Long Histogram }

// Merge adds another process's report.
func (r *Report) Merge(o *Report) {
	r.Short.Merge(&o.Short)
	r.Long.Merge(&o.Long)
}

// Health returns the health of the short span, or of the long one where the short one has fewer than Enough requests.
func (r *Report) Health() Health {
	if r.Short.Requests >= Enough {
		return r.Short.Health(ShortSpan * time.Second)
	}
	return r.Long.Health(LongSpan * time.Second)
}

// MarshalText returns the form of the store: the histogram of the short span, |, and that of the long one.
func (r *Report) MarshalText() ([]byte, error) {
	text, err := r.Short.AppendText(nil)
	if err != nil {
		return nil, err
	}
	return r.Long.AppendText(append(text, '|'))
}

// UnmarshalText reads the form of MarshalText.
func (r *Report) UnmarshalText(text []byte) error {
	short, long, _ := bytes.Cut(text, []byte("|"))
	return errors.Join(r.Short.UnmarshalText(short), r.Long.UnmarshalText(long))
}

package adaptive

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Buckets of a histogram: one up to 64 µs, eight an octave from there to 2^32 µs (71 minutes), one for what is longer. A
// latency is therefore known within an eighth.
const (
	least   = 6
	octaves = 26
	buckets = 1 + 8*octaves + 1
)

// bucketOf returns the bucket of a latency in microseconds.
func bucketOf(us int64) int {
	if us < 1<<least {
		return 0
	}
	e := bits.Len64(uint64(us)) - 1
	if e >= least+octaves {
		return buckets - 1
	}
	return 1 + 8*(e-least) + int(us>>(e-3))&7
}

// lower returns where a bucket begins, in microseconds.
func lower(bucket int) int64 {
	if bucket == 0 {
		return 0
	}
	i := bucket - 1
	return int64(8+i%8) << (i/8 + least - 3)
}

// Histogram counts requests by latency, and failed requests. Merge adds up those of several gateways and seconds. The zero value is
// empty.
type Histogram struct {
	Requests int64 // with or without a latency, failed ones too
	Errors   int64
	counts   [buckets]int64
}

// Merge adds another histogram.
func (h *Histogram) Merge(o *Histogram) {
	h.Requests += o.Requests
	h.Errors += o.Errors
	for i, n := range &o.counts {
		h.counts[i] += n
	}
}

// P95 returns the 95th percentile of the latency of requests that did not fail, within an eighth; 0 without any.
func (h *Histogram) P95() time.Duration { return h.quantile(0.95) }

func (h *Histogram) quantile(q float64) time.Duration {
	var total int64
	for _, n := range &h.counts {
		total += n
	}
	if total == 0 {
		return 0
	}
	rank := q * float64(total)
	var below float64
	for i, n := range &h.counts {
		if n == 0 {
			continue
		}
		if below+float64(n) >= rank || i == buckets-1 {
			from, to := lower(i), lower(i)
			if i < buckets-1 {
				to = lower(i + 1)
			}
			us := float64(from) + float64(to-from)*min(1, max(0, (rank-below)/float64(n)))
			return time.Duration(us * float64(time.Microsecond))
		}
		below += float64(n)
	}
	return time.Duration(lower(buckets-1)) * time.Microsecond
}

// Health returns the health of the origin by the histogram of a span.
func (h *Histogram) Health(span time.Duration) Health {
	return Health{Requests: h.Requests, Errors: h.Errors, Span: span, P95: h.P95()}
}

// MostText bounds the text of a histogram.
const MostText = 8 << 10

// most bounds each count, so that the sum of a thousand gateways does not overflow.
const most = 1 << 40

// ErrText is returned when a text is no histogram.
var ErrText = errors.New("adaptive: not a histogram")

// AppendText appends the form of the store: requests, errors, then bucket:count of each bucket in use, with blanks between.
func (h *Histogram) AppendText(b []byte) ([]byte, error) {
	b = strconv.AppendInt(b, h.Requests, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, h.Errors, 10)
	for i, n := range &h.counts {
		if n > 0 {
			b = append(b, ' ')
			b = strconv.AppendInt(b, int64(i), 10)
			b = append(b, ':')
			b = strconv.AppendInt(b, n, 10)
		}
	}
	return b, nil
}

// UnmarshalText reads the form of AppendText. It refuses buckets that do not ascend, and counts that exceed the requests that did not
// fail.
func (h *Histogram) UnmarshalText(text []byte) error {
	if len(text) > MostText {
		return fmt.Errorf("%w: %d bytes", ErrText, len(text))
	}
	var got Histogram
	var with int64
	i, last := 0, -1
	for word := range strings.SplitSeq(string(text), " ") {
		var err error
		switch i {
		case 0:
			got.Requests, err = count(word)
		case 1:
			got.Errors, err = count(word)
		default:
			at, n, found := strings.Cut(word, ":")
			var bucket int64
			if bucket, err = count(at); err != nil || !found || bucket >= buckets || int(bucket) <= last {
				return fmt.Errorf("%w: bucket %q", ErrText, word)
			}
			last = int(bucket)
			if got.counts[last], err = count(n); got.counts[last] == 0 {
				return fmt.Errorf("%w: count %q", ErrText, word)
			}
			with += got.counts[last]
		}
		if err != nil {
			return err
		}
		i++
	}
	if i < 2 || got.Errors > got.Requests || with > got.Requests-got.Errors {
		return fmt.Errorf("%w: the counts do not add up", ErrText)
	}
	*h = got
	return nil
}

func count(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > most || s[0] == '+' || len(s) > 1 && s[0] == '0' || s[0] == '-' {
		return 0, fmt.Errorf("%w: count %q", ErrText, s)
	}
	return n, nil
}

// shards is the number of parts of a Recorder: two cores seldom write to the same one.
const shards = 8

// Recorder is a histogram that many goroutines add to at once, without a lock or an allocation. The zero value is ready.
type Recorder struct {
	shards [shards]struct {
		counts [buckets + 1]atomic.Int64 // the last one counts what failed
		_      [64]byte
	}
}

// Add counts one request. A failed one has no latency that counts: it may be fast for the wrong reason, and is held against
// the origin as it is.
func (r *Recorder) Add(latency time.Duration, failed bool) {
	i := buckets
	if !failed {
		i = bucketOf(max(0, latency.Microseconds()))
	}
	r.shards[rand.Uint32()%shards].counts[i].Add(1) //nolint:gosec // spreads writers; nothing is kept safe by it
}

// Take returns the counts since the last Take and resets them. A request added meanwhile is in this result or the next.
func (r *Recorder) Take() *Histogram {
	var h Histogram
	for s := range r.shards {
		for i := range r.shards[s].counts {
			if r.shards[s].counts[i].Load() == 0 {
				continue
			}
			n := r.shards[s].counts[i].Swap(0)
			h.Requests += n
			if i == buckets {
				h.Errors += n
			} else {
				h.counts[i] += n
			}
		}
	}
	return &h
}

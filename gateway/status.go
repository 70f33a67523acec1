package gateway

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/anteroom/anteroom/admission"
)

// States of a status object that are no admission.State.
const (
	stateRejected = "rejected"
	stateWaiting  = "waiting"
	statePrequeue = "prequeue"
	stateAdmitted = "admitted"
	stateActive   = "active"
)

func stateName(s admission.State) string {
	switch s {
	case admission.Admitted:
		return stateAdmitted
	case admission.Active:
		return stateActive
	case admission.Expired:
		return "expired"
	case admission.Lapsed:
		return "lapsed"
	case admission.Ended:
		return "ended"
	case admission.Refused:
		return stateRejected
	}
	return stateWaiting
}

// status is the status object. Zero values are unknown and absent, but message and paused, which are always there.
type status struct {
	room, state string
	position    int64 // from 1
	waiting     int64
	eta         wait
	refresh     int   // seconds
	joinedAt    int64 // µs of Redis's clock
	message     string
	paused      bool
	reason      string
	admittedAt  int64 // µs of Redis's clock
	expiresAt   int64 // seconds of Redis's clock; of the pass
	pass, token []byte
	opensAt     int64 // µs of Redis's clock
	closesAt    int64 // likewise
	compat      bool
	policy      *admission.Policy // for compat
	inEvent     bool              // likewise
	now         int64             // µs of Redis's clock; for compat
}

// wait is how long somebody will still wait, in whole seconds.
type wait struct {
	known              bool
	seconds, low, high int64
}

const timeLayout = "2006-01-02T15:04:05.000000Z"

// append appends the object as JSON, without reflection: this is the answer to most of what the gateway is asked.
func (s *status) append(dst []byte) []byte {
	dst = appendString(append(dst, `{"room":`...), s.room)
	dst = appendString(append(dst, `,"state":`...), s.state)
	switch {
	case s.position > 0:
		dst = strconv.AppendInt(append(dst, `,"position":`...), s.position, 10)
		dst = strconv.AppendInt(append(dst, `,"ahead":`...), s.position-1, 10)
		dst = strconv.AppendInt(append(dst, `,"waiting":`...), max(s.waiting, s.position), 10)
	case s.state == statePrequeue && s.waiting > 0:
		dst = strconv.AppendInt(append(dst, `,"waiting":`...), s.waiting, 10)
	}
	if s.eta.known {
		dst = strconv.AppendInt(append(dst, `,"eta":{"seconds":`...), s.eta.seconds, 10)
		dst = strconv.AppendInt(append(dst, `,"low":`...), s.eta.low, 10)
		dst = strconv.AppendInt(append(dst, `,"high":`...), s.eta.high, 10)
		dst = append(dst, '}')
	}
	if s.refresh > 0 {
		dst = strconv.AppendInt(append(dst, `,"refresh_after":`...), int64(s.refresh), 10)
	}
	if s.joinedAt > 0 {
		dst = appendTime(append(dst, `,"joined_at":`...), s.joinedAt)
	}
	if s.opensAt > 0 {
		dst = appendTime(append(dst, `,"opens_at":`...), s.opensAt)
	}
	if s.closesAt > 0 {
		dst = appendTime(append(dst, `,"closes_at":`...), s.closesAt)
	}
	dst = appendString(append(dst, `,"message":`...), s.message)
	dst = strconv.AppendBool(append(dst, `,"paused":`...), s.paused)
	if s.reason != "" {
		dst = appendString(append(dst, `,"reason":`...), s.reason)
	}
	if s.admittedAt > 0 {
		dst = appendTime(append(dst, `,"admitted_at":`...), s.admittedAt)
	}
	if len(s.pass) > 0 {
		dst = append(append(append(dst, `,"pass":"`...), s.pass...), '"') // a JWT needs no escaping
		dst = appendTime(append(dst, `,"expires_at":`...), s.expiresAt*1e6)
	}
	if len(s.token) > 0 {
		dst = append(append(append(dst, `,"token":"`...), s.token...), '"')
	}
	if s.compat {
		dst = s.appendCompat(append(dst, `,"cfWaitingRoom":`...))
	}
	return append(dst, '}')
}

// appendCompat appends the object that clients of another product look for, with that product's field names and its
// minutes.
func (s *status) appendCompat(dst []byte) []byte {
	minutes := func(seconds int64) int64 { return (seconds + 59) / 60 }
	in := s.state == stateWaiting || s.state == statePrequeue || s.state == stateRejected || s.state == "expired"
	dst = strconv.AppendBool(append(dst, `{"inWaitingRoom":`...), in)
	dst = strconv.AppendBool(append(dst, `,"waitTimeKnown":`...), s.eta.known)
	dst = strconv.AppendInt(append(dst, `,"waitTime":`...), minutes(s.eta.seconds), 10)
	dst = strconv.AppendInt(append(dst, `,"waitTime25Percentile":`...), minutes(s.eta.low), 10)
	dst = strconv.AppendInt(append(dst, `,"waitTime50Percentile":`...), minutes(s.eta.seconds), 10)
	dst = strconv.AppendInt(append(dst, `,"waitTime75Percentile":`...), minutes(s.eta.high), 10)
	formatted := "unavailable"
	switch m := minutes(s.eta.seconds); {
	case s.state == statePrequeue:
		formatted = "event is prequeueing"
	case !s.eta.known:
	case m == 1:
		formatted = "1 minute"
	default:
		formatted = strconv.FormatInt(m, 10) + " minutes"
	}
	dst = appendString(append(dst, `,"waitTimeFormatted":`...), formatted)
	yes := func(name string, is bool) {
		dst = strconv.AppendBool(append(append(append(dst, `,"`...), name...), `":`...), is)
	}
	p := s.policy
	if p == nil {
		p = &admission.Policy{Method: admission.FIFO, Rate: 1}
	}
	yes("queueIsFull", p.Capacity > 0 && s.waiting >= p.Capacity)
	yes("queueAll", p.Paused || p.Rate == 0 || s.state == statePrequeue)
	yes("isFIFOQueue", p.Method == admission.FIFO)
	yes("isPassthroughQueue", p.Method == admission.Passthrough)
	yes("isRandomQueue", p.Method == admission.Lottery)
	yes("isRejectQueue", p.Method == admission.Reject)
	if s.inEvent || s.state == statePrequeue {
		yes("isEventActive", s.state != statePrequeue)
		yes("isEventPrequeueing", s.state == statePrequeue)
		yes("shuffleAtEventStart", p.Method == admission.Lottery)
	}
	if s.state == statePrequeue {
		dst = strconv.AppendInt(append(dst, `,"timeUntilEventStart":`...), minutes(max(0, s.opensAt-s.now)/1e6), 10)
	}
	dst = append(dst, `,"lastUpdated":"`...)
	dst = time.UnixMicro(s.now).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	dst = strconv.AppendInt(append(dst, `","refreshIntervalSeconds":`...), int64(s.refresh), 10)
	return append(dst, '}')
}

// appendTime appends microseconds since 1970 as a JSON string, RFC 3339 in UTC.
func appendTime(dst []byte, µs int64) []byte {
	t := time.UnixMicro(µs).UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return append(t.AppendFormat(append(dst, '"'), timeLayout), '"')
	}
	hour, minute, second := t.Clock()
	dst = append(dst, `"0000-00-00T00:00:00.000000Z"`...)
	text := dst[len(dst)-len(timeLayout)-1:]
	put := func(at, digits, n int) {
		for i := at + digits - 1; i >= at; i-- {
			text[i] = byte('0' + n%10)
			n /= 10
		}
	}
	put(0, 4, year)
	put(5, 2, int(month))
	put(8, 2, day)
	put(11, 2, hour)
	put(14, 2, minute)
	put(17, 2, second)
	put(20, 6, t.Nanosecond()/1000)
	return dst
}

func formatTime(µs int64) string { return time.UnixMicro(µs).UTC().Format(timeLayout) }

// appendString appends a JSON string. Bytes that are no UTF-8 become U+FFFD.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
			i++
		case c < ' ' || c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			i++
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
		}
	}
	return append(dst, '"')
}

package answer

import (
	"cmp"
	"strconv"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/forecast"
)

// compat is the object that clients of Cloudflare Waiting Room read, with the field names, types and units of that product. All 25
// fields are always present.
type compat struct {
	room    *forecast.Room
	in      bool // the visitor is not admitted
	full    bool // the queue accepts no new visitors
	wait    forecast.Wait
	refresh int   // seconds
	now     int64 // µs of Redis's clock
}

func (s *Status) compat() compat {
	p := &s.Compat.Snapshot.Policy
	return compat{
		room: s.Compat, in: s.State != StateAdmitted && s.State != StateActive, full: p.Capacity > 0 && s.Waiting >= p.Capacity,
		wait: s.ETA, refresh: s.Refresh, now: s.Now,
	}
}

// compatRefresh is the advised time between two requests, in seconds, where a problem has none: the client has to log in or to solve a
// challenge first.
const compatRefresh = 30

func (p *Problem) compat() compat {
	return compat{
		room: p.Compat, in: true, full: p.Code == RoomFull.Code || p.Code == RoomDraining.Code, refresh: cmp.Or(p.Retry, compatRefresh), now: p.Now,
	}
}

func (c *compat) append(dst []byte) []byte {
	p := &c.room.Snapshot.Policy
	prequeueing := c.room.Prequeue && c.room.JoinsAt == 0
	event := c.room.Event || prequeueing
	var wait, quarter, half, most int64
	if c.wait.Known {
		wait = minutes(c.wait.Seconds)
		if p.Method == admission.Lottery {
			quarter, half, most = minutes(c.wait.Low), wait, minutes(c.wait.High)
		}
	}
	dst = strconv.AppendBool(append(dst, `"cfWaitingRoom":{"inWaitingRoom":`...), c.in)
	dst = strconv.AppendBool(append(dst, `,"waitTimeKnown":`...), c.wait.Known)
	dst = strconv.AppendInt(append(dst, `,"waitTime":`...), wait, 10)
	dst = strconv.AppendInt(append(dst, `,"waitTime25Percentile":`...), quarter, 10)
	dst = strconv.AppendInt(append(dst, `,"waitTime50Percentile":`...), half, 10)
	dst = strconv.AppendInt(append(dst, `,"waitTime75Percentile":`...), most, 10)
	dst = append(dst, `,"waitTimeFormatted":"`...)
	if quarter < most {
		dst = append(appendMinutes(dst, quarter, true), " to "...)
		wait = most
	}
	dst = appendMinutes(dst, wait, c.wait.Known)
	dst = strconv.AppendBool(append(dst, `","queueIsFull":`...), c.full)
	dst = strconv.AppendBool(append(dst, `,"queueAll":`...), !p.Open() && (p.Paused || p.Rate == 0 || prequeueing))
	dst = append(dst, `,"lastUpdated":"`...)
	dst = time.UnixMicro(c.now).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	refresh := c.refresh
	if p.Closed() {
		refresh = 0
	}
	dst = strconv.AppendInt(append(dst, `","refreshIntervalSeconds":`...), int64(refresh), 10)
	dst = append(append(dst, `,"queueingMethod":"`...), compatMethod(p.Method)...)
	dst = strconv.AppendBool(append(dst, `","isFIFOQueue":`...), p.Method == admission.FIFO)
	dst = strconv.AppendBool(append(dst, `,"isRandomQueue":`...), p.Method == admission.Lottery)
	dst = strconv.AppendBool(append(dst, `,"isPassthroughQueue":`...), p.Method == admission.Passthrough)
	dst = strconv.AppendBool(append(dst, `,"isRejectQueue":`...), p.Closed())
	dst = strconv.AppendBool(append(dst, `,"isEventActive":`...), event)
	dst = strconv.AppendBool(append(dst, `,"isEventPrequeueing":`...), prequeueing)
	dst = c.appendUntil(dst, "timeUntilEventStart", c.room.OpensAt, prequeueing)
	dst = c.appendUntil(dst, "timeUntilEventEnd", c.room.EventEnds, event && c.room.EventEnds > 0)
	dst = strconv.AppendBool(append(dst, `,"shuffleAtEventStart":`...), event && p.Method == admission.Lottery)
	return append(dst, `,"turnstile":"","infiniteQueue":false}`...)
}

// appendUntil appends the time until at as a number and, under the name with Formatted at its end, as text.
func (c *compat) appendUntil(dst []byte, name string, at int64, known bool) []byte {
	var left int64
	if known {
		left = minutes((max(0, at-c.now) + 999_999) / 1e6)
	}
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	dst = strconv.AppendInt(dst, left, 10)
	dst = append(append(append(dst, `,"`...), name...), `Formatted":"`...)
	return append(appendMinutes(dst, left, known), '"')
}

// compatMethod returns Cloudflare's name of a queueing method.
func compatMethod(method string) string {
	if method == admission.Lottery {
		return "random"
	}
	return method
}

// minutes returns seconds as minutes, rounded up.
func minutes(seconds int64) int64 { return (seconds + 59) / 60 }

func appendMinutes(dst []byte, n int64, known bool) []byte {
	switch {
	case !known:
		return append(dst, "unavailable"...)
	case n == 1:
		return append(dst, "1 minute"...)
	}
	return append(strconv.AppendInt(dst, n, 10), " minutes"...)
}

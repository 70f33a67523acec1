package answer

import (
	"strconv"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/forecast"
)

// States of a status object, and values of the field X-Waiting-Room.
const (
	StateWaiting  = "waiting"
	StatePrequeue = "prequeue"
	StateAdmitted = "admitted"
	StateActive   = "active"
	StateRejected = "rejected"
	StateExpired  = "expired"
	StateLapsed   = "lapsed"
	StateEnded    = "ended"
	StateProof    = "proof" // a proof of work or CAPTCHA is required before a ticket
)

// ReasonNoTicket is the reason in the response to a check of a visitor who has to take a ticket.
const ReasonNoTicket = "no_ticket"

// StateName returns the name of a ticket's state.
func StateName(s admission.State) string {
	switch s {
	case admission.Admitted:
		return StateAdmitted
	case admission.Active:
		return StateActive
	case admission.Expired:
		return StateExpired
	case admission.Lapsed:
		return StateLapsed
	case admission.Ended:
		return StateEnded
	case admission.Refused:
		return StateRejected
	}
	return StateWaiting
}

// Status is the status object. Zero values are unknown and left out, except for message and paused.
type Status struct {
	Room, State string
	Position    int64 // from 1
	Waiting     int64
	ETA         forecast.Wait
	Refresh     int   // seconds
	JoinedAt    int64 // µs of Redis's clock
	Message     string
	Paused      bool
	Reason      string
	AdmittedAt  int64 // µs of Redis's clock
	ExpiresAt   int64 // seconds of Redis's clock; of the pass
	Pass, Token []byte
	OpensAt     int64 // µs of Redis's clock
	ClosesAt    int64 // µs of Redis's clock

	Compat bool // the object cfWaitingRoom is added, for which:
	Policy *admission.Policy
	Event  bool  // an event is in force
	Now    int64 // µs of Redis's clock
}

// Append appends the object as JSON, without reflection: it is the most frequent response.
func (s *Status) Append(dst []byte) []byte {
	dst = AppendString(append(dst, `{"room":`...), s.Room)
	dst = AppendString(append(dst, `,"state":`...), s.State)
	switch {
	case s.Position > 0:
		dst = strconv.AppendInt(append(dst, `,"position":`...), s.Position, 10)
		dst = strconv.AppendInt(append(dst, `,"ahead":`...), s.Position-1, 10)
		dst = strconv.AppendInt(append(dst, `,"waiting":`...), max(s.Waiting, s.Position), 10)
	case s.State == StatePrequeue && s.Waiting > 0:
		dst = strconv.AppendInt(append(dst, `,"waiting":`...), s.Waiting, 10)
	}
	if s.ETA.Known {
		dst = strconv.AppendInt(append(dst, `,"eta":{"seconds":`...), s.ETA.Seconds, 10)
		dst = strconv.AppendInt(append(dst, `,"low":`...), s.ETA.Low, 10)
		dst = strconv.AppendInt(append(dst, `,"high":`...), s.ETA.High, 10)
		dst = append(dst, '}')
	}
	if s.Refresh > 0 {
		dst = strconv.AppendInt(append(dst, `,"refresh_after":`...), int64(s.Refresh), 10)
	}
	if s.JoinedAt > 0 {
		dst = AppendTime(append(dst, `,"joined_at":`...), s.JoinedAt)
	}
	if s.OpensAt > 0 {
		dst = AppendTime(append(dst, `,"opens_at":`...), s.OpensAt)
	}
	if s.ClosesAt > 0 {
		dst = AppendTime(append(dst, `,"closes_at":`...), s.ClosesAt)
	}
	dst = AppendString(append(dst, `,"message":`...), s.Message)
	dst = strconv.AppendBool(append(dst, `,"paused":`...), s.Paused)
	if s.Reason != "" {
		dst = AppendString(append(dst, `,"reason":`...), s.Reason)
	}
	if s.AdmittedAt > 0 {
		dst = AppendTime(append(dst, `,"admitted_at":`...), s.AdmittedAt)
	}
	if len(s.Pass) > 0 {
		dst = append(append(append(dst, `,"pass":"`...), s.Pass...), '"') // a JWT needs no escaping
		dst = AppendTime(append(dst, `,"expires_at":`...), s.ExpiresAt*1e6)
	}
	if len(s.Token) > 0 {
		dst = append(append(append(dst, `,"token":"`...), s.Token...), '"')
	}
	if s.Compat {
		dst = s.appendCompat(append(dst, `,"cfWaitingRoom":`...))
	}
	return append(dst, '}')
}

// appendCompat appends the object that clients of Cloudflare's waiting room read, with that product's field names and its
// minutes.
func (s *Status) appendCompat(dst []byte) []byte {
	minutes := func(seconds int64) int64 { return (seconds + 59) / 60 }
	in := s.State == StateWaiting || s.State == StatePrequeue || s.State == StateRejected || s.State == StateExpired
	dst = strconv.AppendBool(append(dst, `{"inWaitingRoom":`...), in)
	dst = strconv.AppendBool(append(dst, `,"waitTimeKnown":`...), s.ETA.Known)
	dst = strconv.AppendInt(append(dst, `,"waitTime":`...), minutes(s.ETA.Seconds), 10)
	dst = strconv.AppendInt(append(dst, `,"waitTime25Percentile":`...), minutes(s.ETA.Low), 10)
	dst = strconv.AppendInt(append(dst, `,"waitTime50Percentile":`...), minutes(s.ETA.Seconds), 10)
	dst = strconv.AppendInt(append(dst, `,"waitTime75Percentile":`...), minutes(s.ETA.High), 10)
	formatted := "unavailable"
	switch m := minutes(s.ETA.Seconds); {
	case s.State == StatePrequeue:
		formatted = "event is prequeueing"
	case !s.ETA.Known:
	case m == 1:
		formatted = "1 minute"
	default:
		formatted = strconv.FormatInt(m, 10) + " minutes"
	}
	dst = AppendString(append(dst, `,"waitTimeFormatted":`...), formatted)
	yes := func(name string, is bool) {
		dst = strconv.AppendBool(append(append(append(dst, `,"`...), name...), `":`...), is)
	}
	p := s.Policy
	if p == nil {
		p = &admission.Policy{Method: admission.FIFO, Rate: 1}
	}
	yes("queueIsFull", p.Capacity > 0 && s.Waiting >= p.Capacity)
	yes("queueAll", p.Paused || p.Rate == 0 || s.State == StatePrequeue)
	yes("isFIFOQueue", p.Method == admission.FIFO)
	yes("isPassthroughQueue", p.Method == admission.Passthrough)
	yes("isRandomQueue", p.Method == admission.Lottery)
	yes("isRejectQueue", p.Method == admission.Reject)
	if s.Event || s.State == StatePrequeue {
		yes("isEventActive", s.State != StatePrequeue)
		yes("isEventPrequeueing", s.State == StatePrequeue)
		yes("shuffleAtEventStart", p.Method == admission.Lottery)
	}
	if s.State == StatePrequeue {
		dst = strconv.AppendInt(append(dst, `,"timeUntilEventStart":`...), minutes(max(0, s.OpensAt-s.Now)/1e6), 10)
	}
	dst = append(dst, `,"lastUpdated":"`...)
	dst = time.UnixMicro(s.Now).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	dst = strconv.AppendInt(append(dst, `","refreshIntervalSeconds":`...), int64(s.Refresh), 10)
	return append(dst, '}')
}

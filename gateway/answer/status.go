package answer

import (
	"strconv"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/facts"
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

// ReasonSoldOut is the reason of a room that is closed because everything is sold out.
const ReasonSoldOut = "sold_out"

// ReasonEvacuated is the reason in the response to a visitor whose session was ended by an evacuation.
const ReasonEvacuated = "evacuated"

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
	Facts       *facts.View

	Compat *forecast.Room // the object cfWaitingRoom is added; nil: not
	Now    int64          // µs of Redis's clock, for that object
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
	if s.Facts != nil {
		dst = append(append(dst, `,"facts":`...), s.Facts.Member...)
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
	if s.Compat != nil {
		c := s.compat()
		dst = c.append(append(dst, ','))
	}
	return append(dst, '}')
}

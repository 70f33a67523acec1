package answer

import (
	"log/slog"
	"strconv"

	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/proxy"
)

// Problem is a response that is not a success, as in RFC 9457. The first fields are those of the table; the others belong to
// one request. Methods return a copy.
type Problem struct {
	Status int
	Code   string // stable; also names the type
	Title  string
	Detail string
	Retry  int        // seconds for Retry-After; 0: no field
	Level  slog.Level // of the log line; Quiet: none
	Close  bool       // the connection is not used again
	Out    bool       // the client remains outside the room: the object cfWaitingRoom may be added

	Field     string // the invalid member or header field
	Challenge string // path of the challenge to solve
	Link      string // where the page sends the visitor
	State     string // of X-Waiting-Room; empty: no field
	Header    [2]string
	OpensAt   int64 // µs of Redis's clock, of a closed room; 0: unknown
	JoinsAt   int64 // likewise, when a lottery begins to give tickets
	InRoom    bool  // a navigation gets the room's page
	Cause     error // for the log
	Logged    bool  // the cause has been logged

	Compat *forecast.Room // the object cfWaitingRoom is added; nil: not
	Now    int64          // µs of Redis's clock, for that object
}

// With returns the problem with another detail. An empty detail changes nothing.
func (p *Problem) With(detail string) *Problem {
	q := *p
	if detail != "" {
		q.Detail = detail
	}
	return &q
}

// At returns the problem with the name of the invalid member or header field.
func (p *Problem) At(field string) *Problem {
	q := *p
	q.Field = field
	return &q
}

// After returns the problem with another Retry-After, in seconds.
func (p *Problem) After(seconds int) *Problem {
	q := *p
	q.Retry = seconds
	return &q
}

// In returns the problem with a value of X-Waiting-Room.
func (p *Problem) In(state string) *Problem {
	q := *p
	q.State = state
	return &q
}

// Solving returns the problem with the path of the challenge to solve.
func (p *Problem) Solving(challenge string) *Problem {
	q := *p
	q.Challenge = challenge
	return &q
}

// Set returns the problem with a header field.
func (p *Problem) Set(name, value string) *Problem {
	q := *p
	q.Header = [2]string{name, value}
	return &q
}

// Because returns the problem with the error that is logged.
func (p *Problem) Because(cause error) *Problem {
	q := *p
	q.Cause = cause
	return &q
}

// WithoutLog returns the problem for callers that have logged its cause.
func (p *Problem) WithoutLog() *Problem {
	q := *p
	q.Logged = true
	return &q
}

// closedMax is the longest Retry-After of a closed room, in seconds: plans change.
const closedMax = 3600

// WithCompat returns the problem with the object cfWaitingRoom. now is in µs of Redis's clock.
func (p *Problem) WithCompat(room *forecast.Room, now int64) *Problem {
	q := *p
	q.Compat, q.Now = room, now
	return &q
}

// Until returns the problem of a room that is closed until opens, and refuses joins until joins. Times are in µs of
// Redis's clock; 0: unknown.
func (p *Problem) Until(opens, joins, now int64) *Problem {
	if opens == 0 {
		return p
	}
	q := *p
	q.OpensAt, q.JoinsAt = opens, joins
	next := opens
	if joins > 0 {
		next = joins
	}
	q.Retry = int(min(max(1, (next-now+999_999)/1e6), closedMax))
	return &q
}

// IsFault reports whether the gateway, the store or an origin failed.
func (p *Problem) IsFault() bool { return p.Status >= 500 && p.Level > Quiet }

// Append appends the problem as application/problem+json.
func (p *Problem) Append(dst []byte) []byte {
	dst = AppendString(append(dst, `{"type":`...), "urn:anteroom:problem:"+p.Code)
	dst = AppendString(append(dst, `,"title":`...), p.Title)
	dst = strconv.AppendInt(append(dst, `,"status":`...), int64(p.Status), 10)
	dst = AppendString(append(dst, `,"detail":`...), p.Detail)
	dst = AppendString(append(dst, `,"code":`...), p.Code)
	if p.Field != "" {
		dst = AppendString(append(dst, `,"field":`...), p.Field)
	}
	if p.OpensAt > 0 {
		dst = AppendTime(append(dst, `,"opens_at":`...), p.OpensAt)
		if p.JoinsAt > 0 {
			dst = AppendTime(append(dst, `,"prequeue_at":`...), p.JoinsAt)
		}
	}
	if p.Challenge != "" {
		dst = AppendString(append(dst, `,"challenge":`...), p.Challenge)
	}
	if p.Compat != nil {
		c := p.compat()
		dst = c.append(append(dst, ','))
	}
	return append(dst, '}')
}

// OfOrigin returns the problem of an origin that did not respond.
func OfOrigin(out *proxy.Outcome) *Problem {
	switch out.Kind {
	case proxy.KindConnect, proxy.KindTLS:
		switch {
		case out.Status == 504:
			return OriginConnectTimeout
		case out.Kind == proxy.KindTLS:
			return OriginTLS
		}
		return OriginUnreachable
	case proxy.KindBadResponse:
		return OriginBadAnswer
	case proxy.KindTimeout:
		return GatewayTimeout
	case proxy.KindQueueFull:
		return OriginBusy
	case proxy.KindShare:
		return OriginShare
	case proxy.KindBodyLarge:
		return ContentTooLarge
	case proxy.KindBodyTimeout:
		return RequestTimeout
	case proxy.KindBadRequest, proxy.KindClientGone:
		return BadRequest
	case proxy.KindInternal:
		return Internal
	}
	return OriginClosed
}

package gateway

import (
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/gateway/sse"
	"github.com/anteroom/anteroom/gateway/upstream"
	"github.com/anteroom/anteroom/token"
)

// outcome is the result of a request, for metrics and the access log.
type outcome = metrics.Outcome

const (
	proxied  = metrics.Proxied
	admitted = metrics.LetIn
	waiting  = metrics.Waiting
	bypassed = metrics.Bypassed
	refused  = metrics.Refused
	failed   = metrics.Failed
)

// action is the kind of a decision.
type action uint8

const (
	doProxy    action = iota // forward the request
	doWait                   // show the place in the queue, as a page or as JSON
	doStatus                 // send the status object
	doDocument               // send the body that the handler has written to visit.out.Body
	doStream                 // turn the connection into an event stream
)

// decision is the result of a handler for a request that is not refused. Only visit.write carries out decisions.
type decision struct {
	action  action
	outcome outcome
	ground  ground
	rule    int // of onBypass: the index of the rule

	origin  *upstream.Origin // doProxy
	session token.ID         // doProxy: of a visitor with a session; else zero
	permit  []byte           // doProxy: forwarded to the origin; a slice of the request

	code   int            // all but doProxy
	status *answer.Status // doWait, doStatus: in the memory of the visit

	contentType string      // doDocument
	fields      [][2]string // doDocument: further header fields

	stream *sse.Stream // doStream
}

// ground is the rule that a decision follows from.
type ground uint8

const (
	onOther     ground = iota // an endpoint of the gateway
	onNoRoom                  // no room has the host and path
	onOpenRoom                // the room is off or passes every visitor
	onPreflight               // a CORS preflight
	onBypass                  // a bypass rule matches
	onPass                    // the request has a valid pass
	onCapacity                // the limiter has capacity for a request that takes no ticket
	onAdmission               // the visitor is admitted by this request
	onQueue                   // the visitor has to wait
	onChallenge               // a proof of work or CAPTCHA comes first
	onRedirect                // the path has several readings
)

// toOrigin forwards a request that needs no session.
func toOrigin(u *upstream.Origin, o outcome, why ground) decision {
	return decision{action: doProxy, outcome: o, ground: why, origin: u}
}

// withStatus sends a status object.
func withStatus(code int, s *answer.Status) decision {
	return decision{action: doStatus, outcome: waiting, code: code, status: s}
}

// document sends the body that was written to visit.out.Body.
func document(o outcome, code int, contentType string, fields ...[2]string) decision {
	return decision{action: doDocument, outcome: o, code: code, contentType: contentType, fields: fields}
}

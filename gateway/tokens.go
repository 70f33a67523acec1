package gateway

import (
	"bytes"
	"errors"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/token"
)

// day is the life of a waiting token and its cookies, in seconds.
const day = 24 * 3600

// tokenCheck verifies the tokens of one request, and keeps what the verification found beside the valid ones.
type tokenCheck struct {
	g     *Gateway
	r     *request
	trace *visitTrace

	forged   bool            // one has a wrong signature: no others are verified, because each may cost as much as ten requests
	pass     []byte          // the valid pass; a slice of the request
	ended    []byte          // a pass that has ended or was revoked; a slice of the request
	cleared  bool            // an evacuation has ended the session of ended
	rejected *answer.Problem // why a waiting token that verifies does not count
	report   sessionReport   // whether a request of the session of the last pass is reported to the store
}

// Reasons to reject a token with a valid signature.
var (
	errBound        = errors.New("the token is bound to another network or browser")
	errRevoked      = errors.New("the session was revoked")
	errEvacuated    = errors.New("an evacuation has ended the session")
	errOtherAccount = errors.New("the token belongs to another account")
)

// firstValid returns the first token that verify accepts, and counts rejected tokens by reason.
func firstValid[T any](c *tokenCheck, tokens [][]byte, verify func(*tokenCheck, []byte) (T, error)) (t T, ok bool) {
	for _, raw := range tokens {
		if c.forged {
			break
		}
		t, err := verify(c, raw)
		switch {
		case err == nil:
			return t, true
		case errors.Is(err, errBound):
			c.g.metrics.RejectedTokens["bind"].Inc()
		case errors.Is(err, errRevoked), errors.Is(err, errEvacuated), errors.Is(err, errOtherAccount):
		default:
			c.forged = errors.Is(err, token.ErrSignature)
			c.g.metrics.RejectedTokens[token.Reason(err)].Inc()
		}
	}
	return t, false
}

// tokensMax bounds the tokens of one kind that are verified.
const tokensMax = 8

// findPass returns the first valid pass of the request, from the header field, then from the cookies.
func (c *tokenCheck) findPass() (token.Pass, bool) {
	raw, cookies := c.r.req.Peek("x-waiting-room-pass"), c.r.jar.Pass.All()
	if len(raw) == 0 {
		return firstValid(c, cookies, verifyPass)
	}
	var list [tokensMax][]byte
	return firstValid(c, append(append(list[:0], raw), cookies...), verifyPass)
}

func verifyPass(c *tokenCheck, raw []byte) (token.Pass, error) {
	p, err := c.g.cache.VerifyPass(raw, c.r.room.id, c.r.now/1e6)
	if errors.Is(err, token.ErrExpired) {
		p, err = verifyBeforeStep(c, raw)
	}
	if errors.Is(err, token.ErrExpired) && c.ended == nil {
		c.ended = raw
	}
	switch {
	case err != nil:
		return p, err
	case p.Bind != "" && !c.r.binding.Matches(p.Bind): // a pass from before the setting is valid until its renewal
		return p, errBound
	case c.r.room.store.Revoked(admission.ID(p.Session)):
		c.ended, c.cleared = raw, evacuated(c.r, &p) // a visitor who returns after an evacuation has the session revoked
		return p, errRevoked
	case evacuated(c.r, &p):
		c.ended, c.cleared = raw, true
		return p, errEvacuated
	case !c.goesOn(&p):
		if c.ended == nil {
			c.ended = raw
		}
		return p, token.ErrExpired
	}
	c.pass = raw
	return p, nil
}

// evacuated reports whether an evacuation of the room has ended the session of a pass.
func evacuated(r *request, p *token.Pass) bool {
	return r.room.queue.Snapshot().Evacuation.Ends(p.Claimed, p.IssuedAt)
}

// reasonToWait returns why the client of the request waits: an evacuation, or lost, the reason for which a former ticket was replaced.
func (c *tokenCheck) reasonToWait(lost string) string {
	if c.cleared {
		return answer.ReasonEvacuated
	}
	return lost
}

// sessionReport is whether a request of a session is to be reported to the store.
type sessionReport uint8

const (
	reportScheduled  sessionReport = iota // report it if the last report is reportEvery ago
	reportedRecently                      // do not report it: the last report is less than reportEvery ago
	reportAlways                          // report it: the store was away, so the session counts as going on without its reply
)

// goesOn reports whether the session of a pass goes on. The session of a pass that is renewed while it is used lasts as long as the pass.
// The session of a pass that is signed once (Live) lasts while requests of its visitor are reported to the store.
func (c *tokenCheck) goesOn(p *token.Pass) bool {
	c.report = reportScheduled
	if !p.Live {
		return true
	}
	now, ttl := c.r.now/1e6, c.r.sessionTTL()
	if c.g.meters.touched.Fresh(p.Session, now, reportEvery(ttl)) {
		c.report = reportedRecently
		return true
	}
	if now-p.IssuedAt < leastSilence(p, ttl) {
		return true
	}
	alive, sure := c.r.room.store.Alive(callsWithoutTicket(c.trace, c.g, c.r), admission.ID(p.Session))
	if !sure {
		c.report = reportAlways
	}
	return alive
}

// leastSilence returns for how many seconds a session goes on in any case after its pass was signed. The ttl of that time may have been
// shorter than the ttl now, but not than shortestLiveTTL. A session that began without the store is unknown there until its gateway
// reports it.
func leastSilence(p *token.Pass, ttl int64) int64 {
	if p.Off {
		return ttl
	}
	return min(ttl, shortestLiveTTL)
}

// shortestLiveTTL is the shortest session.ttl of rooms with session.renew: server, in seconds.
const shortestLiveTTL = 4

// reportEvery returns how often a session with a ttl is reported to the store; both are in seconds.
func reportEvery(ttl int64) int64 { return max(1, ttl/4) }

// reportDue reports whether a request of a session is to be reported to the store, and then records the report.
func (c *tokenCheck) reportDue(session token.ID, now int64) bool {
	switch c.report {
	case reportedRecently:
		return false
	case reportAlways:
		return true // it is not recorded: the store may reply that the session has ended
	}
	return c.g.meters.touched.Due(session, now, reportEvery(c.r.sessionTTL()))
}

// verifyBeforeStep verifies a pass that has expired by Redis's clock but was signed before that clock was set forward.
func verifyBeforeStep(c *tokenCheck, raw []byte) (token.Pass, error) {
	by, at := c.r.room.store.Stepped()
	if by == 0 {
		return token.Pass{}, token.ErrExpired
	}
	p, err := c.g.cache.VerifyPass(raw, c.r.room.id, (c.r.now-by)/1e6)
	policy := &c.r.room.queue.Snapshot().Policy
	life := policy.SessionTTL
	if p.Live {
		life = max(life, policy.PassLife)
	}
	if err == nil && p.Expires > at/1e6+int64(life/time.Second) {
		return token.Pass{}, token.ErrExpired // the pass was signed after the step
	}
	return p, err
}

// findTicket returns the first valid waiting token of the request, from the header fields, then from the cookies. any reports whether
// the request carries any token. Authorization is read below /.waiting-room only; elsewhere it belongs to the origin.
func (c *tokenCheck) findTicket(authorization bool) (w token.Waiting, ok, any bool) {
	var list [tokensMax][]byte
	tokens := list[:0]
	if raw := c.r.req.Peek("x-waiting-room-token"); len(raw) > 0 {
		tokens = append(tokens, raw)
	}
	if authorization {
		raw := bearer(c.r.req)
		theirs := c.r.room.identity != nil && c.r.room.identity.keys != nil && !token.Ours(raw)
		if len(raw) > 0 && !theirs {
			tokens = append(tokens, raw)
		}
	}
	tokens = append(tokens, c.r.jar.Ticket.All()...)
	w, ok = firstValid(c, tokens, verifyTicket)
	return w, ok, len(tokens) > 0
}

func verifyTicket(c *tokenCheck, raw []byte) (token.Waiting, error) {
	w, err := c.g.cache.VerifyWaiting(raw, c.r.room.id, c.r.now/1e6)
	switch {
	case err != nil:
		return w, err
	case !c.r.mayUse(&w):
		c.rejected = answer.TokenBound
		return w, errBound
	case w.Account && c.r.account.state == accountKnown && !c.r.account.owns(admission.ID(w.ID)):
		c.rejected = answer.TokenAccount
		return w, errOtherAccount
	}
	return w, nil
}

// mayUse reports whether the client may use a waiting token. A token without a binding is from before the setting. It is valid for
// absence after its last renewal by the store, and the next response binds it.
func (r *request) mayUse(w *token.Waiting) bool {
	if w.Bind != "" || r.state.options.Bind == client.BindNone {
		return r.binding.Matches(w.Bind)
	}
	absence := r.room.queue.Snapshot().Policy.Absence
	if now := r.room.queue.Now(); w.Seen > 0 && now > 0 {
		return now-max(w.Seen, w.Heard) <= absence.Microseconds()
	}
	return r.now/1e6-w.IssuedAt <= int64(absence.Seconds())
}

// needTicket returns the waiting token of a request that requires one.
func (c *tokenCheck) needTicket() (token.Waiting, *answer.Problem) {
	w, ok, any := c.findTicket(true)
	if ok {
		return w, nil
	}
	p := answer.TokenMissing
	switch {
	case c.rejected != nil:
		p = c.rejected
	case any:
		p = answer.TokenInvalid
	}
	return w, p.Set("WWW-Authenticate", `Bearer realm="waiting-room"`)
}

// bearer returns the token of a request's Authorization field, nil without one.
func bearer(q *wire.Request) []byte {
	if raw := q.Peek("authorization"); len(raw) > 7 && client.EqualFold(raw[:7], "bearer ") {
		return bytes.TrimLeft(raw[7:], " ")
	}
	return nil
}

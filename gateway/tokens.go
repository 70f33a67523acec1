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

// day is how long a waiting token and its cookies live after they were signed, in seconds.
const day = 24 * 3600

// tokenCheck is what verifying a request's tokens has found beside those that count.
type tokenCheck struct {
	forged   bool            // one has a wrong signature: no other is verified, because each may cost as much as ten requests
	ended    []byte          // a pass that has ended or was revoked; part of the request
	rejected *answer.Problem // why a waiting token that verifies does not count
}

// Reasons why a token that verifies does not count.
var (
	errBound        = errors.New("the token is bound to another network or browser")
	errRevoked      = errors.New("the session was revoked")
	errOtherAccount = errors.New("the token belongs to another account")
)

// firstValid returns the first of a request's tokens that verify accepts. What the others lack is counted.
func firstValid[T any](v *visit, tokens [][]byte, verify func(*visit, []byte) (T, error)) (t T, ok bool) {
	for _, raw := range tokens {
		if v.tokens.forged {
			break
		}
		t, err := verify(v, raw)
		switch {
		case err == nil:
			return t, true
		case errors.Is(err, errBound):
			v.g.metrics.RejectedTokens["bind"].Inc()
		case errors.Is(err, errRevoked), errors.Is(err, errOtherAccount):
		default:
			v.tokens.forged = errors.Is(err, token.ErrSignature)
			v.g.metrics.RejectedTokens[token.Reason(err)].Inc()
		}
	}
	return t, false
}

// tokensMax is how many tokens of one kind are verified.
const tokensMax = 8

// findPass returns the first valid pass of the request: of the header field, then of the cookies.
func (v *visit) findPass() (token.Pass, bool) {
	var list [tokensMax][]byte
	tokens := list[:0]
	if raw := v.req.Peek("x-waiting-room-pass"); len(raw) > 0 {
		tokens = append(tokens, raw)
	}
	return firstValid(v, append(tokens, v.jar.Pass.All()...), verifyPass)
}

func verifyPass(v *visit, raw []byte) (token.Pass, error) {
	p, err := v.g.cache.VerifyPass(raw, v.room.id, v.now/1e6)
	if errors.Is(err, token.ErrExpired) {
		p, err = verifyBeforeStep(v, raw)
	}
	if errors.Is(err, token.ErrExpired) && v.tokens.ended == nil {
		v.tokens.ended = raw
	}
	switch {
	case err != nil:
		return p, err
	case p.Bind != "" && !v.binding.Matches(p.Bind): // one from before the setting counts until it is renewed
		return p, errBound
	case v.room.store.Revoked(admission.ID(p.Session)):
		v.tokens.ended = raw
		return p, errRevoked
	}
	return p, nil
}

// verifyBeforeStep verifies a pass that has expired by Redis's clock but was signed before that clock was set forward.
func verifyBeforeStep(v *visit, raw []byte) (token.Pass, error) {
	by, at := v.room.store.Stepped()
	if by == 0 {
		return token.Pass{}, token.ErrExpired
	}
	p, err := v.g.cache.VerifyPass(raw, v.room.id, (v.now-by)/1e6)
	if err == nil && p.Expires > at/1e6+int64(v.room.queue.Snapshot().Policy.SessionTTL/time.Second) {
		return token.Pass{}, token.ErrExpired // it was signed since
	}
	return p, err
}

// findTicket returns the first valid waiting token of the request, and whether it carries any: of the header fields, then of
// the cookies. Authorization is read below /.waiting-room only: elsewhere it is the origin's.
func (v *visit) findTicket(authorization bool) (w token.Waiting, ok, any bool) {
	var list [tokensMax][]byte
	tokens := list[:0]
	if raw := v.req.Peek("x-waiting-room-token"); len(raw) > 0 {
		tokens = append(tokens, raw)
	}
	if authorization {
		raw := bearer(v.req)
		theirs := v.room.identity != nil && v.room.identity.keys != nil && !token.Ours(raw)
		if len(raw) > 0 && !theirs {
			tokens = append(tokens, raw)
		}
	}
	tokens = append(tokens, v.jar.Ticket.All()...)
	w, ok = firstValid(v, tokens, verifyTicket)
	return w, ok, len(tokens) > 0
}

func verifyTicket(v *visit, raw []byte) (token.Waiting, error) {
	w, err := v.g.cache.VerifyWaiting(raw, v.room.id, v.now/1e6)
	switch {
	case err != nil:
		return w, err
	case !v.mayUse(&w):
		v.tokens.rejected = answer.TokenBound
		return w, errBound
	case w.Account && v.account.state == accountKnown && !v.account.owns(admission.ID(w.ID)):
		v.tokens.rejected = answer.TokenAccount
		return w, errOtherAccount
	}
	return w, nil
}

// mayUse reports whether the client may use a waiting token. One without a binding is from before the setting: it counts for
// absence after the store has last renewed it, and the next response binds it.
func (v *visit) mayUse(w *token.Waiting) bool {
	if w.Bind != "" || v.state.options.Bind == client.BindNone {
		return v.binding.Matches(w.Bind)
	}
	absence := v.room.queue.Snapshot().Policy.Absence
	if now := v.room.queue.Now(); w.Seen > 0 && now > 0 {
		return now-max(w.Seen, w.Heard) <= absence.Microseconds()
	}
	return v.now/1e6-w.IssuedAt <= int64(absence.Seconds())
}

// needTicket returns the waiting token of a request that makes no sense without one.
func (v *visit) needTicket() (token.Waiting, *answer.Problem) {
	w, ok, any := v.findTicket(true)
	if ok {
		return w, nil
	}
	p := answer.TokenMissing
	switch {
	case v.tokens.rejected != nil:
		p = v.tokens.rejected
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

package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/proxy"
)

// problem is an answer that is no success, as in RFC 9457. Waiting is none.
type problem struct {
	status int
	code   string // stable; also names the type
	title  string
	detail string
	retry  int        // seconds for Retry-After; 0: no header
	level  slog.Level // of the log line; debug for what visitors cause
	close  bool       // the connection is not used again
}

// longestClosed is the longest time for which somebody is sent away from a closed room: plans change.
const longestClosed = 3600

// until is a problem of a room that is closed until a time that is known.
func (p *problem) until(c *coming, now int64) *problem {
	if c.opens == 0 {
		return p
	}
	next := c.opens
	if c.joins > 0 {
		next = c.joins
	}
	closed := *p
	closed.retry = int(min(max(1, (next-now+999_999)/1e6), longestClosed))
	return &closed
}

const quiet = slog.LevelDebug

// The one table of refusals and faults.
var (
	problemUnknownHost   = &problem{421, "unknown_host", "Unknown host", "This host is not served here.", 0, quiet, false}
	problemPath          = &problem{400, "ambiguous_path", "The path can be read in several ways", "Servers read this path in different ways, which lead to different rooms. Send it without dot segments, empty segments, parameters and escapes that it does not need.", 0, quiet, false}
	problemUnknownRoom   = &problem{404, "unknown_room", "No such room", "There is no room of this name on this host.", 0, quiet, false}
	problemUnknownPath   = &problem{404, "unknown_path", "Not found", "There is nothing at this address.", 0, quiet, false}
	problemNoDraw        = &problem{404, "no_draw", "No draw", "This room is not a lottery.", 0, quiet, false}
	problemMethod        = &problem{405, "method_not_allowed", "Method not allowed", "The Allow header names the methods of this address.", 0, quiet, false}
	problemTokenMissing  = &problem{401, "token_missing", "A token is needed", "Send the waiting token as cookie, as Authorization: Bearer, or as X-Waiting-Room-Token; POST tickets gives one.", 0, quiet, false}
	problemTokenInvalid  = &problem{401, "token_invalid", "The token does not verify", "Join again with POST tickets.", 0, quiet, false}
	problemBound         = &problem{401, "token_bound", "Somebody else's token", "It was given to another network or another browser, and counts there alone. Join again with POST tickets.", 0, quiet, false}
	problemAccount       = &problem{401, "account_required", "Please log in", "There is one place for each account here. Log in on the site, then come back to this page.", 0, quiet, false}
	problemAccounts      = &problem{503, "accounts_unavailable", "Temporarily unavailable", "Who you are cannot be checked right now. A place in line is kept.", 5, slog.LevelWarn, false}
	problemOtherAccount  = &problem{401, "token_account", "Another account's place", "The token belongs to another account than the one that you are logged in with. Join again with POST tickets.", 0, quiet, false}
	problemSpentAccount  = &problem{429, "account_spent", "Too many places", "This account has given up too many places lately. Try again in a quarter of an hour.", 900, quiet, false}
	problemCrossSite     = &problem{403, "cross_site", "Not from this site", "Another site's page may not do this; cors_origins names those that may.", 0, quiet, false}
	problemBodyTooLarge  = &problem{413, "body_too_large", "The body is too large", "A body here has at most 4096 bytes.", 0, quiet, true}
	problemBodyBroken    = &problem{400, "body_broken", "The body broke off", "The body ended before its length, or its chunks are malformed.", 0, quiet, true}
	problemBody          = &problem{422, "invalid_body", "The body is not understood", "", 0, quiet, false}
	problemIdempotency   = &problem{422, "idempotency_key", "The Idempotency-Key is not accepted", "It has 22 to 128 characters of printable ASCII without blanks.", 0, quiet, false}
	problemSpentKey      = &problem{409, "idempotency_key_spent", "The Idempotency-Key is used up", "Too many tickets of this key have ended; use a new key.", 0, quiet, false}
	problemNotYet        = &problem{409, "not_admitted", "Not yet", "This ticket is still waiting.", 0, quiet, false}
	problemLapsed        = &problem{410, "lapsed", "The turn has passed", "This ticket was admitted and not claimed in time; join again.", 0, quiet, false}
	problemClaimed       = &problem{410, "claimed", "Claimed already", "This ticket was used by another client; join again.", 0, quiet, false}
	problemEnded         = &problem{410, "ended", "The ticket has ended", "Join again.", 0, quiet, false}
	problemExpired       = &problem{410, "expired", "The ticket has expired", "Join again.", 0, quiet, false}
	problemClosed        = &problem{503, "room_closed", "Closed", "This room is closed.", 30, quiet, false}
	problemDraining      = &problem{503, "room_draining", "No new visitors", "This room takes nobody new at the moment; those in line are still served.", 30, quiet, false}
	problemTooMany       = &problem{429, "too_many_joins", "Too many places", "Too many places were taken from this address or its network. Try again when Retry-After has passed; places that were given stay.", 30, quiet, false}
	problemProofNeeded   = &problem{428, "proof_required", "A proof of work is needed", "GET the challenge, solve it, and POST tickets with the solution as altcha.", 0, quiet, false}
	problemProof         = &problem{422, "proof_invalid", "The proof does not verify", "GET a new challenge of this room and solve that.", 0, quiet, false}
	problemProofLate     = &problem{422, "proof_expired", "The proof came too late", "GET a new challenge; the expires in its salt says how long it may be answered.", 0, quiet, false}
	problemProofSpent    = &problem{409, "proof_spent", "The proof is used up", "Its place has ended, and a proof makes one place. GET a new challenge.", 0, quiet, false}
	problemCaptchaNeeded = &problem{428, "captcha_required", "A CAPTCHA is needed", "The challenge names its provider and site key; POST tickets with the answer as captcha.", 0, quiet, false}
	problemCaptcha       = &problem{422, "captcha_failed", "The CAPTCHA's answer does not count", "Ask for another one.", 0, quiet, false}
	problemCaptchaAway   = &problem{503, "captcha_unavailable", "The CAPTCHA cannot be checked", "Its provider does not answer. Try again in a moment.", 5, slog.LevelWarn, false}
	problemNoChallenge   = &problem{404, "no_challenge", "No challenge", "This room asks for none.", 0, quiet, false}
	problemFull          = &problem{503, "room_full", "The line is full", "Try again in a while.", 30, quiet, false}
	problemStore         = &problem{503, "store_unavailable", "Temporarily unavailable", "New visitors cannot be taken right now. A place in line is kept.", 5, slog.LevelWarn, false}
	problemStreams       = &problem{503, "streams_full", "Too many event streams", "Poll the status instead, or try again.", 15, quiet, false}
	problemShuttingDown  = &problem{503, "shutting_down", "Restarting", "Try again; a place in line is kept.", 1, quiet, true}
	problemRequests      = &problem{429, "session_requests", "Too many requests", "This session makes more requests than it may. It goes on; wait for as long as Retry-After says.", 1, quiet, false}
	problemPassNeeded    = &problem{503, "pass_needed", "Waiting room", "This request needs a pass.", 10, quiet, false}
	problemPreflights    = &problem{503, "too_many_preflights", "Too many preflights", "Scripts of other sites ask this room what they may send more often than it serves. Try again when Retry-After has passed.", 1, quiet, false}
	problemPrefetch      = &problem{503, "prefetch", "Waiting room", "Prefetches are not served while people wait.", 10, quiet, false}
	problemInternal      = &problem{500, "internal", "Something broke", "It was not your request; it has been logged.", 0, slog.LevelError, false}
	problemNothingServed = &problem{502, "no_origin", "Nothing to show", "No origin is configured for this request.", 0, slog.LevelError, false}
)

// problems lists the table, for its tests and for the description of the API.
var problems = []*problem{
	problemUnknownHost, problemPath, problemUnknownRoom, problemUnknownPath, problemNoDraw, problemMethod, problemTokenMissing,
	problemTokenInvalid, problemBound, problemAccount, problemAccounts, problemOtherAccount, problemSpentAccount, problemRequests, problemCrossSite, problemBodyTooLarge, problemBodyBroken, problemBody, problemIdempotency,
	problemSpentKey, problemNotYet, problemLapsed, problemClaimed, problemEnded, problemExpired, problemClosed,
	problemProofNeeded, problemProof, problemProofLate, problemProofSpent, problemCaptchaNeeded, problemCaptcha, problemCaptchaAway, problemNoChallenge,
	problemDraining, problemTooMany, problemFull, problemStore, problemStreams, problemShuttingDown, problemPassNeeded, problemPreflights, problemPrefetch,
	problemInternal, problemNothingServed, problemOriginAway, problemOriginFar, problemOriginTLS, problemOriginReset,
	problemOriginBad, problemOriginSlow, problemOriginBusy, problemRequestSlow, problemRequest, problemLarge,
}

// after is the problem with another Retry-After.
func (p *problem) after(seconds int) *problem {
	q := *p
	q.retry = seconds
	return &q
}

// problemOf maps an error of ours.
func problemOf(err error) *problem {
	switch {
	case errors.Is(err, admission.ErrNotYet):
		return problemNotYet
	case errors.Is(err, admission.ErrUnknown):
		return problemEnded
	case errors.Is(err, admission.ErrStore), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return problemStore
	}
	return problemInternal
}

// problemOfRefusal maps why no ticket is given.
func problemOfRefusal(r admission.Refusal) *problem {
	switch r {
	case admission.Closed:
		return problemClosed
	case admission.Draining:
		return problemDraining
	case admission.Full:
		return problemFull
	case admission.TooMany:
		return problemTooMany
	case admission.Spent:
		return problemSpentAccount
	}
	return problemStore
}

// problemOfStanding maps a ticket that can no longer be claimed.
func problemOfStanding(s *admission.Standing) *problem {
	switch {
	case s.State == admission.Lapsed:
		return problemLapsed
	case s.State == admission.Expired:
		return problemExpired
	case s.Reason == admission.ReasonClaimed:
		return problemClaimed
	}
	return problemEnded
}

// append appends the problem as application/problem+json. field, when not empty, names what in the request is wrong,
// and detail replaces the table's.
func (p *problem) append(dst []byte, detail, field string) []byte {
	if detail == "" {
		detail = p.detail
	}
	dst = appendString(append(dst, `{"type":`...), "urn:anteroom:problem:"+p.code)
	dst = appendString(append(dst, `,"title":`...), p.title)
	dst = strconv.AppendInt(append(dst, `,"status":`...), int64(p.status), 10)
	dst = appendString(append(dst, `,"detail":`...), detail)
	dst = appendString(append(dst, `,"code":`...), p.code)
	if field != "" {
		dst = appendString(append(dst, `,"field":`...), field)
	}
	return append(dst, '}')
}

// What origins and connections fail with.
var (
	problemOriginAway  = &problem{502, "origin_unreachable", "The site cannot be reached", "No connection to the site behind this page could be made. Try again in a moment.", 0, slog.LevelWarn, false}
	problemOriginFar   = &problem{504, "origin_connect_timeout", "The site cannot be reached", "No connection to the site behind this page could be made in time. Try again in a moment.", 0, slog.LevelWarn, false}
	problemOriginTLS   = &problem{502, "origin_tls", "The site cannot be reached", "No secure connection to the site behind this page could be made.", 0, slog.LevelWarn, false}
	problemOriginReset = &problem{502, "origin_closed", "The site broke off", "The site behind this page ended the connection without an answer. Whether it took the request is not known.", 0, slog.LevelWarn, false}
	problemOriginBad   = &problem{502, "origin_bad_answer", "The site's answer is not understood", "The site behind this page gave an answer that may not be passed on.", 0, slog.LevelWarn, false}
	problemOriginSlow  = &problem{504, "gateway_timeout", "The site takes too long", "The site behind this page did not answer in time. Whether it took the request is not known.", 0, slog.LevelWarn, false}
	problemOriginBusy  = &problem{503, "origin_busy", "The site is busy", "All connections to the site are in use.", 1, slog.LevelWarn, false}
	problemRequestSlow = &problem{408, "request_timeout", "The request took too long", "Its body did not arrive in time.", 0, quiet, true}
	problemRequest     = &problem{400, "bad_request", "The request is malformed", "Its body's framing is broken.", 0, quiet, true}
	problemLarge       = &problem{413, "content_too_large", "The request is too large", "Its body is larger than the site takes.", 0, quiet, false}
)

// problemOriginShare is problemOriginBusy for a client that has its share of the connections; nothing is wrong with the site.
var problemOriginShare = &problem{503, problemOriginBusy.code, problemOriginBusy.title, "Too many requests of this client are under way. Try again when some have been answered.", 1, quiet, false}

// problemOfOrigin maps why an origin did not answer.
func problemOfOrigin(out *proxy.Outcome) *problem {
	switch out.Kind {
	case proxy.KindConnect, proxy.KindTLS:
		switch {
		case out.Status == 504:
			return problemOriginFar
		case out.Kind == proxy.KindTLS:
			return problemOriginTLS
		}
		return problemOriginAway
	case proxy.KindBadResponse:
		return problemOriginBad
	case proxy.KindTimeout:
		return problemOriginSlow
	case proxy.KindQueueFull:
		return problemOriginBusy
	case proxy.KindShare:
		return problemOriginShare
	case proxy.KindBodyLarge:
		return problemLarge
	case proxy.KindBodyTimeout:
		return problemRequestSlow
	case proxy.KindBadRequest, proxy.KindClientGone:
		return problemRequest
	case proxy.KindInternal:
		return problemInternal
	}
	return problemOriginReset
}

package answer

import "log/slog"

// Quiet is the level of problems that clients cause.
const Quiet = slog.LevelDebug

// The table of refusals and faults of the gateway.
var (
	UnknownHost         = &Problem{Status: 421, Code: "unknown_host", Title: "Unknown host", Detail: "This host is not served here.", Level: Quiet}
	AmbiguousPath       = &Problem{Status: 400, Code: "ambiguous_path", Title: "The path can be read in several ways", Detail: "Servers read this path in different ways, which lead to different rooms. Send it without dot segments, empty segments, parameters and escapes that it does not need.", Level: Quiet}
	UnknownRoom         = &Problem{Status: 404, Code: "unknown_room", Title: "No such room", Detail: "There is no room of this name on this host.", Level: Quiet}
	UnknownPath         = &Problem{Status: 404, Code: "unknown_path", Title: "Not found", Detail: "There is nothing at this address.", Level: Quiet}
	NoDraw              = &Problem{Status: 404, Code: "no_draw", Title: "No draw", Detail: "This room is not a lottery.", Level: Quiet}
	MethodNotAllowed    = &Problem{Status: 405, Code: "method_not_allowed", Title: "Method not allowed", Detail: "The Allow header names the methods of this address.", Level: Quiet}
	TokenMissing        = &Problem{Status: 401, Code: "token_missing", Title: "A token is needed", Detail: "Send the waiting token as cookie, as Authorization: Bearer, or as X-Waiting-Room-Token; POST tickets returns one.", Level: Quiet}
	TokenInvalid        = &Problem{Status: 401, Code: "token_invalid", Title: "The token does not verify", Detail: "Join again with POST tickets.", Level: Quiet}
	TokenBound          = &Problem{Status: 401, Code: "token_bound", Title: "The token is bound", Detail: "This token is bound to another network or browser. Join again with POST tickets.", Level: Quiet}
	AccountRequired     = &Problem{Status: 401, Code: "account_required", Title: "Please log in", Detail: "There is one place for each account here. Log in on the site, then come back to this page.", Level: Quiet}
	AccountsUnavailable = &Problem{Status: 503, Code: "accounts_unavailable", Title: "Temporarily unavailable", Detail: "Who you are cannot be checked right now. Your place in the queue is kept.", Retry: 5, Level: slog.LevelWarn}
	TokenAccount        = &Problem{Status: 401, Code: "token_account", Title: "Another account's place", Detail: "The token belongs to another account than the one that you are logged in with. Join again with POST tickets.", Level: Quiet}
	AccountSpent        = &Problem{Status: 429, Code: "account_spent", Title: "Too many places", Detail: "This account has given up too many places lately. Try again in a quarter of an hour.", Retry: 900, Level: Quiet}
	CrossSite           = &Problem{Status: 403, Code: "cross_site", Title: "Not from this site", Detail: "Another site's page may not do this; cors_origins names those that may.", Level: Quiet}
	BodyTooLarge        = &Problem{Status: 413, Code: "body_too_large", Title: "The body is too large", Detail: "A body here has at most 4096 bytes.", Level: Quiet, Close: true}
	BodyBroken          = &Problem{Status: 400, Code: "body_broken", Title: "The body broke off", Detail: "The body ended before its length, or its chunks are malformed.", Level: Quiet, Close: true}
	InvalidBody         = &Problem{Status: 422, Code: "invalid_body", Title: "The body is not understood", Detail: "", Level: Quiet}
	IdempotencyKey      = &Problem{Status: 422, Code: "idempotency_key", Title: "The Idempotency-Key is not accepted", Detail: "It has 22 to 128 characters of printable ASCII without blanks.", Level: Quiet}
	IdempotencyKeySpent = &Problem{Status: 409, Code: "idempotency_key_spent", Title: "The Idempotency-Key is used up", Detail: "Too many tickets of this key have ended; use a new key.", Level: Quiet}
	NotAdmitted         = &Problem{Status: 409, Code: "not_admitted", Title: "Not yet", Detail: "This ticket is still waiting.", Level: Quiet}
	Lapsed              = &Problem{Status: 410, Code: "lapsed", Title: "The turn has passed", Detail: "This ticket was admitted and not claimed in time; join again.", Level: Quiet}
	Claimed             = &Problem{Status: 410, Code: "claimed", Title: "Claimed already", Detail: "This ticket was used by another client; join again.", Level: Quiet}
	Ended               = &Problem{Status: 410, Code: "ended", Title: "The ticket has ended", Detail: "Join again.", Level: Quiet}
	Expired             = &Problem{Status: 410, Code: "expired", Title: "The ticket has expired", Detail: "Join again.", Level: Quiet}
	RoomClosed          = &Problem{Status: 503, Code: "room_closed", Title: "Closed", Detail: "This room is closed.", Retry: 30, Level: Quiet}
	RoomDraining        = &Problem{Status: 503, Code: "room_draining", Title: "No new visitors", Detail: "This room takes no new visitors at the moment; visitors in the queue are still admitted.", Retry: 30, Level: Quiet}
	TooManyJoins        = &Problem{Status: 429, Code: "too_many_joins", Title: "Too many places", Detail: "Too many places were taken from this address or its network. Try again when Retry-After has passed; places that were given stay.", Retry: 30, Level: Quiet}
	ProofRequired       = &Problem{Status: 428, Code: "proof_required", Title: "A proof of work is needed", Detail: "GET the challenge, solve it, and POST tickets with the solution as altcha.", Level: Quiet}
	ProofInvalid        = &Problem{Status: 422, Code: "proof_invalid", Title: "The proof does not verify", Detail: "GET a new challenge of this room and solve that.", Level: Quiet}
	ProofExpired        = &Problem{Status: 422, Code: "proof_expired", Title: "The proof came too late", Detail: "GET a new challenge; the expires in its salt says how long it may be answered.", Level: Quiet}
	ProofSpent          = &Problem{Status: 409, Code: "proof_spent", Title: "The proof is used up", Detail: "Its place has ended, and a proof makes one place. GET a new challenge.", Level: Quiet}
	CaptchaRequired     = &Problem{Status: 428, Code: "captcha_required", Title: "A CAPTCHA is needed", Detail: "The challenge names its provider and site key; POST tickets with the answer as captcha.", Level: Quiet}
	CaptchaFailed       = &Problem{Status: 422, Code: "captcha_failed", Title: "The CAPTCHA's answer does not count", Detail: "Ask for another one.", Level: Quiet}
	CaptchaUnavailable  = &Problem{Status: 503, Code: "captcha_unavailable", Title: "The CAPTCHA cannot be checked", Detail: "Its provider does not answer. Try again in a moment.", Retry: 5, Level: slog.LevelWarn}
	NoChallenge         = &Problem{Status: 404, Code: "no_challenge", Title: "No challenge", Detail: "This room asks for none.", Level: Quiet}
	RoomFull            = &Problem{Status: 503, Code: "room_full", Title: "The queue is full", Detail: "Try again in a while.", Retry: 30, Level: Quiet}
	StoreUnavailable    = &Problem{Status: 503, Code: "store_unavailable", Title: "Temporarily unavailable", Detail: "New visitors cannot be taken right now. Your place in the queue is kept.", Retry: 5, Level: slog.LevelWarn}
	StreamsFull         = &Problem{Status: 503, Code: "streams_full", Title: "Too many event streams", Detail: "Poll the status instead, or try again.", Retry: 15, Level: Quiet}
	ShuttingDown        = &Problem{Status: 503, Code: "shutting_down", Title: "Restarting", Detail: "Try again; your place in the queue is kept.", Retry: 1, Level: Quiet, Close: true}
	SessionRequests     = &Problem{Status: 429, Code: "session_requests", Title: "Too many requests", Detail: "This session makes more requests than it may. It goes on; wait for as long as Retry-After says.", Retry: 1, Level: Quiet}
	PassNeeded          = &Problem{Status: 503, Code: "pass_needed", Title: "Waiting room", Detail: "This request needs a pass.", Retry: 10, Level: Quiet}
	TooManyPreflights   = &Problem{Status: 503, Code: "too_many_preflights", Title: "Too many preflights", Detail: "Scripts of other sites ask this room what they may send more often than it serves. Try again when Retry-After has passed.", Retry: 1, Level: Quiet}
	Prefetch            = &Problem{Status: 503, Code: "prefetch", Title: "Waiting room", Detail: "Prefetches are not served while people wait.", Retry: 10, Level: Quiet}
	Internal            = &Problem{Status: 500, Code: "internal", Title: "Something broke", Detail: "It was not your request; it has been logged.", Level: slog.LevelError}
	NoOrigin            = &Problem{Status: 502, Code: "no_origin", Title: "Nothing to show", Detail: "No origin is configured for this request.", Level: slog.LevelError}
)

// Failures of origins, and of requests on the way to them.
var (
	OriginUnreachable    = &Problem{Status: 502, Code: "origin_unreachable", Title: "The site cannot be reached", Detail: "No connection to the site behind this page could be made. Try again in a moment.", Level: slog.LevelWarn}
	OriginConnectTimeout = &Problem{Status: 504, Code: "origin_connect_timeout", Title: "The site cannot be reached", Detail: "No connection to the site behind this page could be made in time. Try again in a moment.", Level: slog.LevelWarn}
	OriginTLS            = &Problem{Status: 502, Code: "origin_tls", Title: "The site cannot be reached", Detail: "No secure connection to the site behind this page could be made.", Level: slog.LevelWarn}
	OriginClosed         = &Problem{Status: 502, Code: "origin_closed", Title: "The site broke off", Detail: "The site behind this page ended the connection without an answer. Whether it took the request is not known.", Level: slog.LevelWarn}
	OriginBadAnswer      = &Problem{Status: 502, Code: "origin_bad_answer", Title: "The site's answer is not understood", Detail: "The site behind this page gave an answer that may not be passed on.", Level: slog.LevelWarn}
	GatewayTimeout       = &Problem{Status: 504, Code: "gateway_timeout", Title: "The site takes too long", Detail: "The site behind this page did not answer in time. Whether it took the request is not known.", Level: slog.LevelWarn}
	OriginBusy           = &Problem{Status: 503, Code: "origin_busy", Title: "The site is busy", Detail: "All connections to the site are in use.", Retry: 1, Level: slog.LevelWarn}
	RequestTimeout       = &Problem{Status: 408, Code: "request_timeout", Title: "The request took too long", Detail: "Its body did not arrive in time.", Level: Quiet, Close: true}
	BadRequest           = &Problem{Status: 400, Code: "bad_request", Title: "The request is malformed", Detail: "Its body's framing is broken.", Level: Quiet, Close: true}
	ContentTooLarge      = &Problem{Status: 413, Code: "content_too_large", Title: "The request is too large", Detail: "Its body is larger than the site takes.", Level: Quiet}
)

// OriginShare is OriginBusy for a client that has its share of the connections while the origin is well.
var OriginShare = &Problem{Status: 503, Code: OriginBusy.Code, Title: OriginBusy.Title, Detail: "Too many requests of this client are under way. Try again when some have been answered.", Retry: 1, Level: Quiet}

// Problems returns the table, for the description of the API.
func Problems() []*Problem {
	return []*Problem{
		UnknownHost, AmbiguousPath, UnknownRoom, UnknownPath, NoDraw, MethodNotAllowed,
		TokenMissing, TokenInvalid, TokenBound, AccountRequired, AccountsUnavailable, TokenAccount,
		AccountSpent, SessionRequests, CrossSite, BodyTooLarge, BodyBroken, InvalidBody,
		IdempotencyKey, IdempotencyKeySpent, NotAdmitted, Lapsed, Claimed, Ended,
		Expired, RoomClosed, ProofRequired, ProofInvalid, ProofExpired, ProofSpent,
		CaptchaRequired, CaptchaFailed, CaptchaUnavailable, NoChallenge, RoomDraining, TooManyJoins,
		RoomFull, StoreUnavailable, StreamsFull, ShuttingDown, PassNeeded, TooManyPreflights,
		Prefetch, Internal, NoOrigin, OriginUnreachable, OriginConnectTimeout, OriginTLS,
		OriginClosed, OriginBadAnswer, GatewayTimeout, OriginBusy, RequestTimeout, BadRequest,
		ContentTooLarge,
	}
}

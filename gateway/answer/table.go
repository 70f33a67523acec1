package answer

import "log/slog"

// Quiet is the level of problems that clients cause.
const Quiet = slog.LevelDebug

// The table of refusals and faults of the gateway.
var (
	UnknownHost         = &Problem{Status: 421, Code: "unknown_host", Title: "Unknown host", Detail: "This gateway has no room for this host. Check the URL.", Level: Quiet}
	AmbiguousPath       = &Problem{Status: 400, Code: "ambiguous_path", Title: "The path can be read in several ways", Detail: "Servers read this path in several ways, and these lead to different rooms. Send the path without dot segments, empty segments, parameters and unneeded escapes.", Level: Quiet}
	CheckRefused        = &Problem{Status: 403, Code: "check_refused", Title: "The check is refused", Detail: "The check does not describe a request as check.dialect requires.", Level: slog.LevelWarn}
	UnknownRoom         = &Problem{Status: 404, Code: "unknown_room", Title: "No such room", Detail: "This host has no room of this name. Check the room in the path.", Level: Quiet}
	UnknownPath         = &Problem{Status: 404, Code: "unknown_path", Title: "Not found", Detail: "The gateway has no resource at this path. Check the path.", Level: Quiet}
	NoDraw              = &Problem{Status: 404, Code: "no_draw", Title: "No draw", Detail: "This room has no lottery, so there is no draw to publish.", Level: Quiet}
	NoFacts             = &Problem{Status: 404, Code: "no_facts", Title: "No facts", Detail: "Nothing is published for those who wait in this room.", Level: Quiet}
	NoBoard             = &Problem{Status: 404, Code: "no_board", Title: "No board", Detail: "This room has no public board.", Level: Quiet}
	MethodNotAllowed    = &Problem{Status: 405, Code: "method_not_allowed", Title: "Method not allowed", Detail: "Use one of the methods in the Allow header.", Level: Quiet}
	TokenMissing        = &Problem{Status: 401, Code: "token_missing", Title: "A token is required", Detail: "Send the waiting token as a cookie, as Authorization: Bearer, or as X-Waiting-Room-Token. POST tickets returns a token.", Level: Quiet}
	TokenInvalid        = &Problem{Status: 401, Code: "token_invalid", Title: "The token is not valid", Detail: "This is not a valid waiting token of this room: it may be damaged, expired, or of another room. Join again with POST tickets.", Level: Quiet}
	TokenBound          = &Problem{Status: 401, Code: "token_bound", Title: "The token is bound to another client", Detail: "This token is bound to another network or browser. Join again with POST tickets.", Level: Quiet}
	AccountRequired     = &Problem{Status: 401, Code: "account_required", Title: "Please log in", Detail: "Each account has one place in this queue. Log in on the site, then return to this page.", Level: Quiet, Out: true}
	AccountsUnavailable = &Problem{Status: 503, Code: "accounts_unavailable", Title: "Temporarily unavailable", Detail: "Your login cannot be checked right now. Try again in a moment; an existing place in the queue is kept.", Retry: 5, Level: slog.LevelWarn, Out: true}
	TokenAccount        = &Problem{Status: 401, Code: "token_account", Title: "The token belongs to another account", Detail: "You are logged in with another account than the account of this token. Join again with POST tickets.", Level: Quiet}
	AccountSpent        = &Problem{Status: 429, Code: "account_spent", Title: "Too many places", Detail: "This account has given up too many places recently. Try again in 15 minutes.", Retry: 900, Level: Quiet, Out: true}
	CrossSite           = &Problem{Status: 403, Code: "cross_site", Title: "The request comes from another site", Detail: "Pages of other sites may not send this request. The operator can allow a site in cors_origins.", Level: Quiet}
	BodyTooLarge        = &Problem{Status: 413, Code: "body_too_large", Title: "The body is too large", Detail: "Send a body of at most 4096 bytes.", Level: Quiet, Close: true}
	BodyBroken          = &Problem{Status: 400, Code: "body_broken", Title: "The body is incomplete", Detail: "The body ended early, or its chunks are malformed. Send the request again.", Level: Quiet, Close: true}
	PassRequired        = &Problem{Status: 401, Code: "pass_required", Title: "A pass is required", Detail: "Send a valid pass of this room as a cookie or as X-Waiting-Room-Pass. Join with POST tickets, and claim the ticket when it is admitted.", Level: Quiet, Header: [2]string{"WWW-Authenticate", `Bearer realm="waiting-room"`}}
	PermitRequired      = &Problem{Status: 403, Code: "permit_required", Title: "This step needs a permit", Detail: "This address cannot be opened directly. Go back to the page that leads here, and continue from there.", Level: Quiet}
	PermitInvalid       = &Problem{Status: 403, Code: "permit_invalid", Title: "The permit is not valid here", Detail: "This address cannot be opened directly, and the permit for it is not valid. Go back to the page that leads here, and continue from there.", Level: Quiet}
	TooManyPermits      = &Problem{Status: 429, Code: "too_many_permits", Title: "Too many permits", Detail: "This session requests permits faster than the room issues them. Try again after Retry-After.", Retry: 1, Level: Quiet}
	InvalidBody         = &Problem{Status: 422, Code: "invalid_body", Title: "The body is not valid", Detail: "", Level: Quiet}
	IdempotencyKey      = &Problem{Status: 422, Code: "idempotency_key", Title: "The Idempotency-Key is not valid", Detail: "Send a key of 22 to 128 printable ASCII characters without spaces.", Level: Quiet}
	IdempotencyKeySpent = &Problem{Status: 409, Code: "idempotency_key_spent", Title: "The Idempotency-Key is used up", Detail: "Too many tickets of this key have ended. Use a new key.", Level: Quiet}
	NotAdmitted         = &Problem{Status: 409, Code: "not_admitted", Title: "Not admitted yet", Detail: "This ticket is still waiting. Poll its status, and claim when the state is admitted.", Level: Quiet}
	Lapsed              = &Problem{Status: 410, Code: "lapsed", Title: "The ticket has lapsed", Detail: "This ticket was admitted, but not claimed in time. Join again.", Level: Quiet}
	Claimed             = &Problem{Status: 410, Code: "claimed", Title: "Already claimed", Detail: "Another client has claimed this ticket. Join again.", Level: Quiet}
	Ended               = &Problem{Status: 410, Code: "ended", Title: "The ticket has ended", Detail: "This ticket is no longer valid. Join again.", Level: Quiet}
	Expired             = &Problem{Status: 410, Code: "expired", Title: "The ticket has expired", Detail: "This ticket was not polled for too long, or an operator ended it. Join again.", Level: Quiet}
	RoomClosed          = &Problem{Status: 503, Code: "room_closed", Title: "Closed", Detail: "This room admits nobody at the moment. Try again after Retry-After.", Retry: 30, Level: Quiet, Out: true}
	RoomSoldOut         = &Problem{Status: 503, Code: "room_sold_out", Title: "Sold out", Detail: "Everything is sold out, and this room admits nobody at the moment. It opens again if something becomes available.", Retry: 30, Level: Quiet, Out: true}
	RoomDraining        = &Problem{Status: 503, Code: "room_draining", Title: "No new visitors", Detail: "This room accepts no new visitors at the moment. Visitors in the queue are still admitted.", Retry: 30, Level: Quiet, Out: true}
	TooManyJoins        = &Problem{Status: 429, Code: "too_many_joins", Title: "Too many places", Detail: "Too many tickets were taken from this address or its network. Existing tickets stay valid. Try again after Retry-After.", Retry: 30, Level: Quiet, Out: true}
	ProofRequired       = &Problem{Status: 428, Code: "proof_required", Title: "A proof of work is required", Detail: "GET the challenge, solve it, and POST tickets with the solution as altcha.", Level: Quiet, Out: true}
	ProofInvalid        = &Problem{Status: 422, Code: "proof_invalid", Title: "The proof is not valid", Detail: "This is no correct solution of a challenge of this room. GET a new challenge and solve it.", Level: Quiet}
	ProofExpired        = &Problem{Status: 422, Code: "proof_expired", Title: "The proof has expired", Detail: "The time for this challenge is over. GET a new challenge and solve it before the time expires in its salt.", Level: Quiet}
	ProofSpent          = &Problem{Status: 409, Code: "proof_spent", Title: "The proof is already used", Detail: "The ticket of this proof has ended, and each proof is valid for one ticket. GET a new challenge and solve it.", Level: Quiet}
	CaptchaRequired     = &Problem{Status: 428, Code: "captcha_required", Title: "A CAPTCHA is required", Detail: "GET the challenge, which has the provider and the site key, and POST tickets with the solution as captcha.", Level: Quiet, Out: true}
	CaptchaFailed       = &Problem{Status: 422, Code: "captcha_failed", Title: "The CAPTCHA's solution is not valid", Detail: "The provider rejected the solution. Solve another CAPTCHA.", Level: Quiet}
	CaptchaUnavailable  = &Problem{Status: 503, Code: "captcha_unavailable", Title: "The CAPTCHA cannot be checked", Detail: "The solution of the CAPTCHA cannot be checked with its provider right now. Try again in a moment.", Retry: 5, Level: slog.LevelWarn, Out: true}
	NoChallenge         = &Problem{Status: 404, Code: "no_challenge", Title: "No challenge", Detail: "This room requires no challenge. Join with POST tickets.", Level: Quiet}
	RoomFull            = &Problem{Status: 503, Code: "room_full", Title: "The queue is full", Detail: "The queue of this room has reached its limit. Try again after Retry-After.", Retry: 30, Level: Quiet, Out: true}
	StoreUnavailable    = &Problem{Status: 503, Code: "store_unavailable", Title: "Temporarily unavailable", Detail: "New visitors cannot join right now. Try again in a moment; an existing place in the queue is kept.", Retry: 5, Level: slog.LevelWarn, Out: true}
	StreamsFull         = &Problem{Status: 503, Code: "streams_full", Title: "Too many event streams", Detail: "The gateway has no capacity for another event stream. Poll the status, or try again after Retry-After.", Retry: 15, Level: Quiet}
	ShuttingDown        = &Problem{Status: 503, Code: "shutting_down", Title: "Restarting", Detail: "The gateway is restarting. Try again; your place in the queue is kept.", Retry: 1, Level: Quiet, Close: true, Out: true}
	SessionRequests     = &Problem{Status: 429, Code: "session_requests", Title: "Too many requests", Detail: "This session has reached its limit of requests. The session stays valid. Wait for the time in Retry-After, then try again.", Retry: 1, Level: Quiet}
	PassNeeded          = &Problem{Status: 503, Code: "pass_needed", Title: "Waiting room", Detail: "This request requires a pass. Open a page of the site in a browser, or join with POST tickets.", Retry: 10, Level: Quiet, Out: true}
	TooManyPreflights   = &Problem{Status: 503, Code: "too_many_preflights", Title: "Too many preflights", Detail: "This room receives more CORS preflights than it serves. Try again after Retry-After.", Retry: 1, Level: Quiet}
	Prefetch            = &Problem{Status: 503, Code: "prefetch", Title: "Waiting room", Detail: "Prefetches are not served while visitors wait. Request the page without prefetching.", Retry: 10, Level: Quiet}
	Internal            = &Problem{Status: 500, Code: "internal", Title: "Internal error", Detail: "The gateway failed and has logged the error. Try again in a moment.", Level: slog.LevelError}
	NoOrigin            = &Problem{Status: 502, Code: "no_origin", Title: "No origin", Detail: "No origin is configured for this request. The operator has to configure an origin or a room.", Level: slog.LevelError}
)

// Failures of origins, and of requests on the way to them.
var (
	OriginUnreachable    = &Problem{Status: 502, Code: "origin_unreachable", Title: "The site cannot be reached", Detail: "No connection to the site behind this page could be made. Try again in a moment.", Level: slog.LevelWarn}
	OriginConnectTimeout = &Problem{Status: 504, Code: "origin_connect_timeout", Title: "The site cannot be reached", Detail: "No connection to the site behind this page could be made in time. Try again in a moment.", Level: slog.LevelWarn}
	OriginTLS            = &Problem{Status: 502, Code: "origin_tls", Title: "The site cannot be reached", Detail: "The TLS connection to the site behind this page failed. Try again in a moment; the operator finds the reason in the gateway's log.", Level: slog.LevelWarn}
	OriginClosed         = &Problem{Status: 502, Code: "origin_closed", Title: "The site closed the connection", Detail: "The site behind this page closed the connection without a response. The site may have processed the request: check before you send it again.", Level: slog.LevelWarn}
	OriginBadAnswer      = &Problem{Status: 502, Code: "origin_bad_answer", Title: "The site's response is not valid", Detail: "The site behind this page sent a malformed response. Try again in a moment; the operator finds the reason in the gateway's log.", Level: slog.LevelWarn}
	GatewayTimeout       = &Problem{Status: 504, Code: "gateway_timeout", Title: "The site takes too long", Detail: "The site behind this page did not respond in time. The site may have processed the request: check before you send it again.", Level: slog.LevelWarn}
	OriginBusy           = &Problem{Status: 503, Code: "origin_busy", Title: "The site is busy", Detail: "All connections to the site are in use. Try again in a moment.", Retry: 1, Level: slog.LevelWarn}
	RequestTimeout       = &Problem{Status: 408, Code: "request_timeout", Title: "The request took too long", Detail: "The body did not arrive in time. Send the request again.", Level: Quiet, Close: true}
	BadRequest           = &Problem{Status: 400, Code: "bad_request", Title: "The request is malformed", Detail: "The framing of the body is malformed. Check Content-Length and the chunks.", Level: Quiet, Close: true}
	ContentTooLarge      = &Problem{Status: 413, Code: "content_too_large", Title: "The request is too large", Detail: "The body is larger than this site accepts. Send a smaller body.", Level: Quiet}
)

// OriginShare is OriginBusy for a client that uses its share of the connections to a healthy origin.
var OriginShare = &Problem{Status: 503, Code: OriginBusy.Code, Title: OriginBusy.Title, Detail: "Too many requests of this client are in progress. Try again when some of them have completed.", Retry: 1, Level: Quiet}

// Problems returns the table, for the description of the API.
func Problems() []*Problem {
	return []*Problem{
		UnknownHost, AmbiguousPath, CheckRefused, UnknownRoom, UnknownPath, NoDraw, NoFacts, NoBoard, MethodNotAllowed,
		TokenMissing, TokenInvalid, TokenBound, AccountRequired, AccountsUnavailable, TokenAccount,
		AccountSpent, SessionRequests, CrossSite, BodyTooLarge, BodyBroken, InvalidBody,
		PassRequired, PermitRequired, PermitInvalid, TooManyPermits,
		IdempotencyKey, IdempotencyKeySpent, NotAdmitted, Lapsed, Claimed, Ended,
		Expired, RoomClosed, RoomSoldOut, ProofRequired, ProofInvalid, ProofExpired, ProofSpent,
		CaptchaRequired, CaptchaFailed, CaptchaUnavailable, NoChallenge, RoomDraining, TooManyJoins,
		RoomFull, StoreUnavailable, StreamsFull, ShuttingDown, PassNeeded, TooManyPreflights,
		Prefetch, Internal, NoOrigin, OriginUnreachable, OriginConnectTimeout, OriginTLS,
		OriginClosed, OriginBadAnswer, GatewayTimeout, OriginBusy, RequestTimeout, BadRequest,
		ContentTooLarge,
	}
}

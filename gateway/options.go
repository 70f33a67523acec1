package gateway

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/accesslog"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/meter"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/internal/certs"
	"github.com/anteroom/anteroom/internal/tracing"
	"github.com/anteroom/anteroom/token"
)

// Options are the options of a Gateway. Core, Ring, IDKey and at least one origin are required. Reload changes all of them but Log,
// Version, Core, Registerer, Limits, MaxStreams, LastRequest and whether there is TLS at all.
type Options struct {
	Log        *slog.Logger
	Version    string // for build_info
	Core       *admission.Core
	Registerer prometheus.Registerer // nil: metrics are kept and not shown
	Limits     wire.Limits
	MaxStreams int // event streams at once; 0: 15/16 of the file descriptors, at most 50000
	// StreamsPerAddress is the highest number of event streams of one client address; 0: no limit.
	StreamsPerAddress int
	Shares            proxy.Shares // of each client, of each origin's connections
	// LastRequest is the time for which Shutdown keeps idle connections open for one more request; 0: none.
	LastRequest time.Duration

	Ring  *token.Ring
	IDKey []byte // of the HMAC that derives ids from idempotency keys; the same on every gateway; at least 32 bytes
	// AccountKeys are the keys that derive ids from accounts. New tickets use the first key; tickets of the other keys are found.
	// Empty: IDKey.
	AccountKeys    [][]byte
	Bind           string // BindNone, BindIP, BindUA
	SameSite       string // client.SameSiteLax, …
	TrustedProxies []netip.Prefix
	// TrustedHeader is the only header from which the visitor's address is read, from trusted proxies; empty: X-Forwarded-For.
	TrustedHeader string
	ProxyProtocol wire.ProxyProtocol // the header that connections from TrustedProxies begin with
	TLS           certs.Files        // of the visitors' socket; the zero value is plain HTTP
	Access        Access
	Tracer        *tracing.Tracer // nil: nothing is traced
	Origins       []proxy.Config
	DefaultOrigin string // an origin's id; empty: the first
	Check         Check  // of other proxies
	Rooms         []Room
}

// The bindings of tokens.
const (
	BindNone = client.BindNone
	BindIP   = client.BindIP
	BindUA   = client.BindUA
)

// Bypass is a rule for requests that need no pass.
type Bypass = route.BypassRule

// Step is a rule for requests that need a permit.
type Step = route.StepRule

// Access are the options of the access log.
type Access = accesslog.Options

// Room is one protected flow.
type Room struct {
	ID           string
	Hosts        []string // exact, *.example.com, *; empty: *
	Paths        []string // prefixes, ~regular expressions; empty: /
	Origin       string   // an origin's id; empty: the default
	Policy       admission.Policy
	PollBudget   int  // polls per second of all waiting visitors; 0: no limit
	Renew        bool // passes are renewed past half their life; with Policy.PassLife they are not
	MaxSession   time.Duration
	Bypass       []route.BypassRule
	Permits      []route.StepRule // the steps that a session may only take with a permit
	Alarms       []admission.Alarm
	CORSOrigins  []string
	Page         page.Options // Room and Absence are filled in
	Board        string       // board.Off, board.On, board.Delayed; empty: off
	PageStatus   int          // of the page; 0: 200
	Compat       string       // CompatNone, CompatCloudflare
	CompatStatus int          // of JSON responses to API clients that wait; 0: 202, 503 for methods other than GET and HEAD
	Estimator    string       // of package eta; empty: window
	Guard        Guard
	ETA          eta.Options // of the estimator
	// LearnWeights makes an hourly estimator use observed weights as soon as there are any.
	LearnWeights bool
	Identity     Identity
	// SessionRequests is the quota of requests of one session, over all gateways.
	SessionRequests meter.Quota
	// SessionPermits is the quota of permits of one session, over all gateways.
	SessionPermits meter.Quota
}

// Identity describes where a request names its account, and whether an account has one ticket. The zero value: there are no accounts.
type Identity struct {
	OnePlace  bool
	Header    string // that trusted proxies set; from others it is neither read nor forwarded
	JWKSURL   string // keys of the site's own JWTs; empty: JWTs are not read
	JWTCookie string // cookie with a JWT; empty: only Authorization
	JWT       token.AccountRules
	LoginURL  string // link of the page for visitors without an account; empty: none
	Anonymous bool   // visitors without an account get tickets of their own
}

// Guard describes the proof of work and the CAPTCHA before a join.
type Guard struct {
	Proof   string       // ProofNone, …; empty: none
	Effort  guard.Effort // of a proof
	Captcha guard.Captcha
}

// When a proof of work is required.
const (
	ProofNone   = "none"
	ProofAuto   = "auto" // while there is a queue, or many join
	ProofAlways = "always"
	// ProofHardest is set live only: always, with the most tries at any join rate.
	ProofHardest = "hardest"
)

// Additions to the JSON for clients of another product.
const (
	CompatNone       = "none"
	CompatCloudflare = "cloudflare"
)

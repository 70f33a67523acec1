package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/gateway/console/signin"
	"github.com/anteroom/anteroom/gateway/permit"
	"github.com/anteroom/anteroom/internal/ophttp"
	"github.com/anteroom/anteroom/internal/tracing"
)

// storeTimeout bounds an operator's call. It is longer than a visitor's: an operator prefers a late result to none.
const storeTimeout = 5 * time.Second

// Room is a room with its configuration.
type Room struct {
	Queue  *admission.Room
	File   admission.Policy // as configured, without live changes
	Origin string           // id of its origin

	// Wait returns the expected wait of a visitor who joins now. May be nil.
	Wait func() eta.Estimate
	// WaitError returns the median of recent announced / real waits (1: right, 2: announced twice the real wait);
	// false while unknown. May be nil.
	WaitError func() (float64, bool)
	// WaitCoverage returns the share of recent waits within the announced range; false while unknown. May be nil.
	WaitCoverage func() (float64, bool)
	// Simulate returns the future of the queue as it is and with a change of its plan; false where it is not known. May be nil.
	Simulate func(change Change) (now, with eta.Outcome, ok bool)
	// Guard returns the cost of joining and the refused joins; false if joining is free. May be nil.
	Guard func() (Guard, bool)
	Page  VisitorsPage // may be nil
	// Clients returns the tickets and sessions that were used from an address of a prefix, the newest first, at most limit, and the number
	// of all that this gateway remembers. May be nil.
	Clients func(prefix netip.Prefix, limit int) (newest []Client, all int)
	// Levels are the levels of the challenge that can be set live.
	Levels []string
	// Account returns the ids that places of an account have; none in a room without accounts. May be nil.
	Account func(name string) []admission.ID
}

// VisitorsPage renders the page of a room's visitors; see gateway/page.
type VisitorsPage interface {
	Previews() (states, languages []string)
	Preview(state, language, message string) (body []byte, policy string, ok bool)
}

// Client is the last use of a ticket or session.
type Client struct {
	ID      admission.ID
	Address netip.Addr
	At      int64 // Redis's clock, µs
}

// Change is a change of a room's admissions to be simulated; nil leaves a value as it is.
type Change struct {
	Rate      *float64 // visitors a second
	MaxActive *int64
	Paused    *bool
}

// Guard is the cost of joining. Totals are this gateway's, since its start.
type Guard struct {
	Number  int64            // most tries of a proof of work now; 0: none is required
	Proofs  int64            // accepted
	Refused map[string]int64 // refused joins by reason
}

// Roles of tokens from before roles had rooms.
const (
	Read  = access.Viewer
	Write = access.Admin
)

// Token admits an operator.
type Token struct {
	Name  string // for the audit log
	Token string
	Role  access.Role
	Rooms []string // empty: all
}

// People are the options of operators as persons.
type People struct {
	SignIn    *signin.SignIn // signs in those without a token; nil: nobody
	TwoPerson []string       // actions that a second person has to confirm
}

// Measures are the figures that /metrics serves, and the traces of requests.
type Measures struct {
	Registry prometheus.Gatherer
	Tracer   func() *tracing.Tracer // may return nil; nil: no request is traced
}

// Options of a Console. Core, Listen, Rooms, Registry and Ready are required.
type Options struct {
	Core *admission.Core // for the audit log
	// Listen is the address that the handler is served on. Without tokens it must be loopback.
	Listen string
	Tokens []Token
	People

	Rooms func() []Room // in the order of the configuration
	// Redeem redeems a permit; see gateway/permit for its errors. key names the request, so that a repetition has the same result; empty:
	// a repetition is refused. A permit of a room for which in returns false is invalid. nil: no permits are redeemed.
	Redeem func(ctx context.Context, raw, key string, in func(room string) bool) (permit.Redemption, error)
	// OriginStats returns an origin's p95 time to first byte in seconds and its share of errors, 0 to 1, over the
	// last window. May be nil.
	OriginStats func(origin string) (p95, errorRate float64)

	// Webhooks returns the state of the webhooks with up to dead events that were given up. May be nil.
	Webhooks func(ctx context.Context, dead int) (Webhooks, error)
	Insight  Insight

	Measures
	Ready  func() bool  // the visitors' listener accepts, and no SIGTERM was received
	Health func() error // an error means that the process must be restarted; may be nil

	Log *slog.Logger     // nil: discarded
	Now func() time.Time // nil: time.Now

	Idle time.Duration // the longest pause inside a body or a response; 0: 10 s
}

// Console is the operators' side of a gateway. It starts no goroutines.
type Console struct {
	o     Options
	guard *ophttp.Guard[*access.Person]
	page  page
	log   *slog.Logger
	mux   *ophttp.Mux[*access.Person]
	// actions are the routes that a second person can confirm, by action.
	actions map[string]route

	frames frames
}

// New checks the options. Its error names the setting and how to correct it.
func New(o Options) (*Console, error) {
	if o.Core == nil || o.Rooms == nil || o.Registry == nil || o.Ready == nil {
		return nil, errors.New("console: Core, Rooms, Registry and Ready are required")
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Idle = cmp.Or(o.Idle, 10*time.Second)
	p, err := newPage()
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c := &Console{o: o, page: p, log: o.Log, guard: ophttp.NewGuard(&local, "admin.token or admin.tokens", o.Now, o.Log)}
	if err := c.SetTokens(o.Tokens); err != nil {
		return nil, err
	}
	if o.SignIn != nil {
		c.guard.RequireToken()
	}
	c.mux = c.newMux()
	c.serve(c.routes())
	return c, nil
}

// newMux returns a router without routes.
func (c *Console) newMux() *ophttp.Mux[*access.Person] {
	return ophttp.NewMux(ophttp.MuxOptions[*access.Person]{
		Admit: c.admit, CheckHost: c.guard.CheckHost, Problem: asProblem, NoPath: "nothing is served at this path", Idle: c.o.Idle, Log: c.o.Log,
	})
}

// Handler serves all paths of admin.listen. A body or a response may not pause for longer than Options.Idle, even before
// authentication. The server should have ReadHeaderTimeout and IdleTimeout, and no WriteTimeout, which
// would end profiles.
func (c *Console) Handler() http.Handler { return c.mux }

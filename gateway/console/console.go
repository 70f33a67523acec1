package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/gateway/permit"
	"github.com/anteroom/anteroom/internal/ophttp"
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
	// Guard returns the cost of joining and the refused joins; false if joining is free. May be nil.
	Guard func() (Guard, bool)
}

// Guard is the cost of joining. Totals are this gateway's, since its start.
type Guard struct {
	Number  int64            // most tries of a proof of work now; 0: none is required
	Proofs  int64            // accepted
	Refused map[string]int64 // refused joins by reason
}

// Role is the set of requests that a token may send.
type Role string

// Roles.
const (
	Read  Role = "read"
	Write Role = "write" // includes reading
)

// Token admits an operator.
type Token struct {
	Name  string // for the audit log
	Token string
	Role  Role
}

// Options of a Console. Core, Listen, Rooms, Registry and Ready are required.
type Options struct {
	Core *admission.Core // for the audit log
	// Listen is the address that the handler is served on. Without tokens it must be loopback.
	Listen string
	Tokens []Token

	Rooms func() []Room // in the order of the configuration
	// Redeem redeems a permit; see gateway/permit for its errors. key names the request, so that a repetition has the same result; empty:
	// a repetition is refused. nil: no permits are redeemed.
	Redeem func(ctx context.Context, raw, key string) (permit.Redemption, error)
	// OriginStats returns an origin's p95 time to first byte in seconds and its share of errors, 0 to 1, over the
	// last window. May be nil.
	OriginStats func(origin string) (p95, errorRate float64)

	Registry prometheus.Gatherer
	Ready    func() bool  // the visitors' listener accepts, and no SIGTERM was received
	Health   func() error // an error means that the process must be restarted; may be nil

	Log *slog.Logger     // nil: discarded
	Now func() time.Time // nil: time.Now

	Idle time.Duration // the longest pause inside a body or a response; 0: 10 s
}

// Console is the operators' side of a gateway. It starts no goroutines.
type Console struct {
	o     Options
	guard *ophttp.Guard[identity]
	page  page
	log   *slog.Logger
	mux   *ophttp.Mux[identity]
}

// New checks the options. Its error names the setting and how to correct it.
func New(o Options) (*Console, error) {
	if o.Core == nil || o.Rooms == nil || o.Registry == nil || o.Ready == nil {
		return nil, errors.New("console: Core, Rooms, Registry and Ready are required")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Idle = cmp.Or(o.Idle, 10*time.Second)
	p, err := newPage()
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c := &Console{o: o, page: p, log: o.Log, guard: ophttp.NewGuard(identity{localName, Write}, "admin.token or admin.tokens", o.Now, o.Log)}
	if err := c.SetTokens(o.Tokens); err != nil {
		return nil, err
	}
	c.mux = ophttp.NewMux(ophttp.MuxOptions[identity]{
		Admit: c.admit, CheckHost: c.guard.CheckHost, Problem: asProblem, NoPath: "nothing is served at this path", Idle: o.Idle, Log: o.Log,
	})
	c.routes()
	return c, nil
}

// Handler serves all paths of admin.listen. A body or a response may not pause for longer than Options.Idle, even before
// authentication. The server should have ReadHeaderTimeout and IdleTimeout, and no WriteTimeout, which
// would end profiles.
func (c *Console) Handler() http.Handler { return c.mux }

// identity is the holder of a token.
type identity struct {
	name string
	role Role
}

type (
	handler = ophttp.Handler[identity]
	methods = ophttp.Methods[identity]
)

func (c *Console) routes() {
	c.mux.Public("/metrics", ophttp.Metrics(c.o.Registry, c.log))
	c.mux.Probes(c.o.Health, c.o.Ready)
	c.mux.Public("/{$}", c.page)

	guarded := c.mux.Guarded
	guarded("/admin/v1/rooms", methods{"GET": c.listRooms})
	guarded("/admin/v1/rooms/{id}", methods{"GET": c.inRoom(c.showRoom), "PATCH": c.inRoom(c.patchRoom)})
	guarded("/admin/v1/rooms/{id}/pause", methods{"POST": c.inRoom(c.pause)})
	guarded("/admin/v1/rooms/{id}/resume", methods{"POST": c.inRoom(c.resume)})
	guarded("/admin/v1/rooms/{id}/drain", methods{"POST": c.inRoom(c.drain)})
	guarded("/admin/v1/rooms/{id}/reset", methods{"POST": c.inRoom(c.reset)})
	guarded("/admin/v1/rooms/{id}/history", methods{"GET": c.inRoom(c.history)})
	guarded("/admin/v1/rooms/{id}/facts", methods{"GET": c.inRoom(c.showFacts), "PUT": c.inRoom(c.putFacts)})
	guarded("/admin/v1/rooms/{id}/notices", methods{"GET": c.inRoom(c.listNotices)})
	guarded("/admin/v1/rooms/{id}/notices/{notice}", methods{
		"GET": c.inRoom(c.showNotice), "PUT": c.inRoom(c.putNotice), "DELETE": c.inRoom(c.removeNotice),
	})
	guarded("/admin/v1/rooms/{id}/tickets/{jti}", methods{"GET": c.inRoom(c.showTicket), "DELETE": c.inRoom(c.removeTicket)})
	guarded("/admin/v1/rooms/{id}/sessions/{sid}/revoke", methods{"POST": c.inRoom(c.revokeSession)})
	if c.o.Redeem != nil {
		guarded("/admin/v1/permits/redeem", methods{"POST": c.redeemPermit})
	}
	guarded("/admin/v1/audit", methods{"GET": c.audit})
	guarded("/admin/", nil)

	profile := func(path string, h http.HandlerFunc) {
		serve := func(w http.ResponseWriter, r *http.Request, _ identity) error {
			seconds, err := strconv.ParseFloat(cmp.Or(r.FormValue("seconds"), "0"), 64)
			if err != nil || !(seconds <= longestProfile) {
				return ophttp.NewProblem(http.StatusUnprocessableEntity, "invalid", "seconds is at most %d; repeat the request to profile for longer", longestProfile)
			}
			h(w, r)
			return nil
		}
		guarded(path, methods{"GET": serve})
	}
	profile("/debug/pprof/", pprof.Index)
	profile("/debug/pprof/cmdline", pprof.Cmdline)
	profile("/debug/pprof/profile", pprof.Profile)
	profile("/debug/pprof/trace", pprof.Trace)
	// pprof's symbol lookup is a POST that changes nothing.
	symbol := func(w http.ResponseWriter, r *http.Request, _ identity) error { pprof.Symbol(w, r); return nil }
	guarded("/debug/pprof/symbol", methods{"GET": symbol, "POST": symbol})
}

// longestProfile is the most seconds of a profile or trace in one request.
const longestProfile = 60

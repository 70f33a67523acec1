package console

import (
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
	"github.com/anteroom/anteroom/internal/ophttp"
)

// storeTimeout bounds one operator's call. It is longer than a visitor's: an
// operator would rather wait than not know.
const storeTimeout = 5 * time.Second

// Room is a line with what the configuration says of it.
type Room struct {
	Line   *admission.Room
	File   admission.Policy // the configuration's, without live changes
	Origin string           // id of its origin

	// Wait forecasts how long somebody who joins now would wait. May be nil.
	Wait func() eta.Estimate
	// WaitError is the median of promised / real waits of late (1: right, 2: promised
	// twice what it took); false while unknown. May be nil.
	WaitError func() (float64, bool)
	// WaitCoverage is the share of late waits that lay within the promised range; false
	// while unknown. May be nil.
	WaitCoverage func() (float64, bool)
	// Guard is what joining costs, and who was refused; false where a place costs nothing. May be nil.
	Guard func() (Guard, bool)
}

// Guard is what stands before a place. Totals are this gateway's, since it started.
type Guard struct {
	Number  int64            // tries that a proof of work takes at most now; 0: none is asked for
	Proofs  int64            // accepted
	Refused map[string]int64 // joins that were given no place, by reason; those that there were
}

// Role says what a token may do.
type Role string

// Roles.
const (
	Read  Role = "read"
	Write Role = "write" // includes reading
)

// Token lets an operator in.
type Token struct {
	Name  string // goes to the audit log
	Token string
	Role  Role
}

// Options of a Console. Core, Listen, Rooms, Registry and Ready are required.
type Options struct {
	Core *admission.Core // for the audit log
	// Listen is the address that the handler will be served on. Without
	// tokens it has to be loopback.
	Listen string
	Tokens []Token

	Rooms func() []Room // in the order of the configuration
	// OriginStats gives an origin's p95 time to first byte in seconds and its
	// share of errors, 0 to 1, over the last window. May be nil.
	OriginStats func(origin string) (p95, errorRate float64)

	Registry prometheus.Gatherer
	Ready    func() bool  // the visitors' socket accepts, and no SIGTERM yet
	Health   func() error // the process is beyond help; may be nil

	Log *slog.Logger     // nil: discarded
	Now func() time.Time // nil: time.Now

	Idle time.Duration // how long a request's body, or an answer, may stand still; 0: 10 s
}

// Console is the operators' side of a gateway. It runs nothing of its own.
type Console struct {
	o     Options
	guard *ophttp.Guard[identity]
	page  page
	log   *slog.Logger
	mux   *ophttp.Mux[identity]
}

// New checks the options. An error names the setting and the way out.
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
	if o.Idle == 0 {
		o.Idle = 10 * time.Second
	}
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

// Handler serves everything on admin.listen. A body or the reader of an answer may not stand still for longer than Options.Idle, also before it
// is known who asks. The server should have ReadHeaderTimeout and IdleTimeout, and no WriteTimeout, which would cut profiles.
func (c *Console) Handler() http.Handler { return c.mux }

// identity is who asks.
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
	guarded("/admin/v1/rooms/{id}/tickets/{jti}", methods{"GET": c.inRoom(c.showTicket), "DELETE": c.inRoom(c.removeTicket)})
	guarded("/admin/v1/rooms/{id}/sessions/{sid}/revoke", methods{"POST": c.inRoom(c.revokeSession)})
	guarded("/admin/v1/audit", methods{"GET": c.audit})
	guarded("/admin/", nil)

	profile := func(path string, h http.HandlerFunc) {
		serve := func(w http.ResponseWriter, r *http.Request, _ identity) error {
			if p := profileTooLong(r); p != nil {
				return p
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

// longestProfile is the highest number of seconds that one request may have the program profiled or traced.
const longestProfile = 60

// profileTooLong returns the problem of a request for a longer profile, nil for all others.
func profileTooLong(r *http.Request) *ophttp.Problem {
	asked := r.FormValue("seconds")
	if asked == "" {
		return nil
	}
	if seconds, err := strconv.ParseFloat(asked, 64); err != nil || !(seconds <= longestProfile) {
		return ophttp.NewProblem(http.StatusUnprocessableEntity, "invalid", "seconds is at most %d; repeat the request to profile for longer", longestProfile)
	}
	return nil
}

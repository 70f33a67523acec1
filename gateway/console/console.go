package console

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/internal/operators"
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
	guard *guard
	page  page
	log   *slog.Logger
	mux   *http.ServeMux
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
	g, err := newGuard(o)
	if err != nil {
		return nil, err
	}
	p, err := newPage()
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c := &Console{o: o, guard: g, page: p, log: o.Log, mux: http.NewServeMux()}
	c.routes()
	return c, nil
}

// Handler serves everything on admin.listen. A body or the reader of an answer may not stand still for longer than Options.Idle, also before it
// is known who asks. The server should have ReadHeaderTimeout and IdleTimeout, and no WriteTimeout, which would cut profiles.
func (c *Console) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mux.ServeHTTP(operators.Flowing(w, c.o.Idle), operators.Moving(w, r, c.o.Idle))
	})
}

// SetTokens replaces the tokens while requests are served; an error names what
// is wrong, and the old ones stay.
func (c *Console) SetTokens(tokens []Token) error { return c.guard.setTokens(tokens) }

// identity is who asks.
type identity struct {
	name string
	role Role
}

// handler answers a request or says what went wrong; answer turns that into a
// problem.
type handler func(w http.ResponseWriter, r *http.Request, who identity) error

// methods maps request methods to handlers; HEAD goes where GET goes.
type methods map[string]handler

func (c *Console) routes() {
	open := func(path string, h http.Handler) {
		c.mux.Handle(path, c.public(h))
	}
	open("/metrics", promhttp.HandlerFor(c.o.Registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelError),
	}))
	open("/healthz", http.HandlerFunc(c.healthz))
	open("/readyz", http.HandlerFunc(c.readyz))
	open("/{$}", c.page)

	guarded := func(path string, m methods) { c.mux.Handle(path, c.guarded(m)) }
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

	c.mux.Handle("/", c.public(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.answer(w, r, notFound("nothing is served at this path"))
	})))
}

// longestProfile is the highest number of seconds that one request may have the program profiled or traced.
const longestProfile = 60

// profileTooLong returns the problem of a request for a longer profile, nil for all others.
func profileTooLong(r *http.Request) *problem {
	asked := r.FormValue("seconds")
	if asked == "" {
		return nil
	}
	if seconds, err := strconv.ParseFloat(asked, 64); err != nil || !(seconds <= longestProfile) {
		return newProblem(http.StatusUnprocessableEntity, "invalid", "seconds is at most "+strconv.Itoa(longestProfile)+"; ask again for a longer time")
	}
	return nil
}

// public serves what needs no token.
func (c *Console) public(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		harden(w.Header())
		if err := c.guard.named(r); err != nil && r.Host != "" { // a probe by HTTP/1.0 is no browser
			c.answer(w, r, err)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			c.answer(w, r, methodNotAllowed(r.Method))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// guarded asks who it is before it tells whether there is something.
func (c *Console) guarded(m methods) http.Handler {
	allow := allowed(m)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		harden(w.Header())
		who, err := c.guard.admit(r)
		if err != nil {
			c.answer(w, r, err)
			return
		}
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		h, ok := m[method]
		switch {
		case ok:
			err = h(w, r, who)
		case m == nil:
			err = notFound("nothing is served at this path")
		default:
			w.Header().Set("Allow", allow)
			err = methodNotAllowed(r.Method)
		}
		if err != nil {
			c.answer(w, r, err)
		}
	})
}

func allowed(m methods) string {
	var names []string
	for name := range m {
		names = append(names, name)
		if name == http.MethodGet {
			names = append(names, http.MethodHead)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// harden sets what every answer carries.
func harden(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func (c *Console) healthz(w http.ResponseWriter, r *http.Request) {
	if c.o.Health != nil {
		if err := c.o.Health(); err != nil {
			c.log.ErrorContext(r.Context(), "unhealthy", "error", err)
			plain(w, http.StatusServiceUnavailable, "unhealthy\n")
			return
		}
	}
	plain(w, http.StatusOK, "ok\n")
}

func (c *Console) readyz(w http.ResponseWriter, _ *http.Request) {
	if !c.o.Ready() {
		plain(w, http.StatusServiceUnavailable, "not ready\n")
		return
	}
	plain(w, http.StatusOK, "ready\n")
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	// A client that has gone is nobody's error.
	_, _ = io.WriteString(w, text)
}

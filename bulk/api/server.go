package api

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/forwarded"
	"github.com/anteroom/anteroom/internal/operators"
)

// Limits bound what is taken and held. Zero values are the defaults.
type Limits struct {
	Line   int // bytes of a line of a submission, up to store.MaxAddBytes; 64 KiB
	Result int // bytes of a job's result, which bounds what one page of results may hold; 64 KiB
	// Streams bounds the event streams of this process; 1,000.
	Streams int
	// Idle is how long a body may stand still while it comes, and an answer while it goes; 30 s. Neither has a bound as a whole.
	Idle time.Duration
}

// Token lets a program in, for the groups of its tenants.
type Token struct {
	Name    string // for the log
	Tenants []string
	Token   string
	Most    Ceilings
}

// Options of a Server. Store is required.
type Options struct {
	Store *store.Store
	// Token is the operators': it sees and does everything.
	Token  string
	Tokens []Token
	// RequireToken says that the listen address can be reached from other machines. Otherwise no token is asked for where none
	// is configured, and then only loopback host names are answered.
	RequireToken bool
	// TrustedProxies are the peers whose X-Forwarded-For tells the client's address, by which wrong tokens are counted. Where no
	// token is configured, clients that it places on other machines are refused.
	TrustedProxies []netip.Prefix
	Limits         Limits

	// ParseAggregate checks what a group's aggregate says and gives it in its one form; nil: bulk.ParseAggregate.
	ParseAggregate func(json []byte) (canonical []byte, err error)
	// AllowType says whether a job type has a handler; nil: every type is taken, and a job of an unknown one dies with a reason.
	AllowType func(kind string) bool
	// CheckCallback says why a callback_url may not be called, where that is known without asking DNS; nil: each may.
	CheckCallback func(url string) error
	// Enqueued is told how many jobs the store has taken, as Metrics.Enqueued of package bulk; nil: nobody is.
	Enqueued func(jobs int64)

	Ready     func() bool  // nil: always
	Health    func() error // the process is beyond help; nil: never
	Metrics   http.Handler // /metrics; nil: 404
	Dashboard http.Handler // /; nil: 404

	Log *slog.Logger     // nil: discarded
	Now func() time.Time // nil: time.Now
}

// Server answers requests. It runs nothing of its own.
type Server struct {
	o     Options
	store *store.Store
	guard *guard
	log   *slog.Logger
	mux   *http.ServeMux

	deleteTime time.Duration // for which a request to delete a group waits
	streams    atomic.Int64  // event streams that are open
	held       atomic.Int64  // bytes of bodies that are read whole before they are used
	rerating   sync.Mutex    // one change of a tenant at a time: the store takes it whole, requests name a part
	running    lastRunning
	closing    chan struct{}
	close      sync.Once
}

// New checks the options. An error names the setting and the way out.
func New(o Options) (*Server, error) {
	if o.Store == nil {
		return nil, errors.New("api: Store is required")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.ParseAggregate == nil {
		o.ParseAggregate = bulk.ParseAggregate
	}
	if o.Enqueued == nil {
		o.Enqueued = func(int64) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Limits.Line = cmp.Or(o.Limits.Line, 64<<10)
	o.Limits.Result = cmp.Or(o.Limits.Result, 64<<10)
	o.Limits.Streams = cmp.Or(o.Limits.Streams, 1000)
	o.Limits.Idle = cmp.Or(o.Limits.Idle, 30*time.Second)
	if o.Limits.Line < 64 || o.Limits.Line > store.MaxAddBytes {
		return nil, fmt.Errorf("limits.line is %d bytes: use 64 to %d", o.Limits.Line, store.MaxAddBytes)
	}
	g, err := newGuard(o)
	if err != nil {
		return nil, err
	}
	s := &Server{deleteTime: 10 * time.Second, o: o, store: o.Store, guard: g, log: o.Log, mux: http.NewServeMux(), closing: make(chan struct{})}
	s.routes()
	return s, nil
}

// Handler serves everything on the listen address. The server around it should have ReadHeaderTimeout and IdleTimeout, and
// neither ReadTimeout nor WriteTimeout, which would cut uploads and streams that move: Limits.Idle bounds those that do not.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header["X-Forwarded-For"]) > 0 {
			if addr := forwarded.By(r, s.o.TrustedProxies); addr.IsValid() {
				r = r.WithContext(r.Context()) // net/http keeps its own
				r.RemoteAddr = netip.AddrPortFrom(addr, 0).String()
			}
		}
		s.mux.ServeHTTP(w, r)
	})
}

// Close ends the event streams, which a shutdown would otherwise wait for; what else runs is answered. It is meant for
// http.Server.RegisterOnShutdown.
func (s *Server) Close() { s.close.Do(func() { close(s.closing) }) }

// handler answers a request or says what went wrong; Server.answer turns that into a problem.
type handler func(w http.ResponseWriter, r *http.Request, who identity) error

// methods maps request methods to handlers; HEAD goes where GET goes.
type methods map[string]handler

// paths are the API's; what they answer is in api/openapi-bulk.yaml.
func (s *Server) paths() map[string]methods {
	return map[string]methods{
		"/v1/groups":                        {"GET": s.listGroups, "POST": s.createGroup},
		"/v1/groups/{id}":                   {"GET": s.showGroup, "PATCH": s.patchGroup, "DELETE": s.deleteGroup},
		"/v1/groups/{id}/jobs":              {"POST": s.addJobs},
		"/v1/groups/{id}/jobs/{job}":        {"GET": s.showJob},
		"/v1/groups/{id}/jobs/{job}/cancel": {"POST": s.cancelJob},
		"/v1/groups/{id}/jobs/{job}/retry":  {"POST": s.retryJob},
		"/v1/groups/{id}/seal":              {"POST": s.seal},
		"/v1/groups/{id}/pause":             {"POST": s.plain(s.pause)},
		"/v1/groups/{id}/resume":            {"POST": s.plain(s.resume)},
		"/v1/groups/{id}/release":           {"POST": s.release},
		"/v1/groups/{id}/cancel":            {"POST": s.plain(s.cancel)},
		"/v1/groups/{id}/redrive":           {"POST": s.redrive},
		"/v1/groups/{id}/events":            {"GET": s.events},
		"/v1/groups/{id}/results":           {"GET": s.results},
		"/v1/groups/{id}/result":            {"GET": s.result},
		"/v1/dead":                          {"GET": s.dead},
		"/v1/bulk":                          {"POST": s.bulk},
		"/v1/congestion":                    {"GET": s.congestion},
		"/v1/congestion/{tenant}/history": {
			"GET": s.history,
		},
		"/v1/breakers":         {"GET": s.showBreakers, "DELETE": s.liftBreaker},
		"/v1/limits":           {"GET": s.showLimits, "PATCH": s.patchLimits},
		"/v1/workers":          {"GET": s.showWorkers},
		"/v1/tenants/{tenant}": {"GET": s.showTenant, "PATCH": s.patchTenant},
	}
}

func (s *Server) routes() {
	open := func(path string, h http.Handler) {
		if h != nil {
			s.mux.Handle(path, s.public(h))
		}
	}
	open("/metrics", s.o.Metrics)
	open("/healthz", http.HandlerFunc(s.healthz))
	open("/readyz", http.HandlerFunc(s.readyz))
	open("/{$}", s.o.Dashboard)
	for path, m := range s.paths() {
		s.mux.Handle(path, s.guarded(m))
	}
	s.mux.Handle("/v1/", s.guarded(nil))
	s.mux.Handle("/", s.public(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, noPath()) })))
}

func noPath() *problem {
	return newProblem(http.StatusNotFound, "not_found", "nothing is served at this path; the API is under /v1, api/openapi-bulk.yaml describes it")
}

// public serves what needs no token.
func (s *Server) public(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w, r = operators.Flowing(w, s.o.Limits.Idle), operators.Moving(w, r, s.o.Limits.Idle)
		harden(w.Header())
		if err := s.guard.named(r); err != nil && r.Host != "" { // a probe by HTTP/1.0 is no browser
			s.answer(w, r, err)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			s.wrongMethod(w, r, "GET, HEAD")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// guarded asks who it is before it tells whether there is something.
func (s *Server) guarded(m methods) http.Handler {
	allow := allowed(m)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w, r = operators.Flowing(w, s.o.Limits.Idle), operators.Moving(w, r, s.o.Limits.Idle)
		harden(w.Header())
		who, err := s.guard.admit(r)
		if err != nil {
			s.answer(w, r, err)
			return
		}
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		h, known := m[method]
		switch {
		case known:
			err = h(w, r, who)
		case m == nil:
			err = noPath()
		default:
			s.wrongMethod(w, r, allow)
			return
		}
		if err != nil {
			s.answer(w, r, err)
		}
	})
}

func (s *Server) wrongMethod(w http.ResponseWriter, r *http.Request, allow string) {
	w.Header().Set("Allow", allow)
	s.answer(w, r, newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "this path answers %s, not %s", allow, shorten(r.Method)))
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

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	if s.o.Health != nil {
		if err := s.o.Health(); err != nil {
			s.log.ErrorContext(r.Context(), "unhealthy", "error", err)
			plainText(w, http.StatusServiceUnavailable, "unhealthy\n")
			return
		}
	}
	plainText(w, http.StatusOK, "ok\n")
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if s.o.Ready != nil && !s.o.Ready() {
		plainText(w, http.StatusServiceUnavailable, "not ready\n")
		return
	}
	plainText(w, http.StatusOK, "ready\n")
}

func plainText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // a client that has gone is nobody's error
}

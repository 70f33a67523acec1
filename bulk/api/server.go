package api

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/jobtrace"
	"github.com/anteroom/anteroom/bulk/schedule"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/forwarded"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// Limits bound requests and memory. Zero values are the defaults.
type Limits struct {
	Line int // bytes of a line of a submission, up to store.MaxAddBytes; 64 KiB
	// Decompressed is the most bytes of a compressed upload after decompression; 1 GiB.
	Decompressed int64
	Result       int // bytes of a job's result, which determines the size of the first page of results; 64 KiB
	// Streams is the most event streams of this process; 1,000.
	Streams int
	// Schedules is the most schedules that the tenants of a token have when it creates another, while there are twice as
	// many in all; a quarter of store.MaxSchedules.
	Schedules int
	// Idle is the longest pause of a body or a response; 30 s. Their whole duration has no limit.
	Idle time.Duration
}

// Token admits a program for the groups of its tenants.
type Token struct {
	Name    string // for the log
	Tenants []string
	Token   string
	Most    Ceilings
}

// Options of a Server. Store is required.
type Options struct {
	Store store.Sharded // a Store, or a Fleet of several shards
	// Token is the operators' token. It may do everything.
	Token  string
	Tokens []Token
	// WorkerTokens are the tokens of workers that pull jobs.
	WorkerTokens []WorkerToken
	// RequireToken is set when other machines can reach the listen address. Otherwise, while no token is configured,
	// requests need none, and only loopback names are served.
	RequireToken bool
	// TrustedProxies are the peers whose X-Forwarded-For is believed. Wrong tokens are counted by that address and,
	// while no token is configured, clients on other machines are refused.
	TrustedProxies []netip.Prefix
	Limits         Limits

	Tracer *jobtrace.Tracer // nil: trace contexts are only passed on
	// Work serves workers that pull jobs; nil: /v1/work does not exist.
	Work Work
	// ParseAggregate checks a group's aggregate and returns its canonical form; nil: bulk.ParseAggregate.
	ParseAggregate func(json []byte) (canonical []byte, err error)
	// AllowType reports whether a job type has a handler; nil: every type is accepted, and a job of an unknown type
	// becomes a dead letter.
	AllowType func(kind string) bool
	// CheckCallback returns why a callback_url is refused, as far as that is known without DNS; nil: each is allowed.
	CheckCallback func(url string) error
	// Enqueued is called with the number of jobs that the store accepted, as Metrics.Enqueued of package bulk; nil:
	// not called.
	Enqueued func(jobs int64)

	Ready     func() bool  // nil: always
	Health    func() error // an error means that the process must be restarted; nil: never
	Metrics   http.Handler // /metrics; nil: 404
	Dashboard http.Handler // /; nil: 404

	Log *slog.Logger     // nil: discarded
	Now func() time.Time // nil: time.Now
}

// Server serves the API. It starts no goroutines.
type Server struct {
	o     Options
	store *store.Fleet
	log   *slog.Logger
	mux   *ophttp.Mux[identity]

	deleteTime time.Duration // how long a request waits for the deletion of a group
	streams    *shares       // open event streams
	uploads    *shares       // bytes of uploads that are read whole before use
	calls      *shares       // bytes of the bodies of workers
	tenants    sync.Mutex    // one change of a tenant at a time: requests change parts, the store replaces all
	running    lastRunning
	closing    chan struct{}
	close      sync.Once
}

// New checks the options. Its error names the setting and how to correct it.
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
	o.Limits.Decompressed = cmp.Or(o.Limits.Decompressed, 1<<30)
	o.Limits.Streams = cmp.Or(o.Limits.Streams, 1000)
	o.Limits.Schedules = cmp.Or(o.Limits.Schedules, store.MaxSchedules/4)
	o.Limits.Idle = cmp.Or(o.Limits.Idle, 30*time.Second)
	if o.Limits.Line < 64 || o.Limits.Line > store.MaxAddBytes {
		return nil, fmt.Errorf("limits.line is %d bytes: use 64 to %d", o.Limits.Line, store.MaxAddBytes)
	}
	g, err := newGuard(o)
	if err != nil {
		return nil, err
	}
	mux := ophttp.NewMux(ophttp.MuxOptions[identity]{
		Admit: func(r *http.Request) (identity, error) {
			return g.Admit(r, r.Method == http.MethodGet || r.Method == http.MethodHead)
		},
		CheckHost: g.CheckHost, Problem: asProblem, Idle: o.Limits.Idle, Log: o.Log,
		NoPath: "nothing is served at this path; the API is under /v1, api/openapi-bulk.yaml describes it",
	})
	s := &Server{
		deleteTime: 10 * time.Second, o: o, store: store.FleetOf(o.Store), log: o.Log, mux: mux, closing: make(chan struct{}),
		streams: newShares(int64(o.Limits.Streams)), uploads: newShares(maxHeld), calls: newShares(maxHeld),
	}
	s.routes()
	return s, nil
}

// Handler serves all paths. The server needs ReadHeaderTimeout and IdleTimeout, and neither ReadTimeout nor
// WriteTimeout, which would end long uploads and streams: Limits.Idle ends those without progress.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header["X-Forwarded-For"]) > 0 {
			if addr := forwarded.By(r, s.o.TrustedProxies); addr.IsValid() {
				r = r.WithContext(r.Context()) // a copy: net/http needs the original
				r.RemoteAddr = netip.AddrPortFrom(addr, 0).String()
			}
		}
		s.mux.ServeHTTP(w, r)
	})
}

// Close ends the event streams and the waits of workers, for which a shutdown would otherwise wait. Call it from
// http.Server.RegisterOnShutdown.
func (s *Server) Close() { s.close.Do(func() { close(s.closing) }) }

// The handlers, by what they serve.
type (
	groupRoutes  struct{ *Server }
	uploadRoutes struct{ *Server }
	jobRoutes    struct{ *Server }
	tenantRoutes struct{ *Server } // also limits, breakers and workers
)

type (
	handler = ophttp.Handler[identity]
	methods = ophttp.Methods[identity]
)

// paths returns the routes of the API, as described in api/openapi-bulk.yaml.
func (s *Server) paths() map[string]methods {
	groups, uploads, jobs, tenants := groupRoutes{s}, uploadRoutes{s}, jobRoutes{s}, tenantRoutes{s}
	schedules := scheduleRoutes{s, schedule.NewBook(s.store), new(sync.Mutex)}
	paths := map[string]methods{
		"/v1/groups":                        {"GET": groups.listGroups, "POST": groups.createGroup},
		"/v1/groups/{id}":                   {"GET": groups.showGroup, "PATCH": groups.patchGroup, "DELETE": groups.deleteGroup},
		"/v1/groups/{id}/jobs":              {"POST": uploads.addJobs},
		"/v1/groups/{id}/jobs/{job}":        {"GET": jobs.showJob},
		"/v1/groups/{id}/jobs/{job}/cancel": {"POST": jobs.cancelJob},
		"/v1/groups/{id}/jobs/{job}/retry":  {"POST": jobs.retryJob},
		"/v1/groups/{id}/seal":              {"POST": groups.seal},
		"/v1/groups/{id}/pause":             {"POST": groups.plain(groups.pause)},
		"/v1/groups/{id}/resume":            {"POST": groups.plain(groups.resume)},
		"/v1/groups/{id}/release":           {"POST": groups.release},
		"/v1/groups/{id}/cancel":            {"POST": groups.plain(groups.cancel)},
		"/v1/groups/{id}/redrive":           {"POST": groups.redrive},
		"/v1/groups/{id}/events":            {"GET": groups.events},
		"/v1/groups/{id}/results":           {"GET": jobs.results},
		"/v1/groups/{id}/result":            {"GET": jobs.result},
		"/v1/dead":                          {"GET": jobs.dead},
		"/v1/jobs":                          {"POST": jobs.submitJob},
		"/v1/bulk":                          {"POST": uploads.bulk},
		"/v1/congestion":                    {"GET": tenants.congestion},
		"/v1/congestion/{tenant}/history": {
			"GET": tenants.history,
		},
		"/v1/breakers":  {"GET": tenants.showBreakers, "DELETE": tenants.liftBreaker},
		"/v1/limits":    {"GET": tenants.showLimits, "PATCH": tenants.patchLimits},
		"/v1/workers":   {"GET": tenants.showWorkers},
		"/v1/schedules": {"GET": schedules.listSchedules, "POST": schedules.createSchedule},
		"/v1/schedules/{schedule}": {
			"GET": schedules.showSchedule, "PATCH": schedules.patchSchedule, "DELETE": schedules.deleteSchedule,
		},
		"/v1/tenants/{tenant}": {"GET": tenants.showTenant, "PATCH": tenants.patchTenant},
	}
	if s.o.Work != nil {
		work := workRoutes{s}
		paths[workPath+"lease"] = methods{"POST": work.lease}
		paths[workPath+"ack"] = methods{"POST": work.end(ackFields)}
		paths[workPath+"fail"] = methods{"POST": work.end(failFields)}
		paths[workPath+"extend"] = methods{"POST": work.extend}
	}
	return paths
}

// scoped returns methods that refuse tokens of another scope.
func scoped(path string, m methods) methods {
	all := make(methods, len(m))
	for method, h := range m {
		all[method] = func(w http.ResponseWriter, r *http.Request, who identity) error {
			if err := workScope(path, who); err != nil {
				return err
			}
			return h(w, r, who)
		}
	}
	return all
}

func (s *Server) routes() {
	s.mux.Public("/metrics", s.o.Metrics)
	s.mux.Probes(s.o.Health, s.o.Ready)
	s.mux.Public("/{$}", s.o.Dashboard)
	for path, m := range s.paths() {
		s.mux.Guarded(path, scoped(path, m))
	}
	s.mux.Guarded("/v1/", nil)
}

package ophttp

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves an authenticated request. Its error is sent as a problem.
type Handler[T any] func(w http.ResponseWriter, r *http.Request, who T) error

// Methods maps request methods to handlers. HEAD is served by GET's.
type Methods[T any] map[string]Handler[T]

// MuxOptions configure a Mux. All are required.
type MuxOptions[T any] struct {
	Admit     func(*http.Request) (T, error) // authenticates and authorizes
	CheckHost func(*http.Request) error      // of public paths, as Guard.CheckHost
	Problem   func(error) *Problem           // of a handler's error
	NoPath    string                         // detail of the problem not_found
	Idle      time.Duration                  // how long a body or a response may stand still
	Log       *slog.Logger
}

// Mux routes the requests of a listener of operators. It sets security headers, bounds idle bodies and responses, and turns errors into
// problems. Unknown paths are not found.
type Mux[T any] struct {
	o   MuxOptions[T]
	mux *http.ServeMux
}

// NewMux returns a Mux without paths.
func NewMux[T any](o MuxOptions[T]) *Mux[T] {
	m := &Mux[T]{o, http.NewServeMux()}
	m.Public("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.Fail(w, r, m.noPath()) }))
	return m
}

func (m *Mux[T]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mux.ServeHTTP(Flowing(w, m.o.Idle), Moving(w, r, m.o.Idle))
}

// Public serves GET and HEAD of a path without authentication. A nil h serves nothing.
func (m *Mux[T]) Public(path string, h http.Handler) {
	if h == nil {
		return
	}
	m.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		if err := m.o.CheckHost(r); err != nil && r.Host != "" { // an HTTP/1.0 probe sends no Host and is not a browser
			m.Fail(w, r, err)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			m.Fail(w, r, wrongMethod(w, r, "GET, HEAD"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Guarded serves a path. It authenticates before it reveals whether the path exists; without methods the path does not.
func (m *Mux[T]) Guarded(path string, methods Methods[T]) {
	allow := allowed(methods)
	m.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		who, err := m.o.Admit(r)
		if err != nil {
			m.Fail(w, r, err)
			return
		}
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		h, ok := methods[method]
		switch {
		case ok:
			err = h(w, r, who)
		case methods == nil:
			err = m.noPath()
		default:
			err = wrongMethod(w, r, allow)
		}
		if err != nil {
			m.Fail(w, r, err)
		}
	})
}

// Probes serves /healthz and /readyz. A nil health or ready always succeeds.
func (m *Mux[T]) Probes(health func() error, ready func() bool) {
	m.Public("/healthz", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if health != nil {
			if err := health(); err != nil {
				m.o.Log.ErrorContext(r.Context(), "unhealthy", "error", err)
				writeText(w, http.StatusServiceUnavailable, "unhealthy\n")
				return
			}
		}
		writeText(w, http.StatusOK, "ok\n")
	}))
	m.Public("/readyz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if ready != nil && !ready() {
			writeText(w, http.StatusServiceUnavailable, "not ready\n")
			return
		}
		writeText(w, http.StatusOK, "ready\n")
	}))
}

// Metrics returns the handler of /metrics, in the text format or, for scrapers that ask for it, as OpenMetrics, which has exemplars. It logs
// errors of gathering.
func Metrics(g prometheus.Gatherer, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)})
}

// Fail sends the problem of an error, and logs its cause unless the client has disconnected.
func (m *Mux[T]) Fail(w http.ResponseWriter, r *http.Request, err error) {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		p = m.o.Problem(err)
	}
	if p.Cause != nil && r.Context().Err() == nil {
		level := slog.LevelWarn
		if p.Status == http.StatusInternalServerError {
			level = slog.LevelError
		}
		m.o.Log.Log(r.Context(), level, "request failed", "method", r.Method, "path", r.URL.Path, "error", p.Cause)
	}
	p.Write(w)
}

func (m *Mux[T]) noPath() *Problem {
	return NewProblem(http.StatusNotFound, "not_found", "%s", m.o.NoPath)
}

func wrongMethod(w http.ResponseWriter, r *http.Request, allow string) *Problem {
	w.Header().Set("Allow", allow)
	return NewProblem(http.StatusMethodNotAllowed, "method_not_allowed", "this path serves %s, not %s", allow, Shorten(r.Method))
}

func allowed[T any](m Methods[T]) string {
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

func setSecurityHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func writeText(w http.ResponseWriter, status int, text string) {
	Write(w, status, "text/plain; charset=utf-8", []byte(text))
}

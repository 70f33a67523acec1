package console

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/gateway/span"
	"github.com/anteroom/anteroom/internal/ophttp"
	"github.com/anteroom/anteroom/internal/tracing"
)

// traced returns a handler that records the span of a request that is traced, and one for each call of a room's scripts. An operator has
// been authenticated, so the trace context of any request counts.
func traced(tracer func() *tracing.Tracer, row route, serve handler) handler {
	if tracer == nil {
		return serve
	}
	return func(w http.ResponseWriter, r *http.Request, who *access.Person) (err error) {
		s, began := span.New(tracer()), time.Now()
		s.Decide(span.Caller{Began: began, Parent: []byte(r.Header.Get(tracing.ParentField)), State: []byte(r.Header.Get(tracing.StateField))})
		if !s.Traced() {
			return serve(w, r, who)
		}
		sent := &sentStatus{ResponseWriter: w}
		defer func() {
			f := span.Facts{
				Method: r.Method, Path: r.URL.Path, Scheme: "http", Host: r.Host, Protocol: strings.TrimPrefix(r.Proto, "HTTP/"), Route: row.path,
				UserAgent: r.UserAgent(), Room: r.PathValue("id"), Status: sent.code, Operator: who.Name,
			}
			if host, _, err := net.SplitHostPort(r.Host); err == nil {
				f.Host = host
			}
			if r.TLS != nil {
				f.Scheme = "https"
			}
			if err != nil {
				p, ok := errors.AsType[*ophttp.Problem](err)
				if !ok {
					p = asProblem(err)
				}
				f.Status, f.Problem = p.Status, p.Code
			}
			s.End(&f, time.Now())
		}()
		return serve(sent, r.WithContext(s.Calls(r.Context())), who)
	}
}

// sentStatus notes the status of a response.
type sentStatus struct {
	http.ResponseWriter
	code int // 0: none yet
}

func (w *sentStatus) WriteHeader(code int) {
	w.code = cmp.Or(w.code, code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *sentStatus) Write(p []byte) (int, error) {
	w.code = cmp.Or(w.code, http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *sentStatus) Unwrap() http.ResponseWriter { return w.ResponseWriter }

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// problem is an answer of RFC 9457. Code is stable; Detail is for people.
type problem struct {
	Type     string  `json:"type"`
	Title    string  `json:"title"`
	Status   int     `json:"status"`
	Detail   string  `json:"detail"`
	Code     string  `json:"code"`
	Problems []fault `json:"problems,omitempty"`
	// Group and the counts say how far an upload came that did not end well.
	Group    string `json:"group,omitempty"`
	Accepted *int64 `json:"accepted,omitempty"`

	retryAfter time.Duration
	challenge  bool
	cause      error // for the log
}

// fault is one thing that is wrong with a body or a parameter.
type fault struct {
	Path    string          `json:"path"`            // as "failure_tolerance"
	Value   json.RawMessage `json:"value,omitempty"` // as it was sent
	Problem string          `json:"problem"`
	Allowed string          `json:"allowed,omitempty"`
}

func (p *problem) Error() string { return p.Code + ": " + p.Detail }

func newProblem(status int, code, format string, args ...any) *problem {
	return &problem{Type: "urn:anteroom:problem:" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

func invalid(faults ...fault) *problem {
	p := newProblem(http.StatusUnprocessableEntity, "invalid", "nothing was changed; problems lists all that is wrong")
	p.Problems = faults
	return p
}

// noGroup is the answer for a group that is not there, and for one that the token may not know of.
func noGroup(id string) *problem {
	return newProblem(http.StatusNotFound, string(store.CodeNotFound), "there is no group %q; GET /v1/groups lists those there are", shorten(id))
}

// refusals is how the store's refusals are answered.
var refusals = map[store.Code]struct {
	status     int
	retryAfter time.Duration
}{
	store.CodeNotFound:   {status: http.StatusNotFound},
	store.CodeNotKept:    {status: http.StatusNotFound},
	store.CodeExists:     {status: http.StatusConflict},
	store.CodeSealed:     {status: http.StatusConflict},
	store.CodeState:      {status: http.StatusConflict},
	store.CodeHalfIn:     {status: http.StatusConflict},
	store.CodeQuota:      {status: http.StatusTooManyRequests, retryAfter: 5 * time.Second},
	store.CodeOperators:  {status: http.StatusForbidden},
	store.CodeInvalid:    {status: http.StatusUnprocessableEntity},
	store.CodeChunkReuse: {status: http.StatusUnprocessableEntity},
}

// asProblem gives an error the form in which it is answered.
func asProblem(err error) *problem {
	if p, is := errors.AsType[*problem](err); is {
		return p
	}
	if refusal, is := errors.AsType[*store.Refusal](err); is {
		if how, known := refusals[refusal.Code]; known {
			p := newProblem(how.status, string(refusal.Code), "%s", refusal.Detail)
			p.retryAfter = how.retryAfter
			return p
		}
	}
	if errors.Is(err, store.ErrFull) { // which the store logs
		p := newProblem(http.StatusServiceUnavailable, "store_full", "the store's memory is full and it takes in nothing new; jobs that are in go on. Delete groups that have ended, shorten retention.jobs, retention.groups and retention.dead, or raise maxmemory of Redis; then ask again")
		p.retryAfter = 5 * time.Second
		return p
	}
	p := newProblem(http.StatusServiceUnavailable, "store_unavailable", "the store did not answer in time; what was asked may or may not have been done, and may be asked again")
	p.retryAfter, p.cause = time.Second, err
	return p
}

// answer is the one place where an error becomes an answer.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, err error) {
	p := asProblem(err)
	if p.cause != nil && r.Context().Err() == nil { // a client that has gone is nobody's error
		s.log.WarnContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "error", p.cause)
	}
	h := w.Header()
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
	}
	if p.challenge {
		h.Set("WWW-Authenticate", `Bearer realm="anteroom"`)
	}
	writeJSON(w, p.Status, "application/problem+json", p)
}

func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	writeRaw(w, status, contentType, append(marshal(v), '\n'))
}

func writeRaw(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone is nobody's error
}

// marshal writes our own types, which always marshal.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("api: " + err.Error())
	}
	return b
}

func ok(w http.ResponseWriter, v any) error {
	writeJSON(w, http.StatusOK, "application/json", v)
	return nil
}

// again says that the same request may go well later.
func (p *problem) again() bool {
	return p.retryAfter > 0 || p.Status == http.StatusBadRequest || p.Status == http.StatusRequestTimeout
}

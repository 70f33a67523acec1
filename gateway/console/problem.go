package console

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/anteroom/anteroom/admission"
)

// problem is an answer of RFC 9457. Code is stable; Detail is for people.
type problem struct {
	Type     string  `json:"type"`
	Title    string  `json:"title"`
	Status   int     `json:"status"`
	Detail   string  `json:"detail"`
	Code     string  `json:"code"`
	Problems []fault `json:"problems,omitempty"`

	retryAfter time.Duration
	challenge  bool
}

// fault is one thing that is wrong with a body or a parameter.
type fault struct {
	Path    string          `json:"path"`            // as "session.ttl"
	Value   json.RawMessage `json:"value,omitempty"` // as it was sent
	Problem string          `json:"problem"`
	Allowed string          `json:"allowed,omitempty"`
}

func (p *problem) Error() string { return p.Code + ": " + p.Detail }

func newProblem(status int, code, detail string) *problem {
	return &problem{Type: "urn:anteroom:problem:" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

func notFound(detail string) *problem { return newProblem(http.StatusNotFound, "not_found", detail) }

func methodNotAllowed(method string) *problem {
	return newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "the Allow header lists what this path answers, and "+method+" is not among it")
}

func invalid(faults ...fault) *problem {
	p := newProblem(http.StatusUnprocessableEntity, "invalid", "nothing was changed; problems lists all that is wrong")
	p.Problems = faults
	return p
}

// answer is the one place where an error becomes an answer. What is not a
// problem already is logged and told apart only as far as the operator needs.
func (c *Console) answer(w http.ResponseWriter, r *http.Request, err error) {
	p, ok := errors.AsType[*problem](err)
	switch {
	case ok:
	case errors.Is(err, admission.ErrUnknown):
		p = newProblem(http.StatusNotFound, "unknown_ticket", "the store holds no ticket or session of that id in this room")
	case errors.Is(err, admission.ErrStore):
		p = newProblem(http.StatusServiceUnavailable, "store_unavailable", "the store did not answer in time; the change may or may not have been made, and may be repeated")
		p.retryAfter = time.Second
		c.log.WarnContext(r.Context(), "store unavailable for an operator", "method", r.Method, "path", r.URL.Path, "error", err)
	default:
		p = newProblem(http.StatusInternalServerError, "internal", "the gateway's log says what broke")
		c.log.ErrorContext(r.Context(), "operator's request failed", "method", r.Method, "path", r.URL.Path, "error", err)
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
	body, err := json.Marshal(v)
	if err != nil {
		// Our own types always marshal; a float that is not a number would be a bug here.
		panic("console: " + err.Error())
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone is nobody's error
}

func ok(w http.ResponseWriter, v any) error {
	writeJSON(w, http.StatusOK, "application/json", v)
	return nil
}

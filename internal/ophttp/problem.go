package ophttp

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Problem is an RFC 9457 response. Code is stable; Detail is for people.
type Problem struct {
	Type     string  `json:"type"`
	Title    string  `json:"title"`
	Status   int     `json:"status"`
	Detail   string  `json:"detail"`
	Code     string  `json:"code"`
	Problems []Fault `json:"problems,omitempty"`
	// Group and Accepted describe how far a failed upload of bulk jobs came.
	Group    string `json:"group,omitempty"`
	Accepted *int64 `json:"accepted,omitempty"`

	RetryAfter time.Duration `json:"-"`
	Challenge  bool          `json:"-"` // send WWW-Authenticate
	Cause      error         `json:"-"` // for the log
}

// Fault is an invalid field of a body or an invalid parameter.
type Fault struct {
	Path    string          `json:"path"`            // as "session.ttl"
	Value   json.RawMessage `json:"value,omitempty"` // as it was sent
	Problem string          `json:"problem"`
	Allowed string          `json:"allowed,omitempty"`
}

func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// NewProblem returns a Problem with a formatted detail.
func NewProblem(status int, code, format string, args ...any) *Problem {
	return &Problem{Type: "urn:anteroom:problem:" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Invalid returns the Problem of a request with faults.
func Invalid(faults ...Fault) *Problem {
	p := NewProblem(http.StatusUnprocessableEntity, "invalid", "nothing was changed; problems lists all that is wrong")
	p.Problems = faults
	return p
}

// Write sends the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	h := w.Header()
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.RetryAfter.Seconds()))))
	}
	if p.Challenge {
		h.Set("WWW-Authenticate", `Bearer realm="anteroom"`)
	}
	WriteJSON(w, p.Status, "application/problem+json", p)
}

// WriteJSON sends v with a line end.
func WriteJSON(w http.ResponseWriter, status int, contentType string, v any) {
	Write(w, status, contentType, append(Marshal(v), '\n'))
}

// OK sends v with status 200.
func OK(w http.ResponseWriter, v any) error {
	WriteJSON(w, http.StatusOK, "application/json", v)
	return nil
}

// Write sends a response.
func Write(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails when the client has disconnected
}

// Marshal returns the JSON of a type that always marshals.
func Marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("ophttp: " + err.Error())
	}
	return b
}

// Shorten returns at most about 64 bytes of text that a client sent, for use in a response.
func Shorten(s string) string {
	const enough = 64
	if len(s) <= enough {
		return s
	}
	for i := range s {
		if i > enough {
			return s[:i] + "…"
		}
	}
	return s
}

// Excerpt returns a JSON value, or the beginning of a long one as text.
func Excerpt(value []byte) json.RawMessage {
	const enough = 256
	if len(value) > enough {
		return Marshal(strings.ToValidUTF8(string(value[:enough]), "") + "…")
	}
	return value
}

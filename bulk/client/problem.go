package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Problem is the response to a request that the server refused (RFC 9457).
type Problem struct {
	Status int    `json:"status"` // of HTTP
	Code   string `json:"code"`   // stable: not_found, exists, sealed, wrong_state, quota, too_large, …
	Title  string `json:"title"`
	Detail string `json:"detail"` // for people
	// Problems lists the invalid fields of a body.
	Problems []Fault `json:"problems,omitempty"`
	// Accepted is how many jobs of a chunk were accepted all the same.
	Accepted int64 `json:"accepted,omitempty"`
	// RetryAfter is how long the server asks to wait; 0 if unspecified.
	RetryAfter time.Duration `json:"-"`
}

// Fault is an invalid field of a body or an invalid parameter.
type Fault struct {
	Path    string          `json:"path"`
	Value   json.RawMessage `json:"value,omitempty"`
	Problem string          `json:"problem"`
	Allowed string          `json:"allowed,omitempty"`
}

func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", p.Status, p.Code)
	if p.Detail != "" && len(p.Problems) == 0 { // with problems, Detail only refers to them
		b.WriteString(": " + p.Detail)
	}
	separator := ": "
	for _, f := range p.Problems {
		fmt.Fprintf(&b, "%s%s: %s", separator, f.Path, f.Problem)
		separator = "; "
		if f.Allowed != "" {
			fmt.Fprintf(&b, " (use %s)", f.Allowed)
		}
	}
	return b.String()
}

// passing reports whether the same request may succeed later.
func (p *Problem) passing() bool {
	if p.Code == "too_many_attempts" {
		return false // a wrong token stays wrong
	}
	switch p.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return p.Code == "bad_body" // the connection broke within the request
}

// readProblem reads an error response, which a proxy may have written.
func readProblem(status int, h http.Header, body io.Reader) *Problem {
	b, _ := io.ReadAll(io.LimitReader(body, 64<<10)) // use what arrived
	p := &Problem{}
	if json.Unmarshal(b, p) != nil || p.Code == "" {
		*p = Problem{Title: http.StatusText(status), Code: "http_" + strconv.Itoa(status), Detail: firstLine(b)}
	}
	p.Status = status
	p.RetryAfter = retryAfter(h.Get("Retry-After"), time.Now())
	return p
}

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	if len(line) > 200 {
		line = line[:200] + "…"
	}
	return strings.ToValidUTF8(line, "�")
}

// retryAfter parses the header, seconds or a date.
func retryAfter(v string, now time.Time) time.Duration {
	if s, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

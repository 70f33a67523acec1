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

// Problem is a request that the server understood and did not carry out (RFC 9457).
type Problem struct {
	Status int    `json:"status"` // of HTTP
	Code   string `json:"code"`   // stable: not_found, exists, sealed, wrong_state, quota, too_large, …
	Title  string `json:"title"`
	Detail string `json:"detail"` // for people
	// Problems lists what is wrong with the fields of a body.
	Problems []Fault `json:"problems,omitempty"`
	// Accepted is how many jobs of a chunk are in all the same.
	Accepted int64 `json:"accepted,omitempty"`
	// RetryAfter is how long the server asks to wait; 0 where it does not say.
	RetryAfter time.Duration `json:"-"`
}

// Fault is one thing that is wrong with a body or a parameter.
type Fault struct {
	Path    string          `json:"path"`
	Value   json.RawMessage `json:"value,omitempty"`
	Problem string          `json:"problem"`
	Allowed string          `json:"allowed,omitempty"`
}

func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", p.Status, p.Code)
	if p.Detail != "" && len(p.Problems) == 0 { // with problems it only points to them
		b.WriteString(": " + p.Detail)
	}
	separator := ": "
	for _, f := range p.Problems {
		fmt.Fprintf(&b, "%s%s: %s", separator, f.Path, f.Problem)
		separator = "; "
		if f.Allowed != "" {
			fmt.Fprintf(&b, " (want %s)", f.Allowed)
		}
	}
	return b.String()
}

// passing says whether the same request may well succeed later.
func (p *Problem) passing() bool {
	if p.Code == "too_many_attempts" {
		return false // of a wrong token
	}
	switch p.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return p.Code == "bad_body" // ours broke off on the way
}

// readProblem reads an answer that is no success; what stands between us and the server may have written it.
func readProblem(status int, h http.Header, body io.Reader) *Problem {
	b, _ := io.ReadAll(io.LimitReader(body, 64<<10)) // half a body is better than none
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

// retryAfter reads the header in both of its forms, seconds and a date.
func retryAfter(v string, now time.Time) time.Duration {
	if s, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

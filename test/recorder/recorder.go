// Package recorder records the requests that reach the origin of a test.
package recorder

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
)

// Request is a request as the origin received it.
type Request struct {
	Method, URI, Host, Body string
	Header                  http.Header
}

// Recorder records requests. The zero value is ready for use; its methods are safe for concurrent use.
type Recorder struct {
	mu       sync.Mutex
	requests []Request
}

// Record reads and records a request, and adds X-Origin: yes to its response.
func (r *Recorder) Record(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		body = append(body, " (cut)"...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, Request{q.Method, q.RequestURI, q.Host, string(body), q.Header.Clone()})
	w.Header().Set("X-Origin", "yes")
}

// Requests returns all requests so far.
func (r *Recorder) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Last returns the newest request. Without one it fails the test.
func (r *Recorder) Last(t testing.TB) Request {
	t.Helper()
	all := r.Requests()
	if len(all) == 0 {
		t.Fatal("the origin received no request")
	}
	return all[len(all)-1]
}

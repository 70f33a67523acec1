package ophttp

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// movingBody extends the read deadline while the body moves.
type movingBody struct {
	io.ReadCloser
	c      *http.ResponseController
	idle   time.Duration
	before time.Time
}

// Moving bounds how long a request's body may stand still. Its first deadline also applies if no handler reads the
// body: net/http then reads it before it sends the response. The request is a copy: net/http needs the original's
// body for Expect: 100-continue.
func Moving(w http.ResponseWriter, r *http.Request, idle time.Duration) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	m := &movingBody{ReadCloser: r.Body, c: http.NewResponseController(w), idle: idle, before: time.Now()}
	_ = m.c.SetReadDeadline(m.before.Add(m.idle))
	r = r.WithContext(r.Context())
	r.Body = m
	return r
}

func (m *movingBody) Read(p []byte) (int, error) {
	// A server that cannot set a deadline (a recorder in a test) has none.
	if now := time.Now(); now.Sub(m.before) > m.idle/16 {
		_ = m.c.SetReadDeadline(now.Add(m.idle))
		m.before = now
	}
	n, err := m.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		// After the body, the server watches the connection for its end, and a deadline would look like one. A
		// deadline that has passed stays, or the server would wait for the rest of the body before it responds.
		_ = m.c.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Flow is a response without an overall deadline.
type Flow struct {
	http.ResponseWriter
	c    *http.ResponseController
	idle time.Duration
}

// Flowing bounds how long a response may stay unread.
func Flowing(w http.ResponseWriter, idle time.Duration) *Flow {
	return &Flow{w, http.NewResponseController(w), idle}
}

// Unwrap returns the writer for http.ResponseController.
func (f *Flow) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f *Flow) Write(p []byte) (int, error) {
	f.wait()
	return f.ResponseWriter.Write(p)
}

// Send flushes. The next Write returns its error.
func (f *Flow) Send() {
	f.wait()
	_ = f.c.Flush()
}

// wait extends the deadline by idle, twice since net/http first reads the rest of the request's body.
func (f *Flow) wait() {
	_ = f.c.SetWriteDeadline(time.Now().Add(2 * f.idle)) // a test's recorder has none
}

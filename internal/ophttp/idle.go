package ophttp

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// movingBody lets a body take as long as it likes while it moves.
type movingBody struct {
	io.ReadCloser
	c      *http.ResponseController
	idle   time.Duration
	before time.Time
}

// Moving bounds how long a request's body may stand still. Its first deadline holds where no handler reads the body, too:
// net/http then does, and lets the answer go after it. The request is a copy, since net/http looks into its own for what
// Expect: 100-continue means.
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
		// Behind the body the server watches the connection for its end: a deadline would look like one. One that has passed
		// stays, or the server would wait for the rest before it answers.
		_ = m.c.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Flow is an answer that may take as long as its reader reads.
type Flow struct {
	http.ResponseWriter
	c    *http.ResponseController
	idle time.Duration
}

// Flowing bounds how long an answer may stay unread.
func Flowing(w http.ResponseWriter, idle time.Duration) *Flow {
	return &Flow{w, http.NewResponseController(w), idle}
}

// Unwrap is for http.ResponseController.
func (f *Flow) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f *Flow) Write(p []byte) (int, error) {
	f.wait()
	return f.ResponseWriter.Write(p)
}

// Send sends what has been written so far; an error comes again with the next Write.
func (f *Flow) Send() {
	f.wait()
	_ = f.c.Flush()
}

// wait allows for idle, and once more for the rest of the request's body, which net/http reads before it writes.
func (f *Flow) wait() {
	_ = f.c.SetWriteDeadline(time.Now().Add(2 * f.idle)) // not to be had in a test's recorder
}

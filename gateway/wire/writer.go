package wire

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// maxWrite is the size of one write to a client.
const maxWrite = 32 << 10

// writer writes to a client.
type writer struct {
	link        *rawsocket.Conn
	limits      *Limits
	deadline    time.Time   // the deadline in force
	ownDeadline atomic.Bool // a handler has set the deadline

	// 100 Continue is sent when a body is first read, by an upload perhaps, and must not mix with a final response. Only
	// requests with an expectation lock the mutex.
	expect bool
	mu     sync.Mutex
	begun  bool // the final response
}

// reset prepares w for the response to a new request.
func (w *writer) reset(expect bool) {
	w.expect, w.begun = expect, false
	if w.ownDeadline.Load() {
		w.ownDeadline.Store(false)
		w.deadline = time.Time{}
	}
}

// Write writes p for fasthttp or a hijacker. Each part of it has WriteIdle, so that a slow reader is not cut off.
func (w *writer) Write(p []byte) (int, error) {
	if w.ownDeadline.Load() {
		return w.link.Conn.Write(p)
	}
	for rest := p; len(rest) > 0; {
		n := min(len(rest), maxWrite)
		if err := w.send(rest[:n], time.Now()); err != nil {
			return len(p) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// send writes p. It fails if the client does not take p within WriteIdle.
func (w *writer) send(p []byte, now time.Time) error {
	if left := w.deadline.Sub(now); left < w.limits.WriteIdle*3/4 || left > w.limits.WriteIdle {
		w.deadline = now.Add(w.limits.WriteIdle)
		if err := w.link.SetWriteDeadline(w.deadline); err != nil {
			return err
		}
	}
	_, err := w.link.Write(p)
	return err
}

// begin marks the first byte of the final response, after which 100 Continue must not be sent.
func (w *writer) begin() {
	if w.expect && !w.begun {
		w.mu.Lock()
		w.begun = true
		w.mu.Unlock()
	}
}

// sendInterim writes an informational response.
func (w *writer) sendInterim(p []byte) error {
	if w.expect { // an upload may be about to send 100 Continue
		w.mu.Lock()
		defer w.mu.Unlock()
	}
	return w.send(p, time.Now())
}

// sendContinue asks the client for its body, unless the final response has begun: a client that was not asked may never
// send the body.
func (w *writer) sendContinue() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		return ErrInterrupted
	}
	return w.send([]byte("HTTP/1.1 100 Continue\r\n\r\n"), time.Now())
}

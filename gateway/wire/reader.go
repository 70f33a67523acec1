package wire

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// Unless a response is being sent, a body has to arrive at minBodyRate bytes a second on average, apart from BodyIdle.
// A client that sends a byte now and then would otherwise hold a connection to the origin for as long as it likes.
const minBodyRate = 256

// The errors of a body's Read.
var (
	// ErrBodyIdle is returned when the client has stopped sending the body, or sends it too slowly.
	ErrBodyIdle = errors.New("wire: the client stopped sending its body, or sends it too slowly")
	// ErrBodyLate is returned when the patience set by SetPatience has run out. Reading may go on.
	ErrBodyLate = errors.New("wire: the body has not arrived yet")
	// ErrInterrupted is returned after Interrupt, and if a response has overtaken 100 Continue.
	ErrInterrupted = errors.New("wire: the response came before the end of the body")
)

// reader reads from a client. Its Read returns bytes of a body, within the limits on the time that a body may take.
type reader struct {
	link     *rawsocket.Conn
	limits   *Limits
	buffer   http1.Buffer // bytes read behind the header; its source is the reader
	deadline time.Time    // the deadline in force
	pace     pace

	replying    atomic.Bool // a response is being sent: the client may send as slowly as it likes
	interrupted atomic.Bool
}

// pace measures how fast a body arrives.
type pace struct {
	start        time.Time     // when the body was first waited for
	received     int64         // bytes since then
	patience     time.Duration // how long reads wait in all before ErrBodyLate; 0: until BodyIdle
	patienceEnds time.Time     // zero until a read waits
	drainEnds    time.Time     // when a body that is dropped is given up; zero: it is not being dropped
}

// Read reads body bytes. A silence longer than BodyIdle ends the body, and so does a body that arrives too slowly.
func (r *reader) Read(p []byte) (int, error) {
	now := time.Now()
	if err := r.limitWait(now, r.mayWait(now)); err != nil {
		return 0, err
	}
	n, err := r.link.Read(p)
	r.pace.received += int64(n)
	switch {
	case n > 0:
		return n, nil
	case !rawsocket.IsTimeout(err):
		return 0, err
	case r.interrupted.Load():
		return 0, ErrInterrupted
	case r.pace.patience > 0 && !time.Now().Before(r.pace.patienceEnds):
		return 0, ErrBodyLate
	}
	return 0, ErrBodyIdle
}

// mayWait returns how long a read may wait for the client.
func (r *reader) mayWait(now time.Time) time.Duration {
	p, wait := &r.pace, r.limits.BodyIdle
	if r.replying.Load() {
		p.start, p.received = time.Time{}, 0
	} else {
		if p.start.IsZero() {
			p.start = now
		}
		earned := time.Duration(p.received) * (time.Second / minBodyRate)
		wait = min(wait, max(0, p.start.Sub(now)+r.limits.BodyIdle+earned))
	}
	if p.patience > 0 {
		if p.patienceEnds.IsZero() {
			p.patienceEnds = now.Add(p.patience)
		}
		wait = min(wait, max(0, p.patienceEnds.Sub(now)))
	}
	if !p.drainEnds.IsZero() {
		wait = min(wait, max(0, p.drainEnds.Sub(now)))
	}
	return wait
}

// limitWait sets the deadline of a read, unless the one in force is near enough.
func (r *reader) limitWait(now time.Time, wait time.Duration) error {
	if left := r.deadline.Sub(now); left >= wait*7/8 && left <= wait {
		return nil
	}
	if err := r.setDeadline(now.Add(wait)); err != nil {
		return err
	}
	if r.interrupted.Load() { // the deadline of interrupt has just been replaced
		r.link.SetReadDeadline(rawsocket.Past) //nolint:errcheck // the read fails
	}
	return nil
}

// startBody resets the pace for a new body.
func (r *reader) startBody() {
	r.pace.start, r.pace.received = time.Time{}, 0
	r.replying.Store(false)
}

func (r *reader) setDeadline(t time.Time) error {
	r.deadline = t
	return r.link.SetReadDeadline(t)
}

// awaitHeader sets the deadline for the first byte of a header: a new connection has HeaderTimeout, a used one may be
// idle. A deadline that differs little from the one in force is not set.
func (r *reader) awaitHeader(first bool) error {
	d := r.limits.Idle
	if first {
		d = r.limits.HeaderTimeout
	}
	by := time.Now().Add(d)
	if later := by.Sub(r.deadline); later >= 0 && later < d/16 {
		return nil
	}
	return r.setDeadline(by)
}

// releaseEmpty returns the buffer's block to the pool if it holds nothing.
func (r *reader) releaseEmpty() {
	if r.buffer.Buffered() == 0 {
		r.buffer.Release()
	}
}

package wire

import (
	"errors"
	"github.com/anteroom/anteroom/gateway/rawsocket"
	"io"
	"time"
)

// outSize is what one write to a client carries.
const OutSize = 32 << 10

// bodySource reads a client's body bytes.
type bodySource struct{ c *conn }

func (s bodySource) Read(p []byte) (int, error) { return s.c.readSome(p) }

// readSome reads body bytes; a silence longer than BodyIdle ends it, and so does next to nothing.
func (c *conn) readSome(p []byte) (int, error) {
	now := time.Now()
	most := c.lim.BodyIdle
	if !c.replying.Load() {
		if c.bodyAt.IsZero() {
			c.bodyAt = now
		}
		earned := time.Duration(c.bodyGot) * (time.Second / leastBodyRate)
		most = min(most, max(0, c.bodyAt.Sub(now)+c.lim.BodyIdle+earned))
	} else {
		c.bodyAt, c.bodyGot = time.Time{}, 0
	}
	if c.patience > 0 {
		if c.patientTo.IsZero() {
			c.patientTo = now.Add(c.patience)
		}
		most = min(most, max(0, c.patientTo.Sub(now)))
	}
	if until := c.body.until; !until.IsZero() {
		most = min(most, max(0, until.Sub(now)))
	}
	if left := c.readBy.Sub(now); left < most*7/8 || left > most {
		if err := c.setReadBy(now.Add(most)); err != nil {
			return 0, err
		}
		if c.interrupted.Load() {
			c.Conn.SetReadDeadline(rawsocket.Past) //nolint:errcheck // the read below tells
		}
	}
	n, err := c.recv(p)
	c.bodyGot += int64(n)
	if n > 0 {
		return n, nil
	}
	if rawsocket.IsTimeout(err) {
		if c.interrupted.Load() {
			return 0, ErrInterrupted
		}
		if c.patience > 0 && !time.Now().Before(c.patientTo) {
			return 0, ErrBodyLate
		}
		return 0, ErrBodyIdle
	}
	return 0, err
}

var (
	ErrBodyLate    = errors.New("proxy: the body has not come yet")
	ErrInterrupted = errors.New("proxy: the answer came before the body's end")
)

// ErrBodyIdle is what ends a body that does not come.
var ErrBodyIdle = errors.New("proxy: the client stopped sending its body, or sends next to nothing")

func (c *conn) setReadBy(t time.Time) error {
	c.readBy = t
	return c.Conn.SetReadDeadline(t)
}

// await sets the deadline for a header's first byte: a new connection has the time of a header, a
// used one may be idle. One that differs little from the deadline in force is left as it is.
func (c *conn) await() error {
	d := c.lim.Idle
	if !c.served {
		d = c.lim.HeaderTimeout
	}
	by := time.Now().Add(d)
	if later := by.Sub(c.readBy); later >= 0 && later < d/16 {
		return nil
	}
	return c.setReadBy(by)
}

// silently ends an idle connection without the answer that fasthttp would give to a time-out.
func silently(err error) error {
	if rawsocket.IsTimeout(err) {
		return io.EOF
	}
	return err
}

// SetReadDeadline is for a handler that has its own ideas.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setReadBy(t) }

// SetDeadline is for TLS and, once the handler has returned, for hijackers, who need nothing of the request.
func (c *conn) SetDeadline(t time.Time) error {
	c.settle()
	c.letGo()
	c.in.Release()
	c.readBy, c.writeBy = time.Time{}, time.Time{}
	return c.Conn.SetDeadline(t)
}

// SetWriteDeadline is for a handler that has its own ideas: its writes then keep to them. It may be called beside a write.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.ownWriteBy.Store(true)
	return c.Conn.SetWriteDeadline(t)
}

// Write is fasthttp's way to the client.
func (c *conn) Write(p []byte) (int, error) {
	if c.answered || c.gone {
		return len(p), nil
	}
	c.begin()
	c.settle()
	if c.ownWriteBy.Load() {
		return c.Conn.Write(p)
	}
	for rest := p; len(rest) > 0; { // the time is for each part: whoever reads slowly, reads
		n := min(len(rest), OutSize)
		if err := c.send(rest[:n], time.Now()); err != nil {
			return len(p) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// settle notes that nothing is left of the body, so Close need not wait for it.
func (c *conn) settle() {
	if c.head.Length != 0 && c.body.Ended() {
		c.unread.Store(false)
	}
}

// begin marks the final answer's first byte, after which no 100 Continue may follow.
func (c *conn) begin() {
	if c.head.Expect && !c.started {
		c.continueMu.Lock()
		c.started = true
		c.continueMu.Unlock()
	}
}

// send is the way to the client; one that does not take p for WriteIdle is given up.
func (c *conn) send(p []byte, now time.Time) error {
	if left := c.writeBy.Sub(now); left < c.lim.WriteIdle*3/4 || left > c.lim.WriteIdle {
		c.writeBy = now.Add(c.lim.WriteIdle)
		if err := c.Conn.SetWriteDeadline(c.writeBy); err != nil {
			return err
		}
	}
	if c.sock.Valid() {
		_, err := c.sock.Write(p)
		return err
	}
	_, err := c.Conn.Write(p)
	return err
}

// recv is the way from the client.
func (c *conn) recv(p []byte) (int, error) {
	if c.sock.Valid() {
		return c.sock.Read(p)
	}
	return c.Conn.Read(p)
}

const ContinueLine = "HTTP/1.1 100 Continue\r\n\r\n"

// sendInterim passes an informational answer on.
func (c *conn) sendInterim(p []byte) error {
	if c.head.Expect { // an upload may be about to send 100 Continue
		c.continueMu.Lock()
		defer c.continueMu.Unlock()
	}
	return c.send(p, time.Now())
}

// sendContinue asks the client for its body, unless the answer has begun.
func (c *conn) sendContinue() error {
	c.continueMu.Lock()
	defer c.continueMu.Unlock()
	if c.started {
		return ErrInterrupted // who was not told to continue may never send the body
	}
	return c.send([]byte(ContinueLine), time.Now())
}

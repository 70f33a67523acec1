package email

import (
	"context"
	"errors"
	netmail "net/mail"
	"net/textproto"
	"slices"
	"sync"
	"time"

	"github.com/wneessen/go-mail/smtp"
)

// pool bounds the connections to the server and keeps idle ones for the next message.
type pool struct {
	server *server
	idle   time.Duration
	slots  chan struct{} // one entry for each connection in use

	mu     sync.Mutex
	free   []*session // most recently used last
	closed bool
}

func newPool(s *server, size int, idle time.Duration) *pool {
	return &pool{server: s, idle: idle, slots: make(chan struct{}, size)}
}

// enter waits for a free connection slot; it returns false if ctx ends first.
func (p *pool) enter(ctx context.Context) bool {
	select {
	case p.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *pool) leave() { <-p.slots }

// send sends l and returns the server's reply, after enter. Its error is a *stageError, a *replyError or one of the
// connection.
func (p *pool) send(ctx context.Context, l *letter) (reply string, err error) {
	for {
		s, err := p.take(ctx)
		if err != nil {
			return "", err
		}
		reused := s.reused // read before s returns to the pool
		reply, err := p.transact(ctx, s, l)
		if reused && stale(err) && ctx.Err() == nil {
			continue // the server closed an idle connection before the message: use another one
		}
		return reply, err
	}
}

// stale reports whether the server closed the connection before this message.
func stale(err error) bool {
	r, ok := errors.AsType[*replyError](err)
	return ok && r.command == "MAIL" && (r.code == 0 || r.code == 421)
}

// take returns an idle connection or a new one.
func (p *pool) take(ctx context.Context) (*session, error) {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		s.expire.Stop()
		s.reused = true
		return s, nil
	}
	p.mu.Unlock()
	return p.server.dial(ctx)
}

// keep returns a connection to the pool for a while.
func (p *pool) keep(s *session) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		quit(s)
		return
	}
	defer p.mu.Unlock()
	p.free = append(p.free, s)
	s.expire = time.AfterFunc(p.idle, func() {
		p.mu.Lock()
		i := slices.Index(p.free, s)
		if i >= 0 {
			p.free = slices.Delete(p.free, i, i+1)
		}
		p.mu.Unlock()
		if i >= 0 {
			quit(s)
		}
	})
}

func (p *pool) close() {
	p.mu.Lock()
	free := p.free
	p.free, p.closed = nil, true
	p.mu.Unlock()
	for _, s := range free {
		s.expire.Stop()
		quit(s)
	}
}

// quit ends the session politely, if possible.
func quit(s *session) {
	_ = s.conn.SetDeadline(time.Now().Add(time.Second))
	_ = s.client.Quit()
	s.close()
}

// replyError is a command with a 4xx or 5xx reply or (code 0) without one.
type replyError struct {
	command string
	code    int
	err     error
}

func (e *replyError) Error() string { return e.command + ": " + e.err.Error() }
func (e *replyError) Unwrap() error { return e.err }

func replied(command string, err error) *replyError {
	r := &replyError{command: command, err: err}
	if said, ok := errors.AsType[*textproto.Error](err); ok {
		r.code = said.Code
	}
	return r
}

// transact runs one mail transaction on s, then keeps or closes s. The end of ctx closes the connection immediately.
func (p *pool) transact(ctx context.Context, s *session, l *letter) (reply string, err error) {
	deadline, _ := ctx.Deadline()
	_ = s.conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, s.close)
	reply, failure := transaction(s.client, l)
	// After a refusal, RSET ends the transaction; after any other error the connection is unusable.
	sound := failure == nil || failure.code >= 400 && failure.code != 421 && s.client.Reset() == nil
	if stop() && sound {
		p.keep(s)
	} else {
		s.close()
	}
	if failure != nil {
		return "", failure
	}
	return reply, nil
}

// transaction is MAIL, RCPT for each recipient, and DATA. If one recipient is refused, none gets the message: a job
// has one outcome, and a retry must not reach the others twice.
func transaction(c *smtp.Client, l *letter) (string, *replyError) {
	utf8, _ := c.Extension("SMTPUTF8")
	if l.utf8 && !utf8 {
		return "", &replyError{command: "MAIL", code: 553, err: errors.New("553 an address is not ASCII, which the server does not support (SMTPUTF8)")}
	}
	c.SkipSMTPUTF8(!l.utf8) // used without need, it keeps servers from forwarding to older ones
	if err := c.Mail(path(l.from)); err != nil {
		return "", replied("MAIL", err)
	}
	var refused *replyError
	for _, to := range l.recipients {
		err := c.Rcpt(path(to))
		if err == nil {
			continue
		}
		r := replied("RCPT "+path(to), err)
		if r.code == 0 || r.code == 421 {
			return "", r
		}
		// A permanent refusal decides: the message will never be accepted as it is.
		if refused == nil || refused.code < 500 && r.code >= 500 {
			refused = r
		}
	}
	if refused != nil {
		return "", refused
	}
	w, err := c.Data()
	if err != nil {
		return "", replied("DATA", err)
	}
	if _, err := w.Write(l.body); err != nil {
		return "", replied("message", err)
	}
	if err := w.Close(); err != nil {
		return "", replied("message", err)
	}
	if d, ok := w.(*smtp.DataCloser); ok {
		return d.ServerResponse(), nil
	}
	return "", nil
}

// path returns an address in the form of MAIL and RCPT.
func path(address string) string { return (&netmail.Address{Address: address}).String() }

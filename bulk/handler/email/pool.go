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

// pool bounds the connections to the server and keeps those that are free for the next message.
type pool struct {
	server *server
	idle   time.Duration
	slots  chan struct{} // a token a connection in use

	mu     sync.Mutex
	free   []*session // the latest used last
	closed bool
}

func newPool(s *server, size int, idle time.Duration) *pool {
	return &pool{server: s, idle: idle, slots: make(chan struct{}, size)}
}

// enter waits until another connection may be used; false: ctx ended first.
func (p *pool) enter(ctx context.Context) bool {
	select {
	case p.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *pool) leave() { <-p.slots }

// send hands l to the server and gives its reply; its caller has entered. An error is a *stageError, a *replyError or of the
// connection.
func (p *pool) send(ctx context.Context, l *letter) (reply string, err error) {
	for {
		s, err := p.take(ctx)
		if err != nil {
			return "", err
		}
		reused := s.reused // s is somebody else's once it is back
		reply, err := p.transact(ctx, s, l)
		if reused && stale(err) && ctx.Err() == nil {
			continue // with a connection that the server did not close meanwhile; nothing was handed over yet
		}
		return reply, err
	}
}

// stale says that the server ended the connection before this message was under way.
func stale(err error) bool {
	r, ok := errors.AsType[*replyError](err)
	return ok && r.command == "MAIL" && (r.code == 0 || r.code == 421)
}

// take gives a kept connection, or a new one.
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

// keep puts a connection back that is ready for the next message, for a while.
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

// quit says goodbye, if the server listens.
func quit(s *session) {
	_ = s.conn.SetDeadline(time.Now().Add(time.Second))
	_ = s.client.Quit()
	s.close()
}

// replyError is a command that was not answered as it should: with a reply of 4xx or 5xx, or (code 0) not at all.
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

// transact runs one mail transaction on s and keeps or closes s after it. ctx's end closes the connection at once.
func (p *pool) transact(ctx context.Context, s *session, l *letter) (reply string, err error) {
	deadline, _ := ctx.Deadline()
	_ = s.conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, s.close)
	reply, failure := transaction(s.client, l)
	// A refusal leaves a transaction open, which RSET ends; after anything else than a reply the connection is of no use.
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

// transaction is MAIL, RCPT for each recipient, and DATA. Where one recipient is refused nobody gets the message, as a job
// has one outcome: to send it again must not reach the others twice.
func transaction(c *smtp.Client, l *letter) (string, *replyError) {
	utf8, _ := c.Extension("SMTPUTF8")
	if l.utf8 && !utf8 {
		return "", &replyError{command: "MAIL", code: 553, err: errors.New("553 an address is not ASCII, and the server does not take such (SMTPUTF8)")}
	}
	c.SkipSMTPUTF8(!l.utf8) // asked for without need, the message could not be passed on to older servers
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
		// One that is refused for good decides: the message as it is will never be taken.
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

// path is an address as MAIL and RCPT take it.
func path(address string) string { return (&netmail.Address{Address: address}).String() }

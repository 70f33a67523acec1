package email

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	netmail "net/mail"
	"time"

	"github.com/anteroom/anteroom/bulk"
)

// Options are processors.<Name> of the configuration.
type Options struct {
	Name string // the job type, by which errors name the setting; "": email
	// SMTP is smtp://[user:pass@]host[:port] (587, STARTTLS) or smtps://… (465, TLS from the start). ?tls=optional takes
	// STARTTLS where it is offered, ?tls=none never; a loopback host's default is optional, any other's is required, and
	// credentials go to another host over TLS only.
	SMTP     string
	From     string        // name and address, or the address alone
	MaxConns int           // connections to the server, and so messages at a time; 0: 8
	Idle     time.Duration // how long an unused connection is kept; 0: 30 s
	Timeout  time.Duration // of one message, connecting included but not the wait for one of MaxConns; 0: 30 s
	// MaxResult is how many bytes a result may have, longer ones are dropped with a note; 0: 64 KiB.
	MaxResult int
	TLS       *tls.Config // further roots; nil: the system's
}

// Handler is a bulk.Handler that sends mail.
type Handler struct {
	name    string
	from    *netmail.Address
	domain  string // of from: the right side of Message-IDs
	timeout time.Duration
	most    int // bytes of a result
	pool    *pool
}

var _ bulk.Handler = (*Handler)(nil)

// New checks o and connects to nothing. An error names each setting that is wrong, and repeats no password.
func New(o Options) (*Handler, error) {
	if o.Name == "" {
		o.Name = "email"
	}
	if o.MaxConns <= 0 {
		o.MaxConns = 8
	}
	if o.Idle <= 0 {
		o.Idle = 30 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.MaxResult <= 0 {
		o.MaxResult = 64 << 10
	}
	var problems []error
	server, err := parseServer(o.SMTP)
	if err != nil {
		problems = append(problems, fmt.Errorf("processors.%s.smtp: %w", o.Name, err))
	}
	from, err := address(o.From)
	if err != nil {
		problems = append(problems, fmt.Errorf("processors.%s.from: %w", o.Name, err))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	server.tls = o.TLS
	return &Handler{
		name: o.Name, from: from, domain: domainOf(from.Address), timeout: o.Timeout, most: o.MaxResult,
		pool: newPool(server, o.MaxConns, o.Idle),
	}, nil
}

// Close ends the kept connections; messages on their way are sent.
func (h *Handler) Close() error {
	h.pool.close()
	return nil
}

// Handle sends the job's message. The result is {"message_id","reply"}, the reply being what the server said on taking it.
func (h *Handler) Handle(ctx context.Context, job *bulk.Job) ([]byte, error) {
	letter, err := h.compose(job, time.Now())
	if err != nil {
		return nil, bulk.Permanent("bad_payload", err)
	}
	if !h.pool.enter(ctx) {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, bulk.Fail("cancelled", context.Cause(ctx))
		}
		return nil, bulk.Busy(0, fmt.Errorf("all %d connections to the mail server were in use all the time", cap(h.pool.slots)))
	}
	defer h.pool.leave()
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	reply, err := h.pool.send(ctx, letter)
	if err != nil {
		return nil, h.meaning(ctx, err)
	}
	done, err := result(letter, reply)
	return bulk.Fitting(done, h.most), err
}

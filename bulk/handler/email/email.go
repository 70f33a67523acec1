package email

import (
	"cmp"
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
	Name string // the job type, for errors that name the setting; "": email
	// SMTP is smtp://[user:pass@]host[:port] (587, STARTTLS) or smtps://… (465, implicit TLS). ?tls=optional uses
	// STARTTLS if offered, ?tls=none never; the default is optional for a loopback host and required for any other.
	// Credentials are sent to other hosts over TLS only.
	SMTP     string
	From     string        // name and address, or the address alone
	MaxConns int           // connections to the server, each with one message at a time; 0: 8
	Idle     time.Duration // how long an unused connection is kept; 0: 30 s
	Timeout  time.Duration // of one message, including connecting, without the wait for one of MaxConns; 0: 30 s
	// MaxResult is the most bytes of a result; a longer one is replaced by a note; 0: 64 KiB.
	MaxResult int
	TLS       *tls.Config // additional roots; nil: the system's
}

// Handler is a bulk.Handler that sends mail.
type Handler struct {
	name    string
	from    *netmail.Address
	domain  string // domain of From, for Message-IDs
	timeout time.Duration
	most    int // bytes of a result
	pool    *pool
}

var _ bulk.Handler = (*Handler)(nil)

// New checks o and does not connect. Its error names each invalid setting and contains no password.
func New(o Options) (*Handler, error) {
	o.Name = cmp.Or(o.Name, "email")
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

// Close closes idle connections; messages in progress are sent.
func (h *Handler) Close() error {
	h.pool.close()
	return nil
}

// Handle sends the job's message. The result is {"message_id","reply"} with the server's reply.
func (h *Handler) Handle(ctx context.Context, job *bulk.Job) ([]byte, error) {
	letter, err := h.compose(job, time.Now())
	if err != nil {
		return nil, bulk.Permanent("bad_payload", err)
	}
	if !h.pool.enter(ctx) {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, bulk.Fail("cancelled", context.Cause(ctx))
		}
		return nil, bulk.Busy(0, fmt.Errorf("all %d connections to the mail server stayed in use", cap(h.pool.slots)))
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

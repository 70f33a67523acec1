package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	shortestPause = 250 * time.Millisecond
	longestPause  = 10 * time.Second
)

// Unreachable is the error of a request without a response: the server is down or the connection broke.
type Unreachable struct {
	Server string // its URL
	Err    error
}

func (e *Unreachable) Error() string {
	return fmt.Sprintf("cannot reach the bulk worker at %s: %v", e.Server, e.Err)
}

// Unwrap returns the cause.
func (e *Unreachable) Unwrap() error { return e.Err }

func (c *connection) unreachable(err error) error {
	return &Unreachable{Server: c.base.Redacted(), Err: err}
}

// Passing reports whether an error is an outage, after which the same call may succeed, rather than a refusal.
func Passing(err error) bool {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.passing()
	}
	_, ok := errors.AsType[*Unreachable](err)
	return ok
}

// patience decides after each failure whether and when to retry. It measures from the first failure since the last
// progress, so that work of any length may be interrupted any number of times.
type patience struct {
	c     *connection
	pause time.Duration // after the next failure, before jitter
	since time.Time     // of the first failure; zero: none
}

func (c *connection) newPatience() *patience { return &patience{c: c, pause: shortestPause} }

// progress resets the failures.
func (p *patience) progress() { p.pause, p.since = shortestPause, time.Time{} }

// wait pauses after a failure and returns nil, or returns the error if a retry is useless.
func (p *patience) wait(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w (last error: %w)", context.Cause(ctx), err)
	}
	if !Passing(err) {
		return err
	}
	now := time.Now()
	if p.since.IsZero() {
		p.since = now
	}
	// Half to one and a half of the pause, so that clients do not return all at once.
	pause := p.pause/2 + rand.N(p.pause) //nolint:gosec // it spreads requests, and is no secret
	p.pause = min(2*p.pause, longestPause)
	if problem, ok := errors.AsType[*Problem](err); ok && problem.RetryAfter > 0 {
		pause = problem.RetryAfter
	}
	if now.Add(pause).Sub(p.since) > p.c.o.Patience {
		return err
	}
	if p.c.o.OnRetry != nil {
		p.c.o.OnRetry(err, pause)
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w (last error: %w)", context.Cause(ctx), err)
	case <-t.C:
		return nil
	}
}

// retry calls f until it succeeds, is refused, or patience ends.
func (c *connection) retry(ctx context.Context, f func() error) error {
	for p := c.newPatience(); ; {
		err := f()
		if err == nil {
			return nil
		}
		if err := p.wait(ctx, err); err != nil {
			return err
		}
	}
}

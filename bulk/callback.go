package bulk

import (
	"context"
	"log/slog"
	"time"

	"github.com/anteroom/anteroom/bulk/jobtrace"
	"github.com/anteroom/anteroom/bulk/store"
)

const (
	callbackTimeout = 20 * time.Second
	callbackAgain   = 2 * time.Second // pause after the first attempt, doubled after each
	callbackMost    = time.Hour       // longest pause
	callbackFor     = 24 * time.Hour  // no attempt after this time from the group's end
)

// callbacks records the outcome of callbacks.
type callbacks interface {
	Group(ctx context.Context, group string) (store.Group, error)
	CallbackDone(ctx context.Context, group string, ok, last bool, again time.Duration) error
}

// calling sends a request to a group's callback_url when the group has ended. send signs and sends; without it,
// groups are offered to other processes.
type calling struct {
	store   callbacks
	send    func(ctx context.Context, url string, body []byte) error
	body    func(g store.Group) ([]byte, error)
	tracer  *jobtrace.Tracer
	metrics *Metrics
	log     *slog.Logger
	slots   chan struct{}
}

// back sends a group's callback, under the group's lock.
func (c *calling) back(ctx context.Context, t tender, group string) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil
	}
	unlock, ok, err := t.Lock(ctx, group, tendLock)
	if err != nil || !ok {
		return err
	}
	defer unlock()
	if due, err := t.Tend(ctx, group); err != nil || !due.Callback { // another process has sent it
		return err
	}
	g, err := c.store.Group(ctx, group)
	if err != nil {
		return err
	}
	body, err := c.body(g)
	if err == nil {
		err = c.deliver(ctx, &g, body)
	}
	if ctx.Err() != nil {
		return nil // the shutdown interrupted it: due immediately
	}
	again := min(callbackAgain<<min(g.CallbackTries, 20), callbackMost)
	last := err != nil && time.Since(g.FinishedAt)+again > callbackFor
	switch { // the URL is not logged: it may contain a secret
	case err == nil:
		c.metrics.callback("done")
	case last:
		c.metrics.callback("failed")
		c.log.Error("callback failed for the last time; giving up", "group", group, "error", err)
	default:
		c.metrics.callback("retry")
		c.log.Warn("callback failed; will retry", "group", group, "again", again.Round(time.Second).String(), "error", err)
	}
	return c.store.CallbackDone(ctx, group, err == nil, last, again)
}

func (c *calling) deliver(ctx context.Context, g *store.Group, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callbackTimeout)
	defer cancel()
	ctx, traced := c.tracer.Callback(ctx, g)
	err := c.send(ctx, g.CallbackURL, body)
	if err != nil {
		traced.End("retry", "callback", err.Error())
	} else {
		traced.End("done", "", "")
	}
	return err
}

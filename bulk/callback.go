package bulk

import (
	"context"
	"log/slog"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

const (
	callbackTimeout = 20 * time.Second
	callbackAgain   = 2 * time.Second // after the first try, and twice as long after each
	callbackMost    = time.Hour       // at most
	callbackFor     = 24 * time.Hour  // after the group's end no more
)

// callbacks are noted here.
type callbacks interface {
	Group(ctx context.Context, group string) (store.Group, error)
	CallbackDone(ctx context.Context, group string, ok, last bool, again time.Duration) error
}

// calling tells a group's callback_url that it has ended. send signs and delivers; without it groups are offered to other processes.
type calling struct {
	store   callbacks
	send    func(ctx context.Context, url string, body []byte) error
	body    func(g store.Group) ([]byte, error)
	metrics *Metrics
	log     *slog.Logger
	slots   chan struct{}
}

// back calls back for a group, under its lock.
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
	if due, err := t.Tend(ctx, group); err != nil || !due.Callback { // another process was faster
		return err
	}
	g, err := c.store.Group(ctx, group)
	if err != nil {
		return err
	}
	body, err := c.body(g)
	if err == nil {
		err = c.deliver(ctx, g.CallbackURL, body)
	}
	if ctx.Err() != nil {
		return nil // not its fault: due at once
	}
	again := min(callbackAgain<<min(g.CallbackTries, 20), callbackMost)
	last := err != nil && time.Since(g.FinishedAt)+again > callbackFor
	switch { // the URL is not logged: its path and query may hold a secret
	case err == nil:
		c.metrics.callback("done")
	case last:
		c.metrics.callback("failed")
		c.log.Error("a callback failed for the last time", "group", group, "error", err)
	default:
		c.metrics.callback("retry")
		c.log.Warn("a callback failed; it is tried again", "group", group, "again", again.Round(time.Second).String(), "error", err)
	}
	return c.store.CallbackDone(ctx, group, err == nil, last, again)
}

func (c *calling) deliver(ctx context.Context, url string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callbackTimeout)
	defer cancel()
	return c.send(ctx, url, body)
}

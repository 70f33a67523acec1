package bulk

import (
	"context"
	"log/slog"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

const (
	callbackTimeout = 20 * time.Second
	callbackAgain   = 2 * time.Second // at least, between two tries
	callbackMost    = time.Hour       // at most
	callbackFor     = 24 * time.Hour  // after the group's end no more
)

// callbacks are noted here.
type callbacks interface {
	Group(ctx context.Context, group string) (store.Group, error)
	CallbackDone(ctx context.Context, group string, ok, last bool, again time.Duration) error
}

// calling tells a group's callback_url that it has ended. send signs and delivers; without it other processes do.
type calling struct {
	store   callbacks
	send    func(ctx context.Context, url string, body []byte) error
	body    func(g store.Group) ([]byte, error)
	metrics *Metrics
	log     *slog.Logger
	slots   chan struct{}
}

// back calls back for a group, under its lock, and says how long to leave the group alone.
func (c *calling) back(ctx context.Context, t tender, group string) (rest time.Duration, err error) {
	if c.send == nil {
		return tendRestLong, nil
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return 0, nil
	}
	unlock, ok, err := t.Lock(ctx, group, tendLock)
	if err != nil || !ok {
		return tendRest, err
	}
	defer unlock()
	if due, err := t.Tend(ctx, group); err != nil || !due.Callback { // another process was faster
		return tendRest, err
	}
	g, err := c.store.Group(ctx, group)
	if err != nil {
		return tendRest, err
	}
	body, err := c.body(g)
	if err == nil {
		err = c.deliver(ctx, g.CallbackURL, body)
	}
	if ctx.Err() != nil {
		return 0, nil // not its fault: due at once
	}
	// Twice as long after each try, without a count: as long again as the group has been over.
	over := time.Since(g.FinishedAt)
	again := min(max(over, callbackAgain), callbackMost)
	last := err != nil && over+again > callbackFor
	switch {
	case err == nil:
		c.metrics.callback("done")
	case last:
		c.metrics.callback("failed")
		c.log.Error("a callback failed for the last time", "group", group, "url", g.CallbackURL, "error", err)
	default:
		c.metrics.callback("retry")
		c.log.Warn("a callback failed; it is tried again", "group", group, "url", g.CallbackURL, "again", again.Round(time.Second), "error", err)
	}
	return tendRest, c.store.CallbackDone(ctx, group, err == nil, last, again)
}

func (c *calling) deliver(ctx context.Context, url string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callbackTimeout)
	defer cancel()
	return c.send(ctx, url, body)
}

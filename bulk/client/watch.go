package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"
)

const (
	// pollEvery is how often a group is read where its events cannot be had.
	pollEvery = time.Second
	// firstEvent is how soon a group's present state has to come as an event.
	firstEvent = 10 * time.Second
)

// Watch yields a group now and whenever it has moved on, until it has ended; the last one has an ended status. It listens to
// the server's events, connects again when they break off, and polls where something in between keeps them back. After an
// error it ends.
func (c *Client) Watch(ctx context.Context, id string) iter.Seq2[*Group, error] {
	return func(yield func(*Group, error) bool) {
		p := c.newPatience()
		for listen := true; ; {
			end := false
			see := func(g *Group) bool {
				p.progress()
				end = !yield(g, nil) || g.Status.Ended()
				return !end
			}
			err := errNoEvents
			if listen {
				err = c.listen(ctx, id, see)
			}
			switch {
			case end:
				return
			case errors.Is(err, errNoEvents):
				listen = false
				if err = c.poll(ctx, id, see); end {
					return
				}
			}
			if err = p.wait(ctx, err); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// errNoEvents says that there is no stream of events to be had here.
var errNoEvents = errors.New("no events")

// listen hands every state of a group on until see has seen enough, or the stream breaks off.
func (c *Client) listen(ctx context.Context, id string, see func(*Group) bool) error {
	k := get("v1", "groups", id, "events")
	k.accept, k.stall = "text/event-stream", c.firstEvent
	body, err := c.try(ctx, k)
	if err != nil {
		return silence(err)
	}
	defer body.Close()
	if !strings.HasPrefix(body.contentType, "text/event-stream") {
		return errNoEvents
	}
	seen := false
	for stream := newEvents(body); ; {
		_, data, err := stream.next()
		switch {
		case err != nil && seen:
			return c.unreachable(err)
		case errors.Is(err, io.EOF):
			return errNoEvents
		case err != nil:
			return silence(c.unreachable(err))
		}
		var g Group
		if err := json.Unmarshal(data, &g); err != nil {
			return fmt.Errorf("%s: an event is not what a bulk worker says: %w", c.url(k), err)
		}
		if g.ID == "" {
			continue // not a state of the group
		}
		if seen = true; !see(&g) {
			return nil
		}
		body.guard.after = c.stall // the first came, and a server that is alive is never silent for longer
	}
}

// silence tells a server that has no events for us, or something in between that holds them back, from one that is away.
func silence(err error) error {
	if _, held := errors.AsType[stalled](err); held {
		return errNoEvents
	}
	if p, ok := errors.AsType[*Problem](err); ok && (p.Code == "too_many_streams" || p.Status == http.StatusNotAcceptable || p.Status == http.StatusNotImplemented) {
		return errNoEvents
	}
	return err
}

// poll reads a group every second until see has seen enough.
func (c *Client) poll(ctx context.Context, id string, see func(*Group) bool) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		var g Group
		if err := c.ask(ctx, get("v1", "groups", id), &g); err != nil {
			return err
		}
		if !see(&g) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

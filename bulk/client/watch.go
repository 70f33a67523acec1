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
	// pollEvery is how often a group is read when events are not available.
	pollEvery = time.Second
	// firstEvent is how soon the first event must arrive.
	firstEvent = 10 * time.Second
)

// Watch yields a group now and after each change until it has ended. It reads the server's events, reconnects when
// they break off, and polls if something in between holds events back. It ends after an error.
func (c groups) Watch(ctx context.Context, id string) iter.Seq2[*Group, error] {
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

// errNoEvents is returned when events are not available here.
var errNoEvents = errors.New("no events")

// listen calls see with each state of a group until see returns false or the stream breaks off.
func (c groups) listen(ctx context.Context, id string, see func(*Group) bool) error {
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
			return fmt.Errorf("%s: an event is not a group: %w", c.url(k), err)
		}
		if g.ID == "" {
			continue // not a state of the group
		}
		if seen = true; !see(&g) {
			return nil
		}
		body.guard.after = c.stall // a server that is alive sends heartbeats
	}
}

// silence turns the errors of a server or proxy that does not deliver events into errNoEvents.
func silence(err error) error {
	if _, held := errors.AsType[stalled](err); held {
		return errNoEvents
	}
	if p, ok := errors.AsType[*Problem](err); ok && (p.Code == "too_many_streams" || p.Status == http.StatusNotAcceptable || p.Status == http.StatusNotImplemented) {
		return errNoEvents
	}
	return err
}

// poll reads a group every second until see returns false.
func (c groups) poll(ctx context.Context, id string, see func(*Group) bool) error {
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

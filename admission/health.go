package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/anteroom/anteroom/admission/adaptive"
)

// healthAge is after how long nothing counts that a gateway said; it says it every second.
const healthAge = 5 * time.Second

// origin is what this gateway measures of one.
type origin struct {
	recent adaptive.Recent
	said   []byte // the last text that was published
}

// Origin is where requests to that origin are counted, for all gateways to know. It may be used from any goroutine.
func (c *Core) Origin(id string) *adaptive.Recorder {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.origins[id]
	if o == nil {
		o = &origin{}
		c.origins[id] = o
	}
	return &o.recent.Recorder
}

// tell publishes the health of the origins once a second, until ctx ends, and that somebody has to wait as soon as it is so.
func (c *Core) tell(ctx context.Context) {
	failed := func(err error) { c.o.Log.Error("the health of origins was not published", "error", err) }
	c.loops.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-c.lined:
			}
			if err := c.TellLines(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, ErrStore) {
				failed(err)
			}
		}
	})
	eachSecond(ctx, c.TellHealth, failed)
}

// eachSecond does something once a second until ctx ends, and tells of what failed for another reason than the store's absence,
// of which the rooms tell.
func eachSecond(ctx context.Context, do func(context.Context) error, failed func(error)) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := do(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, ErrStore) {
			failed(err)
		}
	}
}

// TellHealth ends a second of measuring and publishes it; of an origin that was asked nothing and for which nobody waits
// there is nothing to say. Run calls it; tests may.
func (c *Core) TellHealth(ctx context.Context) error {
	waiting, _ := c.waiting(true)
	c.mu.Lock()
	type said struct {
		id   string
		text []byte
	}
	var all []said
	for id, o := range c.origins {
		report := o.recent.Turn()
		if report.Long.Requests == 0 && waiting[id] == 0 {
			continue
		}
		text, _ := report.MarshalText() // never fails
		o.said = text
		all = append(all, said{id, text})
	}
	c.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	for _, s := range all {
		if err := c.tellOne(ctx, s.id, waiting[s.id], s.text); err != nil {
			return err
		}
	}
	return nil
}

// waiting is how many wait for each origin, and for which of them somebody did whom no snapshot shows yet. forget begins that
// anew.
func (c *Core) waiting(forget bool) (waiting map[string]int64, lined []string) {
	waiting = map[string]int64{}
	for _, r := range c.all() {
		n, origin := r.Snapshot().Waiting, r.view.schedule.Load().Policy.Origin
		if r.waitsNew.Load() {
			n, lined = max(1, n), append(lined, origin)
			if forget {
				r.waitsNew.Store(false)
			}
		}
		waiting[origin] += n
	}
	return waiting, lined
}

// line notes that somebody has to wait here. Where that is news, all are told at once: bulk work gives way.
func (r *Room) noteWaiting() {
	if r.Snapshot().Waiting > 0 || r.waitsNew.Swap(true) {
		return
	}
	select {
	case r.c.lined <- struct{}{}:
	default:
	}
}

// TellLines publishes for which origins somebody has to wait by now, with the health of the last second. Run calls it; tests may.
func (c *Core) TellLines(ctx context.Context) error {
	waiting, lined := c.waiting(false)
	for _, id := range lined {
		var text []byte
		c.mu.Lock()
		if o := c.origins[id]; o != nil {
			text = o.said
		}
		c.mu.Unlock()
		if text == nil {
			text, _ = (&adaptive.Report{}).MarshalText()
		}
		if err := c.tellOne(ctx, id, waiting[id], text); err != nil {
			return err
		}
	}
	return nil
}

// TellJobs says that bulk work which gives way to an origin's visitors runs. What it makes too much of, rooms that adapt to the
// origin leave to it for a few seconds, before they cut what is theirs.
func (c *Core) TellJobs(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.tickTimeout())
	defer cancel()
	_, err := c.scripts.Run(ctx, "origin_jobs", []string{jobsKey(c.o.Prefix, id)}, c.now())
	return err
}

func (c *Core) tellOne(ctx context.Context, id string, waiting int64, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.tickTimeout())
	defer cancel()
	_, err := c.scripts.Run(ctx, "origin_health", []string{healthKey(c.o.Prefix, id)}, c.now(), c.o.Gateway, waiting, text)
	return err
}

// OriginHealth is how an origin was to all gateways together.
type OriginHealth struct {
	adaptive.Health       // of 3 s, or of 30 s where those had too few requests
	Gateways        int   // that have said something in the last seconds; 0: nothing is known
	Waiting         int64 // visitors in the lines in front of it
	Jobs            bool  // bulk work ran against it lately that gives way to visitors
	Unread          int   // gateways of which only the line counts: another version's words, say
}

// OriginHealth merges what gateways said of an origin in the last seconds. A bulk worker asks it too.
func (c *Core) OriginHealth(ctx context.Context, id string) (OriginHealth, error) {
	ctx, cancel := context.WithTimeout(ctx, c.tickTimeout())
	defer cancel()
	said, err := c.scripts.Run(ctx, "origin_read", []string{healthKey(c.o.Prefix, id), jobsKey(c.o.Prefix, id)}, c.now(), healthAge.Microseconds())
	if err != nil {
		return OriginHealth{}, err
	}
	if len(said)%2 != 1 {
		return OriginHealth{}, fmt.Errorf("origin_read answered %v", said)
	}
	var all adaptive.Report
	h := OriginHealth{Jobs: asInt(said[0]) == 1}
	for pair := range slices.Chunk(said[1:], 2) {
		h.Waiting = max(h.Waiting, asInt(pair[0])) // each of them sees all that wait
		var report adaptive.Report
		if e := report.UnmarshalText([]byte(asString(pair[1]))); e != nil {
			h.Unread++
			err = e
			continue
		}
		all.Merge(&report)
		h.Gateways++
	}
	h.Health = all.Health()
	c.noteUnread(id, h.Unread > 0, err)
	return h, nil
}

// noteUnread logs, once, that what a gateway says of an origin cannot be read.
func (c *Core) noteUnread(id string, is bool, err error) {
	c.mu.Lock()
	was := c.unread[id]
	c.unread[id] = is
	c.mu.Unlock()
	if is && !was {
		c.o.Log.Warn("what a gateway says of an origin's health cannot be read, and does not count: do all run the same version?", "origin", id, "error", err)
	}
}

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/anteroom/anteroom/admission/adaptive"
)

// healthAge is how long a report of a gateway counts; gateways report every second.
const healthAge = 5 * time.Second

// origin is what this gateway measures of one origin.
type origin struct {
	recent    adaptive.Recent
	published []byte // the last published text
}

// Origin returns the recorder of the requests to an origin. It is safe for concurrent use.
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

// publishLoop publishes the health of the origins every second until ctx ends, and at once when visitors begin to wait.
func (c *Core) publishLoop(ctx context.Context) {
	failed := func(err error) { c.o.Log.Error("cannot publish the health of origins", "error", err) }
	c.loops.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-c.waits:
			}
			if err := c.PublishWaiting(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, ErrStore) {
				failed(err)
			}
		}
	})
	eachSecond(ctx, c.PublishHealth, failed)
}

// eachSecond calls do every second until ctx ends, and failed with its errors except outages of the store, which the rooms
// report.
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

// PublishHealth ends a second of measuring and publishes it. Origins without requests and without waiting visitors are left out. Run
// calls it; tests may.
func (c *Core) PublishHealth(ctx context.Context) error {
	waiting, _ := c.waiting(true)
	c.mu.Lock()
	type published struct {
		id   string
		text []byte
	}
	var all []published
	for id, o := range c.origins {
		report := o.recent.Turn()
		if report.Long.Requests == 0 && waiting[id] == 0 {
			continue
		}
		text, _ := report.MarshalText() // never fails
		o.published = text
		all = append(all, published{id, text})
	}
	c.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	for _, s := range all {
		if err := c.publish(ctx, s.id, waiting[s.id], s.text); err != nil {
			return err
		}
	}
	return nil
}

// waiting returns how many visitors wait for each origin, and the origins with new ones that no snapshot shows yet. forget begins
// these anew.
func (c *Core) waiting(forget bool) (waiting map[string]int64, fresh []string) {
	waiting = map[string]int64{}
	for _, r := range c.all() {
		n, origin := r.Snapshot().Waiting, r.view.schedule.Load().Policy.Origin
		if r.joins.waitsNew.Load() {
			n, fresh = max(1, n), append(fresh, origin)
			if forget {
				r.joins.waitsNew.Store(false)
			}
		}
		waiting[origin] += n
	}
	return waiting, fresh
}

// noteWaiting records that a visitor began to wait. If nobody waited before, it is published at once: bulk work gives way.
func (r *joins) noteWaiting() {
	if r.view.Snapshot().Waiting > 0 || r.waitsNew.Swap(true) {
		return
	}
	select {
	case r.c.waits <- struct{}{}:
	default:
	}
}

// PublishWaiting publishes the origins with new waiting visitors, with their health of the last second. Run calls it; tests may.
func (c *Core) PublishWaiting(ctx context.Context) error {
	waiting, fresh := c.waiting(false)
	for _, id := range fresh {
		var text []byte
		c.mu.Lock()
		if o := c.origins[id]; o != nil {
			text = o.published
		}
		c.mu.Unlock()
		if text == nil {
			text, _ = (&adaptive.Report{}).MarshalText()
		}
		if err := c.publish(ctx, id, waiting[id], text); err != nil {
			return err
		}
	}
	return nil
}

// ReportJobs reports that bulk work which gives way to the visitors of an origin runs. Adaptive rooms wait some seconds for
// this work to slow down before they lower their own rate.
func (c *Core) ReportJobs(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.tickTimeout())
	defer cancel()
	_, err := c.scripts.Run(ctx, "origin_jobs", []string{jobsKey(c.o.Prefix, id)}, c.now())
	return err
}

func (c *Core) publish(ctx context.Context, id string, waiting int64, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.tickTimeout())
	defer cancel()
	_, err := c.scripts.Run(ctx, "origin_health", []string{healthKey(c.o.Prefix, id)}, c.now(), c.o.Gateway, waiting, text)
	return err
}

// OriginHealth is the health of an origin as all gateways together measured it.
type OriginHealth struct {
	adaptive.Health       // of 3 s, or of 30 s where those had too few requests
	Gateways        int   // that reported in the last seconds; 0: nothing is known
	Waiting         int64 // visitors in its queues
	Jobs            bool  // bulk work that gives way to visitors ran against it lately
	Unread          int   // reports that cannot be read, as of another version; only their waiting visitors count
}

// OriginHealth merges the reports of all gateways on an origin in the last seconds. Bulk workers call it too.
func (c *Core) OriginHealth(ctx context.Context, id string) (OriginHealth, error) {
	ctx, cancel := context.WithTimeout(ctx, c.tickTimeout())
	defer cancel()
	published, err := c.scripts.Run(ctx, "origin_read", []string{healthKey(c.o.Prefix, id), jobsKey(c.o.Prefix, id)}, c.now(), healthAge.Microseconds())
	if err != nil {
		return OriginHealth{}, err
	}
	if len(published)%2 != 1 {
		return OriginHealth{}, fmt.Errorf("origin_read replied %v", published)
	}
	var all adaptive.Report
	h := OriginHealth{Jobs: asInt(published[0]) == 1}
	for pair := range slices.Chunk(published[1:], 2) {
		h.Waiting = max(h.Waiting, asInt(pair[0])) // each gateway reports all that wait
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

// noteUnread logs once that a gateway's report on an origin cannot be read.
func (c *Core) noteUnread(id string, is bool, err error) {
	c.mu.Lock()
	was := c.unread[id]
	c.unread[id] = is
	c.mu.Unlock()
	if is && !was {
		c.o.Log.Warn("cannot read a gateway's report on an origin's health and ignores it; run the same version on all gateways", "origin", id, "error", err)
	}
}

package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/outbox"
)

const (
	// emptyFor is how long nobody must have waited before a queue has ended, so that a room at its limit does not start and end queues all
	// the time.
	emptyFor = 10 * time.Second
	// unhealthyFor and healthyFor are how long an origin must have been so.
	unhealthyFor, healthyFor = 5 * time.Second, 15 * time.Second
	// fewRequests is the least number of requests to an origin that show its health.
	fewRequests = 10
	// eventsLate is how long after its end an event may still be reported, by a gateway that was not there.
	eventsLate = 24 * time.Hour
)

// Room is a room as this gateway sees it now.
type Room struct {
	ID           string
	Snapshot     *admission.Snapshot
	Up           bool  // the store replies
	Now          int64 // Redis's clock, µs
	Events       []admission.Event
	Origin       string
	MaxErrorRate float64                // above which the origin counts as unhealthy
	Health       admission.OriginHealth // of the origin; without gateways: unknown
	// SessionEnds reads ends of sessions, as admission.Room does.
	SessionEnds func(ctx context.Context, of []admission.ID, since int64, within time.Duration) (admission.SessionEnds, error)
}

// watcher finds changes of rooms. Its holder calls it about once a second; a new one begins without memory.
type watcher struct {
	waited map[string]time.Time // when a room last had a queue
	states map[string]streak    // of origins, by room
}

// streak is how long a state has lasted.
type streak struct {
	is    bool
	since time.Time
}

func newWatcher() *watcher {
	return &watcher{waited: map[string]time.Time{}, states: map[string]streak{}}
}

func queueField(room string) string   { return join("queue", room) }
func policyField(room string) string  { return join("policy", room) }
func originField(room string) string  { return join("origin", room) }
func soldOutField(room string) string { return join("sold_out", room) }
func eventField(room string, e *admission.Event) string {
	return join("event", room, strconv.FormatInt(e.Starts, 10), e.Name)
}

// fields returns the states that changes compares with.
func fields(rooms []Room) (names []string) {
	for i := range rooms {
		r := &rooms[i]
		names = append(names, outagesField(r.ID), queueField(r.ID), policyField(r.ID), originField(r.ID), soldOutField(r.ID), sessionsField(r.ID))
		for e := range r.Events {
			if r.due(&r.Events[e]) {
				names = append(names, eventField(r.ID, &r.Events[e]))
			}
		}
	}
	return names
}

// due reports whether an event has started, and not ended long ago.
func (r *Room) due(e *admission.Event) bool {
	return r.Now >= e.Starts && r.Now < e.Ends+eventsLate.Microseconds()
}

// change is a change of a state and its event.
type change struct {
	field, initial, value string
	event                 event
}

// note returns the change for the queue.
func (c *change) note(recorded string, endpoints []Endpoint) outbox.Change {
	expected := cmp.Or(recorded, c.initial)
	n := outbox.Change{Field: c.field, Expected: expected, Initial: c.initial, Value: c.value}
	if c.event.kind != "" {
		n.ID, n.Body, n.Endpoints = c.event.id(), c.event.body(), wanting(endpoints, c.event.kind, c.event.room)
	}
	return n
}

// changes returns what differs from the recorded states.
func (w *watcher) changes(now time.Time, rooms []Room, recorded map[string]string) (all []change) {
	for i := range rooms {
		r := &rooms[i]
		if !r.Up || !r.Snapshot.Known {
			continue
		}
		for _, found := range []*change{w.queue(now, r, recorded), w.policy(now, r, recorded), w.origin(now, r, recorded), soldOut(now, r, recorded)} {
			if found != nil {
				all = append(all, *found)
			}
		}
		for e := range r.Events {
			if found := eventChange(now, r, &r.Events[e], recorded); found != nil {
				all = append(all, *found)
			}
		}
	}
	return all
}

// marks tell events of a room's snapshots apart.
func (r *Room) marks() []string {
	return []string{r.Snapshot.Epoch, strconv.FormatInt(r.Snapshot.Seq, 10)}
}

func (w *watcher) queue(now time.Time, r *Room, recorded map[string]string) *change {
	s, was := r.Snapshot, recorded[queueField(r.ID)] == "1"
	is := s.Waiting > 0
	if is {
		w.waited[r.ID] = now
	}
	last, known := w.waited[r.ID]
	if !known {
		last = now // the queue may have emptied a moment ago
		w.waited[r.ID] = now
	}
	data := map[string]any{"waiting": s.Waiting, "active": s.Active, "rate": perSecond(s.Policy.Rate), "paused": s.Policy.Paused}
	switch {
	case is && !was:
		return &change{queueField(r.ID), "0", "1", event{QueueStarted, r.ID, now, data, r.marks()}}
	case !is && was && now.Sub(last) >= emptyFor:
		return &change{queueField(r.ID), "0", "0", event{QueueEnded, r.ID, now, data, r.marks()}}
	}
	return nil
}

// soldOut reports that every item of a room is sold out. That items are there again is recorded, so that the next time is reported too.
func soldOut(now time.Time, r *Room, recorded map[string]string) *change {
	s, was := r.Snapshot, recorded[soldOutField(r.ID)] == "1"
	switch is := s.Facts.SoldOut; {
	case is && !was:
		data := map[string]any{"waiting": s.Waiting, "active": s.Active, "closed": s.Policy.SoldOut}
		return &change{soldOutField(r.ID), "0", "1", event{RoomSoldOut, r.ID, now, data, r.marks()}}
	case !is && was:
		return &change{field: soldOutField(r.ID), initial: "0", value: "0"}
	}
	return nil
}

func perSecond(thousandths int64) float64 { return float64(thousandths) / 1000 }

// policyOf returns what operators can change live, as in the API.
func policyOf(p *admission.Policy) map[string]any {
	return map[string]any{
		"rate": perSecond(p.Rate), "burst": perSecond(p.Burst), "max_active": p.MaxActive, "paused": p.Paused, "draining": p.Draining,
		"message": p.Message, "method": p.Method, "on_sold_out": onSoldOut(p), "challenge": p.Challenge, "enabled": p.Enabled, "session": map[string]any{"ttl": p.SessionTTL.String()},
	}
}

func onSoldOut(p *admission.Policy) string {
	if p.SoldOutCloses {
		return "close"
	}
	return "keep"
}

func (w *watcher) policy(now time.Time, r *Room, recorded map[string]string) *change {
	is := policyOf(&r.Snapshot.Policy)
	text, _ := json.Marshal(is) // never fails
	was := recorded[policyField(r.ID)]
	if was == string(text) {
		return nil
	}
	found := &change{field: policyField(r.ID), value: string(text)}
	if was == "" { // the first time: nothing has changed
		found.initial = "none"
		return found
	}
	before := map[string]any{}
	if json.Unmarshal([]byte(was), &before) != nil {
		before = map[string]any{}
	}
	after := map[string]any{}
	_ = json.Unmarshal(text, &after) // numbers as those of before
	changed := []string{}
	for _, name := range []string{"rate", "burst", "max_active", "paused", "draining", "message", "method", "on_sold_out", "challenge", "enabled", "session"} {
		_, had := before[name] // an earlier version may not have recorded the field
		a, _ := json.Marshal(before[name])
		if b, _ := json.Marshal(after[name]); had && string(a) != string(b) {
			changed = append(changed, name)
		} else {
			delete(before, name)
			delete(after, name)
		}
	}
	if len(changed) == 0 {
		return found
	}
	found.event = event{RoomChanged, r.ID, now, map[string]any{"fields": changed, "before": before, "after": after}, append(r.marks(), string(text))}
	return found
}

func (w *watcher) origin(now time.Time, r *Room, recorded map[string]string) *change {
	h := &r.Health
	if h.Gateways == 0 || h.Requests < fewRequests {
		return nil
	}
	is := h.ErrorRate() > r.MaxErrorRate
	run := w.states[r.ID]
	if run.since.IsZero() || run.is != is {
		run = streak{is, now}
		w.states[r.ID] = run
	}
	was, lasted := recorded[originField(r.ID)] == "unhealthy", now.Sub(run.since)
	data := map[string]any{"origin": r.Origin, "error_rate": h.ErrorRate(), "max_error_rate": r.MaxErrorRate, "p95_seconds": h.P95.Seconds()}
	switch {
	case is && !was && lasted >= unhealthyFor:
		return &change{originField(r.ID), "healthy", "unhealthy", event{OriginUnhealthy, r.ID, now, data, r.marks()}}
	case !is && was && lasted >= healthyFor:
		return &change{originField(r.ID), "healthy", "healthy", event{OriginHealthy, r.ID, now, data, r.marks()}}
	}
	return nil
}

func eventChange(now time.Time, r *Room, e *admission.Event, recorded map[string]string) *change {
	if !r.due(e) {
		return nil
	}
	field := eventField(r.ID, e)
	data := map[string]any{"event": e.Name, "starts_at": micros(e.Starts), "ends_at": micros(e.Ends)}
	marks := []string{e.Name, strconv.FormatInt(e.Starts, 10), strconv.FormatInt(e.Ends, 10)}
	switch was := recorded[field]; {
	case r.Now < e.Ends && was == "":
		return &change{field, "none", "started", event{EventStarting, r.ID, now, data, marks}}
	case r.Now >= e.Ends && was == "started":
		return &change{field, "none", "", event{EventEnded, r.ID, now, data, marks}}
	}
	return nil
}

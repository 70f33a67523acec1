package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission/policy"
	"github.com/anteroom/anteroom/admission/snapshot"
)

// MostEvents is the highest number of live events of a room.
const MostEvents = policy.MostLive

// planned makes the schedule of a room of its configured policy and the live events of the store.
type planned struct {
	mu     sync.Mutex
	policy Policy // as configured
	text   string // of the live events
	events []Event
}

// schedule returns the schedule; mu is held.
func (p *planned) schedule() *policy.Schedule {
	merged := p.policy
	merged.Plan = merged.Plan.With(p.events)
	return policy.NewSchedule(merged)
}

// configure puts a configured policy in force and returns the one before; nil at the first call.
func (r *view) configure(p Policy) (was *policy.Schedule) {
	r.planned.mu.Lock()
	defer r.planned.mu.Unlock()
	r.planned.policy = p
	return r.schedule.Swap(r.planned.schedule())
}

// plan puts the live events of a snapshot in force, and reports whether they differ from those before.
func (r *view) plan(text string) bool {
	r.planned.mu.Lock()
	defer r.planned.mu.Unlock()
	if text == r.planned.text {
		return false
	}
	events, err := policy.ParseEvents(text)
	if err != nil {
		r.c.o.Log.Error("cannot read the live events of the room; only those of the configuration are in force. Delete them in the console and plan them again", "room", r.id, "error", err)
	}
	r.planned.text, r.planned.events = text, events
	r.schedule.Store(r.planned.schedule())
	return true
}

// Scheduled returns the configured policy with the plan in force: events of the configuration and live ones.
func (r *view) Scheduled() *Policy { return &r.schedule.Load().Policy }

// LiveEvents returns the live events that this gateway knows, whether they overlap others or not.
func (r *view) LiveEvents() []Event {
	r.planned.mu.Lock()
	defer r.planned.mu.Unlock()
	return slices.Clone(r.planned.events)
}

// ParseEvents reads the text of live events in the audit log.
func ParseEvents(text string) ([]Event, error) { return policy.ParseEvents(text) }

// ReadEvents returns the live events in the store, and their text for PublishEvents.
func (r *operators) ReadEvents(ctx context.Context) ([]Event, string, error) {
	text, err := r.c.o.Client.HGet(ctx, r.keys[keyLive], snapshot.Events).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, "", fmt.Errorf("%w: %w", ErrStore, err)
	}
	events, err := policy.ParseEvents(text)
	return events, text, err
}

// PublishEvents replaces the live events with the text before, in the store at once and in every gateway with its next tick. It reports
// false, and changes nothing, if the store has other events by now.
func (r *operators) PublishEvents(ctx context.Context, who, before string, events []Event) (bool, error) {
	args := []any{who, r.id, "event"}
	if before == "" {
		args = append(args, "absent", snapshot.Events, "")
	} else {
		args = append(args, "match", snapshot.Events, before)
	}
	if text := policy.EventsText(events); text == "" {
		args = append(args, "clear", snapshot.Events, "")
	} else {
		args = append(args, "set", snapshot.Events, text)
	}
	return patchIf(ctx, r, args)
}

package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Puller is a worker outside the processes of the store, for which one of them pulls jobs with PullFor.
type Puller struct {
	ID        string
	Host      string // its address
	Types     []string
	StartedAt time.Time // of its first request to the process that reported it, by that process's clock
	SeenAt    time.Time // by the store's clock; set by Pullers
}

const (
	// PullersEvery is how often to report the pullers with NotePullers.
	PullersEvery = 5 * time.Second
	// pullersFor is how long a puller is listed after a report.
	pullersFor = 4 * PullersEvery
	// pullersPart is the time for which reports are written to the same key, so that a key expires as a whole.
	pullersPart = 2 * pullersFor
)

// ownerName returns the part of an owner that names it: a puller's requests append # and more.
func ownerName(owner string) string {
	name, _, _ := strings.Cut(owner, "#")
	return name
}

// NotePullers reports pullers that have made a request since the last report, or wait for jobs.
func (s processStore) NotePullers(ctx context.Context, all []Puller) error {
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	now, err := s.storeTime(ctx)
	if err != nil {
		return err
	}
	values := make([]any, 0, 2*len(all))
	for _, p := range all {
		p.SeenAt = now
		text, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("cannot encode worker %s: %w", p.ID, err)
		}
		values = append(values, p.ID, text)
	}
	key, pipe := pullersKey(s.o.Prefix, s.o.Shard, now), s.o.Client.Pipeline()
	pipe.HSet(ctx, key, values...)
	pipe.Expire(ctx, key, pullersPart+pullersFor)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%w: pullers: %w", ErrStore, err)
	}
	return nil
}

// Pullers returns the pullers that were reported recently, by id.
func (s processStore) Pullers(ctx context.Context) ([]Puller, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	now, err := s.storeTime(ctx)
	if err != nil {
		return nil, err
	}
	pipe := s.o.Client.Pipeline()
	before, present := pipe.HGetAll(ctx, pullersKey(s.o.Prefix, s.o.Shard, now.Add(-pullersPart))), pipe.HGetAll(ctx, pullersKey(s.o.Prefix, s.o.Shard, now))
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("%w: pullers: %w", ErrStore, err)
	}
	found := before.Val()
	for id, text := range present.Val() { // the later report of a puller
		found[id] = text
	}
	var all []Puller
	for _, text := range found {
		var p Puller
		if json.Unmarshal([]byte(text), &p) == nil && now.Sub(p.SeenAt) <= pullersFor { // another version may write another form
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Puller) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// storeTime returns the time of the store.
func (s *shard) storeTime(ctx context.Context) (time.Time, error) {
	if s.o.Now != nil {
		return micros(s.o.Now()), nil
	}
	now, err := s.o.Client.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: time: %w", ErrStore, err)
	}
	return now.UTC(), nil
}

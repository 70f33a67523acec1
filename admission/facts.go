package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission/snapshot"
)

// loadFacts sets the text of the facts of a snapshot. It reads the store if the hash differs from that of the former facts.
func (r *ticker) loadFacts(ctx context.Context, s *Snapshot, former *Facts) error {
	f := &s.Facts
	switch f.Hash {
	case "":
		return nil
	case former.Hash:
		if f.Text = former.Text; f.Text != "" {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.tickTimeout())
	defer cancel()
	values, err := r.c.o.Client.HMGet(ctx, r.keys[keyLive], snapshot.FactsText, snapshot.FactsHash).Result()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	f.Text, f.Hash = asString(values[0]), asString(values[1]) // newer ones than those of the snapshot, if they have changed meanwhile
	return nil
}

// ReadFacts returns the text of the facts in the store, empty without facts.
func (r *operators) ReadFacts(ctx context.Context) (string, error) {
	text, err := r.c.o.Client.HGet(ctx, r.keys[keyLive], snapshot.FactsText).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("%w: %w", ErrStore, err)
	}
	return text, nil
}

// PublishFacts replaces the facts before by f, in the store at once and in every gateway with its next tick. An empty text
// removes them. It reports false, and changes nothing, if the store has other facts than before by now.
func (r *operators) PublishFacts(ctx context.Context, who, action string, before, f Facts) (bool, error) {
	expected := "match"
	if before.Text == "" {
		expected = "absent"
	}
	args := []any{who, r.id, action, expected, snapshot.FactsText, before.Text}
	put := func(name, value string) {
		verb := "set"
		if value == "" {
			verb = "clear"
		}
		args = append(args, verb, name, value)
	}
	put(snapshot.FactsText, f.Text)
	put(snapshot.FactsHash, f.Hash)
	switch {
	case f.SoldOut == before.SoldOut: // the log has what has changed
	case f.SoldOut:
		put(snapshot.SoldOut, bit(true))
	default:
		put(snapshot.SoldOut, "")
	}
	return patchIf(ctx, r, args)
}
